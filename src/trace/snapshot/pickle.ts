// Decodes the pickle opcodes that snapshots use straight into rows.
// Opcodes that import, call or build objects are refused, so an untrusted file cannot run code.
import { InputError } from '../../base/errors.ts';
import { refusalOf } from './opcodes.ts';
import type { Rows } from './rows.ts';
import { MAX_TEXT_BYTES, Memo, type SnapshotDecoder, Tag } from './values.ts';

/** Integers of a snapshot have at most 9 bytes. Longer ones than this come from an attack or damage. */
const MAX_INTEGER_BYTES = 1024;

/** Decodes a pickle piece by piece, and leaves its one value in slot 0 of the stack. */
export class PickleDecoder implements SnapshotDecoder {
  readonly format = 'pickle';
  isDone = false;
  /** The piece that is being decoded, and its position in the file. */
  private bytes: Uint8Array = new Uint8Array(0);
  private view: DataView = new DataView(new ArrayBuffer(0));
  private base = 0;
  private readonly rows: Rows;
  private readonly memo: Memo;
  private depth = 0;
  /** Bytes of an object without use that are still to come. */
  private skip = 0;
  private frameEnd = 0;
  private marks = new Int32Array(64);
  private markCount = 0;
  /** Tag of the integer read last. */
  private integerTag: number = Tag.Number;

  constructor(rows: Rows, expectedBytes: number) {
    this.rows = rows;
    // Pages that are never written cost nothing, but growing would copy.
    this.memo = new Memo(Math.min(2 ** 24, 256 + Math.ceil(expectedBytes / 8)));
  }

  get held(): number {
    return this.memo.held + this.marks.length * 4;
  }

  /** Values of containers that are not complete yet. */
  get open(): number {
    return this.depth;
  }

  decode(bytes: Uint8Array, base: number): number {
    this.bytes = bytes;
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.base = base;
    if (this.isDone) return bytes.length;
    const skipped = Math.min(this.skip, bytes.length);
    this.skip -= skipped;
    return this.run(skipped);
  }

  /** A frame that reaches beyond the end shows that the file is truncated. */
  isCut(total: number): boolean {
    return this.frameEnd > total;
  }

