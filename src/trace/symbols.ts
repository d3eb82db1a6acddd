// Strings, source frames and call stacks, each stored once and referred to by a small number.
// Stacks form a prefix tree from the outermost frame, so a million events share a few thousand nodes.
import { Addresses } from './addresses.ts';

export const NO_STACK = -1;

/** Symbols without their functions, for another thread. */
export interface PackedSymbols {
  readonly strings: readonly string[];
  readonly frames: PackedTriples;
  readonly stacks: PackedTriples;
  readonly windows: readonly number[];
}

interface PackedTriples {
  readonly rows: Int32Array;
  readonly slots: Int32Array;
}

export class Symbols {
  /** Entry 0 is the empty string. */
  readonly strings: string[];
  readonly frames: FrameTable;
  readonly stacks: StackTable;
  readonly addresses: Addresses;
  private readonly stringIndex: Map<string, number>;

  constructor(packed?: PackedSymbols) {
    this.strings = packed ? [...packed.strings] : [''];
    this.frames = new FrameTable(packed?.frames);
    this.stacks = new StackTable(packed?.stacks);
    this.addresses = new Addresses(packed?.windows);
    this.stringIndex = new Map(this.strings.map((text, index) => [text, index]));
  }

  pack(): PackedSymbols {
    return { strings: this.strings, frames: this.frames.pack(), stacks: this.stacks.pack(), windows: this.addresses.windows };
  }

  internString(text: string): number {
    let index = this.stringIndex.get(text);
    if (index === undefined) {
      index = this.strings.push(text) - 1;
      this.stringIndex.set(text, index);
    }
    return index;
  }

  frame(index: number): Frame {
    return {
      name: this.strings[this.frames.name(index)] ?? '',
      filename: this.strings[this.frames.filename(index)] ?? '',
      line: this.frames.line(index),
    };
  }

  /** The frames of a stack, innermost first. */
  *framesOf(stack: number): Generator<Frame> {
    for (let node = stack; node >= 0; node = this.stacks.parent(node)) yield this.frame(this.stacks.frame(node));
  }
}

export interface Frame {
  readonly name: string;
  readonly filename: string;
  readonly line: number;
}

/** Triples of integers. Equal triples get the same index. Frames and stack nodes are stored this way. */
class TripleTable {
  private rows: Int32Array;
  private slots: Int32Array;
  private rowCount: number;

  constructor(packed?: PackedTriples) {
    this.rows = packed?.rows ?? new Int32Array(3 * 64);
    this.slots = packed?.slots ?? new Int32Array(256).fill(-1);
    this.rowCount = packed ? packed.rows.length / 3 : 0;
  }

  pack(): PackedTriples {
    return { rows: this.rows.subarray(0, this.rowCount * 3), slots: this.slots };
  }

  get count(): number {
    return this.rowCount;
  }

  protected field(row: number, which: 0 | 1 | 2): number {
    return this.rows[row * 3 + which] ?? -1;
  }

  protected internTriple(a: number, b: number, c: number): number {
    const { rows } = this;
    const mask = this.slots.length - 1;
    let slot = mix(a, b, c) & mask;
    for (let row = this.slots[slot]!; row >= 0; row = this.slots[slot]!) {
      if (rows[row * 3] === a && rows[row * 3 + 1] === b && rows[row * 3 + 2] === c) return row;
      slot = (slot + 1) & mask;
    }
    const row = this.append(a, b, c);
    this.slots[slot] = row;
    if (this.rowCount * 2 > this.slots.length) this.rehash();
    return row;
  }

  private append(a: number, b: number, c: number): number {
    const row = this.rowCount++;
    if ((row + 1) * 3 > this.rows.length) {
      const grown = new Int32Array(Math.max(3 * 64, this.rows.length * 2));
      grown.set(this.rows);
      this.rows = grown;
    }
    this.rows[row * 3] = a;
    this.rows[row * 3 + 1] = b;
    this.rows[row * 3 + 2] = c;
    return row;
  }

  private rehash(): void {
    const { rows } = this;
    const slots = new Int32Array(this.slots.length * 2).fill(-1);
    const mask = slots.length - 1;
    for (let row = 0; row < this.rowCount; row++) {
      let slot = mix(rows[row * 3]!, rows[row * 3 + 1]!, rows[row * 3 + 2]!) & mask;
      while (slots[slot]! >= 0) slot = (slot + 1) & mask;
      slots[slot] = row;
    }
    this.slots = slots;
  }
}

/** Source positions: two indices into the string table and a line number. */
export class FrameTable extends TripleTable {
  intern(name: number, filename: number, line: number): number {
    return this.internTriple(name, filename, line);
  }
  name(frame: number): number {
    return this.field(frame, 0);
  }
  filename(frame: number): number {
    return this.field(frame, 1);
  }
  line(frame: number): number {
    return this.field(frame, 2);
  }
}

/** Nodes of the prefix tree: a parent (the caller's stack, or NO_STACK) and a frame. */
export class StackTable extends TripleTable {
  /** The stack `parent` with one more inner frame. A parent always has a smaller index than its children. */
  push(parent: number, frame: number): number {
    return this.internTriple(parent, frame, 0);
  }
  parent(stack: number): number {
    return this.field(stack, 0);
  }
  frame(stack: number): number {
    return this.field(stack, 1);
  }
}

function mix(a: number, b: number, c: number): number {
  let hash = Math.imul(a, 0x9e3779b1) ^ Math.imul(b, 0x85ebca6b) ^ Math.imul(c, 0xc2b2ae35);
  hash ^= hash >>> 15;
  hash = Math.imul(hash, 0x2c1b3c6d);
  return hash ^ (hash >>> 13);
}
