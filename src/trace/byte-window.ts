// The bytes of a stream that a decoder has not used yet: the end of one chunk is put in front of the next.
// What is decoded is forgotten, so a reader holds its rows and not the file.

/** Most bytes that a reader is given at a time. Between two pieces it looks at what it holds. */
export const PIECE_BYTES: number = 2 ** 18;

export class ByteWindow {
  /** Position in the stream of the first byte that is not used yet. */
  offset = 0;
  private kept = new Uint8Array(0);
  private length = 0;

  /** Bytes that came in and were not used. */
  get pending(): number {
    return this.length;
  }

  /** Shows `decode` all bytes that are not used yet. It returns how many of them it used. */
  feed(chunk: Uint8Array, decode: (bytes: Uint8Array) => number): void {
    if (this.length === 0) {
      const used = decode(chunk);
      this.offset += used;
      this.append(chunk.subarray(used));
      return;
    }
    this.append(chunk);
    const used = decode(this.kept.subarray(0, this.length));
    this.offset += used;
    this.kept.copyWithin(0, used, this.length);
    this.length -= used;
  }

  private append(chunk: Uint8Array): void {
    const needed = this.length + chunk.length;
    if (needed > this.kept.length) {
      const grown = new Uint8Array(Math.max(needed, this.kept.length * 2));
      grown.set(this.kept.subarray(0, this.length));
      this.kept = grown;
    }
    this.kept.set(chunk, this.length);
    this.length = needed;
  }
}