  /** Decodes from `at` on. Returns where the first opcode begins that is not there as a whole. */
  private run(from: number): number {
    const { bytes, rows, memo, view, base } = this;
    const { stack } = rows;
    const end = bytes.length;
    let { tags, values, memos } = stack;
    let limit = tags.length - 2;
    let { depth } = this;
    let at = from;
    for (;;) {
      if (at >= end) return this.pause(at, depth);
      if (depth >= limit) {
        stack.grow();
        ({ tags, values, memos } = stack);
        limit = tags.length - 2;
      }
      const start = at;
      const opcode = bytes[at++]!;
      switch (opcode) {
        case 0x68: // BINGET
        case 0x6a: {
          // LONG_BINGET
          const size = opcode === 0x68 ? 1 : 4;
          if (at + size > end) return this.pause(start, depth);
          const index = size === 1 ? bytes[at]! : view.getUint32(at, true);
          at += size;
          memo.fetch(index);
          if (memo.tag === Tag.Absent) throw this.damaged(start, `it refers to entry ${index}, which was never stored`);
          tags[depth] = memo.tag;
          values[depth] = memo.value;
          memos[depth++] = index < 2 ** 31 ? index : -1;
          break;
        }
        case 0x94: // MEMOIZE
          if (depth === 0) throw this.damaged(start, 'it stores a value where there is none');
          memos[depth - 1] = memo.count;
          memo.put(memo.count, tags[depth - 1]!, values[depth - 1]!, base + at);
          break;
        case 0x8c: {
          // SHORT_BINUNICODE
          if (at >= end) return this.pause(start, depth);
          const length = bytes[at++]!;
          if (at + length > end) return this.pause(start, depth);
          tags[depth] = Tag.String;
          values[depth] = rows.strings.intern(bytes, at, length);
          memos[depth++] = -1;
          at += length;
          break;
        }
        case 0x28: // MARK
          if (this.markCount === this.marks.length) this.growMarks();
          this.marks[this.markCount++] = depth;
          break;
        case 0x7d: // EMPTY_DICT
          tags[depth] = Tag.Dict;
          values[depth] = 0;
          memos[depth++] = -1;
          break;
        case 0x5d: // EMPTY_LIST
        case 0x29: // EMPTY_TUPLE
          tags[depth] = Tag.List;
          values[depth] = 0;
          memos[depth++] = -1;
          break;
        case 0x4b: // BININT1
          if (at >= end) return this.pause(start, depth);
          tags[depth] = Tag.Number;
          values[depth] = bytes[at++]!;
          memos[depth++] = -1;
          break;
        case 0x4d: // BININT2
          if (at + 2 > end) return this.pause(start, depth);
          tags[depth] = Tag.Number;
          values[depth] = bytes[at]! | (bytes[at + 1]! << 8);
          memos[depth++] = -1;
          at += 2;
          break;
        case 0x4a: // BININT
          if (at + 4 > end) return this.pause(start, depth);
          tags[depth] = Tag.Number;
          values[depth] = view.getInt32(at, true);
          memos[depth++] = -1;
          at += 4;
          break;
        case 0x8a: {
          // LONG1
          if (at >= end) return this.pause(start, depth);
          const length = bytes[at++]!;
          if (at + length > end) return this.pause(start, depth);
          values[depth] = this.integer(at, length);
          tags[depth] = this.integerTag;
          memos[depth++] = -1;
          at += length;
          break;
        }
        case 0x75: // SETITEMS
        case 0x65: {
          // APPENDS
          const from = this.popMark(start, depth);
          if (from === 0) throw this.damaged(start, 'it fills a container where there is none');
          if (opcode === 0x65) rows.append(from - 1, from, depth, base + start);
          else if ((depth - from) % 2 !== 0) throw this.damaged(start, 'a dict has a key without a value');
          else rows.setItems(from - 1, from, depth, base + start);
          depth = from;
          this.patchMemo(depth - 1, base + at);
          break;
        }
        case 0x73: // SETITEM
        case 0x61: {
          // APPEND
          const items = opcode === 0x61 ? 1 : 2;
          if (depth - this.floor() <= items) throw this.damaged(start, 'it fills a container where there is none');
          depth -= items;
          if (items === 1) rows.append(depth - 1, depth, depth + 1, base + start);
          else rows.setItems(depth - 1, depth, depth + 2, base + start);
          this.patchMemo(depth - 1, base + at);
          break;
        }
        case 0x85: // TUPLE1
        case 0x86: // TUPLE2
        case 0x87: {
          // TUPLE3
          const from = depth - (opcode - 0x84);
          if (from < this.floor()) throw this.damaged(start, 'a tuple has too few items');
          rows.makeList(from, from, depth);
          memos[from] = -1;
          depth = from + 1;
          break;
        }
        case 0x88: // NEWTRUE
        case 0x89: // NEWFALSE
          tags[depth] = Tag.Bool;
          values[depth] = opcode === 0x88 ? 1 : 0;
          memos[depth++] = -1;
          break;
        case 0x4e: // NONE
          tags[depth] = Tag.None;
          values[depth] = 0;
          memos[depth++] = -1;
          break;
        case 0x47: // BINFLOAT
          if (at + 8 > end) return this.pause(start, depth);
          tags[depth] = Tag.Number;
          values[depth] = view.getFloat64(at, false);
          memos[depth++] = -1;
          at += 8;
          break;
        case 0x71: // BINPUT
        case 0x72: {
          // LONG_BINPUT
          const size = opcode === 0x71 ? 1 : 4;
          if (at + size > end) return this.pause(start, depth);
          if (depth === 0) throw this.damaged(start, 'it stores a value where there is none');
          const index = size === 1 ? bytes[at]! : view.getUint32(at, true);
          at += size;
          memo.put(index, tags[depth - 1]!, values[depth - 1]!, base + at);
          memos[depth - 1] = index < 2 ** 31 ? index : -1;
          break;
        }
        case 0x58: // BINUNICODE
        case 0x8d: {
          // BINUNICODE8
          const size = opcode === 0x58 ? 4 : 8;
          if (at + size > end) return this.pause(start, depth);
          const length = this.length(at, size);
          if (length > MAX_TEXT_BYTES) throw this.damaged(start, `it has a text of ${length} bytes`);
          at += size;
          if (at + length > end) return this.pause(start, depth);
          tags[depth] = Tag.String;
          values[depth] = rows.strings.intern(bytes, at, length);
          memos[depth++] = -1;
          at += length;
          break;
        }
        case 0x43: // SHORT_BINBYTES
        case 0x42: // BINBYTES
        case 0x8e: // BINBYTES8
        case 0x96: {
          // BYTEARRAY8
          const size = opcode === 0x43 ? 1 : opcode === 0x42 ? 4 : 8;
          if (at + size > end) return this.pause(start, depth);
          const length = this.length(at, size);
          at += size;
          tags[depth] = Tag.Opaque;
          values[depth] = 0;
          memos[depth++] = -1;
          const here = Math.min(length, end - at);
          this.skip = length - here;
          at += here;
          break;
        }
        case 0x8b: {
          // LONG4
          if (at + 4 > end) return this.pause(start, depth);
          const length = this.length(at, 4);
          if (length > MAX_INTEGER_BYTES) throw this.damaged(start, `it has an integer of ${length} bytes`);
          at += 4;
          if (at + length > end) return this.pause(start, depth);
          values[depth] = this.integer(at, length);
          tags[depth] = this.integerTag;
          memos[depth++] = -1;
          at += length;
          break;
        }
        case 0x95: // FRAME
          if (at + 8 > end) return this.pause(start, depth);
          this.frameEnd = base + at + 8 + this.length(at, 8);
          at += 8;
          break;
        case 0x80: // PROTO
          if (at >= end) return this.pause(start, depth);
          if (bytes[at]! > 5)
            throw new InputError(
              `the pickle has protocol ${bytes[at]}, but Weir reads protocols 2 to 5: the file is damaged or not a memory snapshot`,
            );
          at++;
          break;
        case 0x74: // TUPLE
        case 0x6c: // LIST
        case 0x64: {
          // DICT
          const from = this.popMark(start, depth);
          if (opcode !== 0x64) rows.makeList(from, from, depth);
          else if ((depth - from) % 2 !== 0) throw this.damaged(start, 'a dict has a key without a value');
          else this.makeDict(from, depth, start);
          memos[from] = -1;
          depth = from + 1;
          break;
        }
        case 0x30: // POP
          if (this.markCount > 0 && this.floor() === depth) this.markCount--;
          else if (depth === 0) throw this.damaged(start, 'it drops a value where there is none');
          else depth--;
          break;
        case 0x31: // POP_MARK
          depth = this.popMark(start, depth);
          break;
        case 0x32: // DUP
          if (depth === this.floor()) throw this.damaged(start, 'it repeats a value where there is none');
          tags[depth] = tags[depth - 1]!;
          values[depth] = values[depth - 1]!;
          memos[depth] = memos[depth - 1]!;
          depth++;
          break;
        case 0x2e: // STOP
          if (depth !== 1 || this.markCount !== 0) throw this.damaged(start, `it stops with ${depth} values instead of one`);
          this.isDone = true;
          return end;
        default:
          throw this.refused(opcode, start, depth);
      }
    }
  }

