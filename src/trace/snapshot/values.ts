// The values that a snapshot decoder holds: a tag and a number each, in parallel arrays.
// Objects for a file of a million events would take several times the file's size.
import { InputError } from '../../base/errors.ts';

/** Names of functions and files are far shorter. A longer text cannot be decoded piece by piece. */
export const MAX_TEXT_BYTES: number = 2 ** 20;

/** Decodes a file piece by piece into rows. The value that the file holds ends in slot 0 of the stack. */
export interface SnapshotDecoder {
  readonly format: 'pickle' | 'JSON';
  /** Whether the value is complete. Bytes after it are not looked at by pickle, and must be white space in JSON. */
  readonly isDone: boolean;
  /** Bytes of memory it holds besides the rows. */
  readonly held: number;
  /** Number of values in containers that are not complete yet. */
  readonly open: number;
  /** Decodes the bytes at position `base` of the file as far as they are whole. Returns how many of them it used. */
  decode(bytes: Uint8Array, base: number, isLast: boolean): number;
  /** Whether the file announced more than its `total` bytes. */
  isCut(total: number): boolean;
}

/** The meaning of the number beside a tag. */
export const Tag = {
  /** No value: a memo entry that was never written. */
  Absent: 0,
  None: 1,
  Bool: 2,
  Number: 3,
  /** Index into `Rows.bigints`, for integers that a double cannot hold exactly. */
  BigInt: 4,
  /** Index into the `StringTable`. */
  String: 5,
  /** Byte strings. Snapshots have none, so the content is dropped. */
  Opaque: 6,
  /** A dict that has not been filled yet, so its kind is unknown. */
  Dict: 7,
  /** A list that is still empty. */
  List: 8,
  /** A list of frames: an index into `symbols.stacks`. */
  Stack: 9,
  /** Index into `symbols.frames`. */
  Frame: 10,
  /** Row of the `EventStore`. */
  Event: 11,
  /** An event with an unknown action. */
  SkippedEvent: 12,
  /** Indices into the arrays of `Rows`. */
  Segment: 13,
  Block: 14,
  Annotation: 15,
  /** Index into the `PoolTable`. Pool ids are written as two integers. */
  Pair: 16,
  /** A list of strings, taken as lines of a traceback: an index into `symbols.stacks`. */
  Texts: 17,
  /** Index into `Containers`. */
  GenericDict: 18,
  GenericList: 19,
  /** Consecutive event rows; inside containers only (see `Containers.append`). */
  EventRange: 20,
} as const;

const NAMES: readonly string[] = [
  'nothing',
  'None',
  'a truth value',
  'a number',
  'a huge number',
  'text',
  'bytes',
  'an empty dict',
  'an empty list',
  'a list of stack frames',
  'a stack frame',
  'a trace entry',
  'a trace entry',
  'a segment',
  'a block',
  'an annotation',
  'a pair of numbers',
  'a list of text',
  'a dict',
  'a list',
  'trace entries',
];

/** The kind of a value in words, for messages. */
export function describeTag(tag: number): string {
  return NAMES[tag] ?? 'something unknown';
}

/** Most list items held at a time. Python writes lists in batches of 1000, PyTorch's C++ writer in one piece. */
const MAX_DEPTH = 2 ** 25;

export class ValueStack {
  tags: Uint8Array = new Uint8Array(4096);
  values: Float64Array = new Float64Array(4096);
  /** Memo index of this value, or -1. Filling a container must update the memo too. */
  memos: Int32Array = new Int32Array(4096);

  /** Bytes that the arrays take. */
  get held(): number {
    return this.tags.length * 13;
  }

  /** Doubles the capacity. Callers must fetch the arrays again. */
  grow(): void {
    const capacity = this.tags.length * 2;
    if (capacity > MAX_DEPTH)
      throw new InputError('the file nests deeper or has longer lists than any memory snapshot: it is damaged or something else');
    const { tags, values, memos } = this;
    this.tags = new Uint8Array(capacity);
    this.tags.set(tags);
    this.values = new Float64Array(capacity);
    this.values.set(values);
    this.memos = new Int32Array(capacity);
    this.memos.set(memos);
  }
}

const INT32_LIMIT = 2 ** 31;
/** Most entries with indices beyond what the input can account for. Real picklers write none. */
const MAX_DISTANT = 1024;
/** Tag of a memo entry whose number does not fit 32 bits and is kept in `boxed`. */
const BOXED = 255;

/** The pickle memo: values kept for later reference. Nearly all are indices, so an entry takes 32 bits. */
export class Memo {
  count = 0;
  private top = 0;
  private tags: Uint8Array;
  private values: Int32Array;
  private readonly boxed: number[] = [];
  /** Entries with indices that no real pickler writes. They must not make the arrays grow. */
  private readonly distant = new Map<number, readonly [number, number]>();
  /** Tag of the entry fetched last. */
  tag = 0;
  value = 0;

  constructor(expected: number) {
    this.tags = new Uint8Array(expected);
    this.values = new Int32Array(expected);
  }

  /** Bytes that the entries take. Memory up to the highest index counts, since single entries touch whole pages. */
  get held(): number {
    return this.top * 5 + this.boxed.length * 8 + this.distant.size * 100;
  }

  /** `reach` is the highest index that the bytes read so far can account for. */
  put(index: number, tag: number, value: number, reach: number): void {
    if (index >= this.tags.length) {
      if (index > reach) {
        if (!this.distant.has(index)) this.count++;
        if (this.distant.size >= MAX_DISTANT)
          throw new InputError('the pickle stores values at memo indices that no pickler uses: the file is damaged');
        this.distant.set(index, [tag, value]);
        return;
      }
      this.grow(index + 1);
    }
    if (this.tags[index] === 0) this.count++;
    if (index >= this.top) this.top = index + 1;
    if (value >= -INT32_LIMIT && value < INT32_LIMIT && (tag !== Tag.Number || (value | 0) === value)) {
      this.tags[index] = tag;
      this.values[index] = value;
    } else {
      this.tags[index] = BOXED;
      this.values[index] = this.boxed.push(value) - 1;
    }
  }

  /** Loads the entry into `tag` and `value`. `tag` is Absent if there is none. */
  fetch(index: number): void {
    if (index < this.tags.length) {
      this.tag = this.tags[index]!;
      this.value = this.values[index]!;
      if (this.tag === BOXED) {
        this.tag = Tag.Number;
        this.value = this.boxed[this.value]!;
      }
      if (this.tag !== 0) return;
    }
    const distant = this.distant.get(index);
    this.tag = distant ? distant[0] : Tag.Absent;
    this.value = distant ? distant[1] : 0;
  }

  private grow(needed: number): void {
    let capacity = Math.max(64, this.tags.length);
    while (capacity < needed) capacity = Math.ceil(capacity * 1.5);
    const { tags, values } = this;
    this.tags = new Uint8Array(capacity);
    this.tags.set(tags);
    this.values = new Int32Array(capacity);
    this.values.set(values);
  }
}
