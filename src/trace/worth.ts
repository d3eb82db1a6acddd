// What a file is worth: how much of it ends up in the recording, against what the reader reads and holds for it.
// A hostile file can be valid and say nothing. It is refused by this balance, whatever it is made of.
import { formatBytes } from '../base/bytes.ts';
import { InputError } from '../base/errors.ts';

/** Fewest bytes that a file needs for an event, a block, a segment or an annotation. */
const ROW_BYTES = 60;
const FRAME_BYTES = 30;
/** One frame of a call stack: a reference to a frame that was written before. */
const STACK_ITEM_BYTES = 5;
const TEXT_BYTES = 10;

/** Frames and texts count up to this, in all and for each row: without rows, nobody needs them. */
const FREE_DETAIL = 16 * 2 ** 20;
const DETAIL_PER_ROW = 16 * 2 ** 10;

/** A file is read this far whatever it holds, and then this many bytes for each byte of worth. */
const FREE_READING = 32 * 2 ** 20;
const READ_PER_BYTE = 100;

/** As above, for memory that the reader holds besides its rows. */
const FREE_MEMORY = 64 * 2 ** 20;
const HELD_PER_BYTE = 2;

export class Worth {
  rows = 0;
  frames = 0;
  stackItems = 0;
  texts = 0;
  textBytes = 0;

  /** The bytes of the file that a recording of the same content would need. */
  get bytes(): number {
    const detail = this.frames * FRAME_BYTES + this.stackItems * STACK_ITEM_BYTES + this.texts * TEXT_BYTES + this.textBytes;
    return this.rows * ROW_BYTES + Math.min(detail, FREE_DETAIL + this.rows * DETAIL_PER_ROW);
  }

  /** Throws InputError if `read` bytes of the file, or `held` bytes of memory, are too much for what was found so far. */
  check(read: number, held: number): void {
    const { bytes } = this;
    if (read > FREE_READING + bytes * READ_PER_BYTE)
      throw new InputError(`its first ${formatBytes(read)} hold ${this.rows} events and blocks: the file is damaged or not a recording`);
    if (held > FREE_MEMORY + bytes * HELD_PER_BYTE)
      throw new InputError(
        `it takes ${formatBytes(held)} of memory for ${this.rows} events and blocks: the file is damaged or not a recording`,
      );
  }
}