  /** Decodes the signed little-endian integer at `at` and sets `integerTag`. */
  private integer(at: number, length: number): number {
    const { bytes } = this;
    this.integerTag = Tag.Number;
    if (length === 0) return 0;
    if (length <= 4) {
      let value = 0;
      for (let index = 0; index < length; index++) value |= bytes[at + index]! << (8 * index);
      return (value << (32 - 8 * length)) >> (32 - 8 * length);
    }
    if (length <= 8) {
      const low = (bytes[at]! | (bytes[at + 1]! << 8) | (bytes[at + 2]! << 16) | (bytes[at + 3]! << 24)) >>> 0;
      let high = 0;
      for (let index = 4; index < length; index++) high |= bytes[at + index]! << (8 * (index - 4));
      high = (high << (64 - 8 * length)) >> (64 - 8 * length);
      if (high >= -(2 ** 21) && high < 2 ** 21) return high * 2 ** 32 + low;
    }
    let exact = 0n;
    for (let index = length - 1; index >= 0; index--) exact = (exact << 8n) | BigInt(bytes[at + index]!);
    exact = BigInt.asIntN(8 * length, exact);
    if (exact >= BigInt(Number.MIN_SAFE_INTEGER) && exact <= BigInt(Number.MAX_SAFE_INTEGER)) return Number(exact);
    this.integerTag = Tag.BigInt;
    return this.rows.bigints.push(exact) - 1;
  }

