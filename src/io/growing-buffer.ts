// Collects pieces of unknown total length into one buffer, up to a limit. Runs in Node and in the browser.
import type { InputError } from '../base/errors.ts';

const LEAST_BYTES = 2 ** 16;

export interface BufferLimit {
  readonly mostBytes: number;
  /** The error for content beyond the limit: only the caller knows what the user can do about it. */
  tooLarge(): InputError;
}

export class GrowingBuffer {
  private buffer: Uint8Array<ArrayBuffer> = new Uint8Array(LEAST_BYTES);
  private length = 0;
  private readonly limit: BufferLimit;

  constructor(limit: BufferLimit) {
    this.limit = limit;
  }

  add(piece: Uint8Array): void {
    const needed = this.length + piece.length;
    if (needed > this.limit.mostBytes) throw this.limit.tooLarge();
    if (needed > this.buffer.length) {
      const grown = new Uint8Array(Math.max(needed, this.buffer.length * 2));
      grown.set(this.buffer.subarray(0, this.length));
      this.buffer = grown;
    }
    this.buffer.set(piece, this.length);
    this.length = needed;
  }

  bytes(): Uint8Array<ArrayBuffer> {
    return this.buffer.subarray(0, this.length);
  }
}
