// The call stacks in a ring: a prefix tree of frames, with the names of functions and files.
// Every number is checked: a recording with one invalid stack could not be read.
import {
  RING_FRAME_BYTES,
  RING_FRAME_STRING_BYTES,
  RING_FRAMES,
  RING_HEADER_BYTES,
  RING_STACK_BYTES,
  RING_STACKS,
  RingFrameOffset,
  RingOffset,
  RingStackOffset,
} from '../../abi/ring.ts';
import { NO_STACK, type Symbols } from '../../trace/symbols.ts';
import { RingDamage } from './ring-damage.ts';
import { u64 } from './ring-layout.ts';

const UNUSED = -2;

type ReadAt = (into: Buffer, at: number) => void;

interface Counts {
  readonly strings: number;
  readonly frames: number;
  readonly stacks: number;
}

export class RingStacks {
  private readonly readAt: ReadAt;
  private readonly stacksAt: number;
  private readonly framesAt: number;
  private readonly stringsAt: number;
  private readonly rooms: Counts;
  private told: Counts = { strings: 0, frames: 0, stacks: 0 };
  private taken: Counts = { strings: 0, frames: 0, stacks: 0 };
  private readonly strings: string[] = [''];
  /** Numbers of a frame's name and filename, and its line. */
  private readonly frames: number[] = [];
  /** Parent and frame of a stack. */
  private readonly stacks: number[] = [];
  /** Numbers in the recording, by those in the ring; `UNUSED` until an event uses the stack. */
  private readonly numbers: number[] = [];

  /** Undefined if the ring has none. Throws RingDamage if the tables lie outside of the file. */
  static of(header: DataView, size: number, readAt: ReadAt): RingStacks | undefined {
    const at = header.getUint32(RingOffset.stacks_at, true);
    return at === 0 ? undefined : new RingStacks(header, at, size, readAt);
  }

  private constructor(header: DataView, at: number, size: number, readAt: ReadAt) {
    this.readAt = readAt;
    this.rooms = {
      stacks: header.getUint32(RingOffset.stack_room, true),
      frames: header.getUint32(RingOffset.frame_room, true),
      strings: header.getUint32(RingOffset.frame_string_room, true),
    };
    const { stacks, frames, strings } = this.rooms;
    if (stacks > RING_STACKS || frames > RING_FRAMES || strings > RING_FRAME_STRING_BYTES)
      throw new RingDamage(`its ring declares room for ${stacks} call stacks, ${frames} frames and ${strings} bytes of names`);
    this.stacksAt = at;
    this.framesAt = at + stacks * RING_STACK_BYTES;
    this.stringsAt = this.framesAt + frames * RING_FRAME_BYTES;
    if (at < RING_HEADER_BYTES || this.stringsAt + strings > size)
      throw new RingDamage('the call stacks of its ring lie outside of the file');
  }

  /** Takes over how much there is. The process says so after it has written it, and before it writes rows that refer to it. */
  refresh(header: DataView): void {
    this.told = {
      strings: this.countAt(header, RingOffset.frame_string_bytes, 'strings', 'bytes of names'),
      frames: this.countAt(header, RingOffset.frame_count, 'frames', 'frames'),
      stacks: this.countAt(header, RingOffset.stack_count, 'stacks', 'call stacks'),
    };
  }

  /** Reads what is new. */
  take(): void {
    const { told, taken } = this;
    for (const text of stringsIn(this.read(this.stringsAt, taken.strings, told.strings, 1))) this.strings.push(text);
    const frames = this.read(this.framesAt, taken.frames, told.frames, RING_FRAME_BYTES);
    for (let at = 0; at < frames.length; at += RING_FRAME_BYTES) {
      const name = frames.readUInt32LE(at + RingFrameOffset.name);
      const filename = frames.readUInt32LE(at + RingFrameOffset.filename);
      const line = frames.readInt32LE(at + RingFrameOffset.line);
      if (name >= this.strings.length || filename >= this.strings.length || line < 0)
        throw new RingDamage('a frame of its ring has no name');
      this.frames.push(name, filename, line);
    }
    const stacks = this.read(this.stacksAt, taken.stacks, told.stacks, RING_STACK_BYTES);
    for (let at = 0; at < stacks.length; at += RING_STACK_BYTES) {
      const parent = stacks.readInt32LE(at + RingStackOffset.parent);
      const frame = stacks.readUInt32LE(at + RingStackOffset.frame);
      if (parent < -1 || parent >= this.numbers.length || frame * 3 >= this.frames.length)
        throw new RingDamage('a call stack of its ring refers to what is not there');
      this.stacks.push(parent, frame);
      this.numbers.push(UNUSED);
    }
    this.taken = told;
  }

  /** The number of a stack in a recording, to whose symbols it is added at its first use; NO_STACK if there is no such stack. */
  numberIn(symbols: Symbols, stack: number): number {
    if (!(stack >= 0 && stack < this.numbers.length)) return NO_STACK;
    const path: number[] = [];
    let node = stack;
    for (; node >= 0 && this.numbers[node] === UNUSED; node = this.stacks[2 * node]!) path.push(node);
    let number = node < 0 ? NO_STACK : this.numbers[node]!;
    for (const found of path.reverse()) {
      const at = 3 * this.stacks[2 * found + 1]!;
      const [name, filename] = [this.frames[at]!, this.frames[at + 1]!].map((text) => symbols.internString(this.strings[text]!));
      number = symbols.stacks.push(number, symbols.frames.intern(name!, filename!, this.frames[at + 2]!));
      this.numbers[found] = number;
    }
    return number;
  }

  private read(tableAt: number, from: number, to: number, rowBytes: number): Buffer {
    const rows = Buffer.alloc((to - from) * rowBytes);
    if (rows.length > 0) this.readAt(rows, tableAt + from * rowBytes);
    return rows;
  }

  private countAt(header: DataView, at: number, table: keyof Counts, what: string): number {
    const count = u64(header, at);
    if (!(count >= this.told[table] && count <= this.rooms[table])) throw new RingDamage(`its ring declares ${count} ${what}`);
    return count;
  }
}

/** Strings that follow each other, each a u32 length and its bytes. */
export function stringsIn(area: Buffer): string[] {
  const found: string[] = [];
  for (let at = 0; at < area.length; ) {
    const length = at + 4 <= area.length ? area.readUInt32LE(at) : Number.POSITIVE_INFINITY;
    if (at + 4 + length > area.length) throw new RingDamage('a string of its ring has no end');
    found.push(area.toString('utf8', at + 4, at + 4 + length));
    at += 4 + length;
  }
  return found;
}