  /** Remembers the depth until more bytes come. */
  private pause(at: number, depth: number): number {
    this.depth = depth;
    return at;
  }

  /** Decodes a length of `size` bytes at `at`. */
  private length(at: number, size: number): number {
    if (size === 1) return this.bytes[at]!;
    if (size === 4) return this.view.getUint32(at, true);
    return this.view.getUint32(at, true) + this.view.getUint32(at + 4, true) * 2 ** 32;
  }

  /** Number of values that belong to unfinished containers. Opcodes must not take values below it. */
  private floor(): number {
    return this.markCount > 0 ? this.marks[this.markCount - 1]! : 0;
  }

  private popMark(start: number, depth: number): number {
    if (this.markCount === 0) throw this.damaged(start, 'it ends a container that was never begun');
    const from = this.marks[--this.markCount]!;
    if (from > depth) throw this.damaged(start, 'it ends a container that was never begun');
    return from;
  }

  private growMarks(): void {
    const grown = new Int32Array(this.marks.length * 2);
    grown.set(this.marks);
    this.marks = grown;
  }

  /** Makes a dict of the values from slot `from` up, in slot `from`. They move up by one slot to make room. */
  private makeDict(from: number, depth: number, start: number): void {
    const { stack } = this.rows;
    stack.tags.copyWithin(from + 1, from, depth);
    stack.values.copyWithin(from + 1, from, depth);
    stack.tags[from] = Tag.Dict;
    stack.values[from] = 0;
    this.rows.setItems(from, from + 1, depth + 1, this.base + start);
  }

  private patchMemo(slot: number, reach: number): void {
    const { stack } = this.rows;
    const index = stack.memos[slot]!;
    if (index >= 0) this.memo.put(index, stack.tags[slot]!, stack.values[slot]!, reach);
  }

  private damaged(at: number, why: string): InputError {
    return new InputError(`the pickle is damaged at byte ${this.base + at}: ${why}`);
  }

  private refused(opcode: number, start: number, depth: number): InputError {
    return new InputError(`the pickle ${refusalOf(opcode, this.base + start, this.wanted(opcode, start, depth))}`);
  }

  /** The name that a GLOBAL would import, for the message; empty if it is not a readable name. */
  private wanted(opcode: number, start: number, depth: number): string {
    const { stack, strings } = this.rows;
    let names: string[] = [];
    if (opcode === 0x93 && depth >= 2 && stack.tags[depth - 1] === Tag.String && stack.tags[depth - 2] === Tag.String) {
      names = [strings.text(stack.values[depth - 2]!), strings.text(stack.values[depth - 1]!)];
    } else if (opcode === 0x63 || opcode === 0x69) {
      names = new TextDecoder().decode(this.bytes.subarray(start + 1, start + 200)).split('\n', 2);
    }
    return names.length === 2 && names.every((name) => /^[\w.]{1,80}$/.test(name)) ? ` for ${names.join('.')}` : '';
  }
}
