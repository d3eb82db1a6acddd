// Streams of bytes in pieces. A piece is valid until the next one is asked for: its memory may be used again.

export type Pieces = AsyncIterable<Uint8Array> | Iterable<Uint8Array>;

/** Smaller pieces are put together, since each costs its reader some work. */
const LEAST_BYTES = 2 ** 15;

/** The same bytes in pieces that are not small, except for the last. */
export async function* gathered(pieces: Pieces): AsyncGenerator<Uint8Array> {
  const small = new Uint8Array(2 * LEAST_BYTES);
  let length = 0;
  for await (const piece of pieces) {
    if (piece.length <= LEAST_BYTES) {
      small.set(piece, length);
      length += piece.length;
      if (length < LEAST_BYTES) continue;
    }
    if (length > 0) yield small.subarray(0, length);
    length = 0;
    if (piece.length > LEAST_BYTES) yield piece;
  }
  if (length > 0) yield small.subarray(0, length);
}

/** Takes bytes from a stream in the sizes that a format asks for. */
export class PieceReader {
  /** Bytes of the stream that were read, used or not. */
  total = 0;
  private readonly source: AsyncIterator<Uint8Array> | Iterator<Uint8Array>;
  private held = new Uint8Array(0);
  private from = 0;

  constructor(pieces: Pieces) {
    this.source = Symbol.asyncIterator in pieces ? pieces[Symbol.asyncIterator]() : pieces[Symbol.iterator]();
  }

  get available(): number {
    return this.held.length - this.from;
  }

  /** Reads until `count` bytes are there. False if the stream ends before. */
  async need(count: number): Promise<boolean> {
    while (this.available < count) {
      const { done, value } = await this.source.next();
      if (done) return false;
      this.total += value.length;
      const joined = new Uint8Array(this.available + value.length);
      joined.set(this.held.subarray(this.from));
      joined.set(value, this.available);
      this.held = joined;
      this.from = 0;
    }
    return true;
  }

  /** The byte at `index` from here, which must be there. */
  peek(index: number): number {
    return this.held[this.from + index]!;
  }

  /** Removes `count` bytes, which must be there. They stay valid. */
  take(count: number): Uint8Array {
    const taken = this.held.subarray(this.from, this.from + count);
    this.from += count;
    return taken;
  }

  /** The rest of the stream, in pieces. */
  async *rest(): AsyncGenerator<Uint8Array> {
    if (this.available > 0) yield this.take(this.available);
    for (;;) {
      const { done, value } = await this.source.next();
      if (done) return;
      this.total += value.length;
      yield value;
    }
  }

  /** Ends the stream early. */
  async close(): Promise<void> {
    await this.source.return?.();
  }
}
