// Decodes the blocks of a zstd frame (RFC 8878, section 3.1.1.2) into a history that later blocks refer to.
// The history grows with the content, not with the window that the frame declares.
import {
  BackwardBits,
  buildFse,
  Damaged,
  decodeHuffman,
  type FseTable,
  type HuffmanTable,
  readFse,
  readHuffman,
  singleFse,
} from './zstd-entropy.ts';

export const MAX_BLOCK_BYTES: number = 2 ** 17;
const LEAST_HISTORY = 2 ** 18;
/** Shorter matches are copied faster byte by byte. */
const LONG_MATCH = 64;

const BlockType = { Raw: 0, Rle: 1, Compressed: 2 } as const;
const LiteralsType = { Raw: 0, Rle: 1, Compressed: 2, Treeless: 3 } as const;
const TableMode = { Predefined: 0, Rle: 1, Described: 2, Repeated: 3 } as const;

/** A kind of number in a sequence: the base and extra bits of each code, and how its table may look. */
interface Kind {
  readonly bases: Int32Array;
  readonly extra: Uint8Array;
  readonly maxLog: number;
  readonly predefined: FseTable;
}

const LITERAL_LENGTH = kindOf(0, 16, [1, 1, 1, 1, 2, 2, 3, 3, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16], 9, 6, [
  4,
  3,
  ...times(11, 2),
  ...times(3, 1),
  ...times(9, 2),
  3,
  2,
  ...times(5, 1),
  ...times(4, -1),
]);
const MATCH_LENGTH = kindOf(3, 32, [1, 1, 1, 1, 2, 2, 3, 3, 4, 4, 5, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16], 9, 6, [
  1,
  4,
  3,
  ...times(6, 2),
  ...times(37, 1),
  ...times(7, -1),
]);
const MAX_OFFSET_CODE = 31;
const OFFSET_LOG = 8;
const OFFSETS = buildFse([...times(6, 1), ...times(3, 2), ...times(15, 1), ...times(5, -1)], 5);

/** Decodes one frame after the other. Memory is kept between them, since a file may have very many. */
export class BlockDecoder {
  private window = 0;
  private history = new Uint8Array(LEAST_HISTORY);
  private length = 0;
  private readonly literals = new Uint8Array(MAX_BLOCK_BYTES);
  private huffman: HuffmanTable | undefined;
  private lengthTable: FseTable | undefined;
  private offsetTable: FseTable | undefined;
  private matchTable: FseTable | undefined;
  private readonly recent = [1, 4, 8];

  /** Begins a frame. */
  begin(windowBytes: number): void {
    this.window = windowBytes;
    this.length = 0;
    this.huffman = undefined;
    this.lengthTable = undefined;
    this.offsetTable = undefined;
    this.matchTable = undefined;
    this.recent.splice(0, 3, 1, 4, 8);
  }

  /** The content of a block of `type`. It is valid until the next block. `size` is that of an RLE block. */
  decode(type: number, bytes: Uint8Array, size: number): Uint8Array {
    this.makeRoom();
    const start = this.length;
    if (type === BlockType.Raw) {
      this.history.set(bytes, start);
      this.length += bytes.length;
    } else if (type === BlockType.Rle) {
      this.history.fill(bytes[0]!, start, start + size);
      this.length += size;
    } else if (type === BlockType.Compressed) this.decodeCompressed(bytes);
    else throw new Damaged('a block is of no known type');
    return this.history.subarray(start, this.length);
  }

  /** Makes room for one block, and keeps as much as later blocks may refer to. */
  private makeRoom(): void {
    const { history, length, window } = this;
    if (length + MAX_BLOCK_BYTES <= history.length) return;
    const kept = Math.min(length, window);
    if (kept * 1.25 + MAX_BLOCK_BYTES <= history.length) {
      history.copyWithin(0, length - kept, length);
    } else {
      this.history = new Uint8Array(Math.ceil(Math.min(history.length * 2, window * 1.25 + 2 * MAX_BLOCK_BYTES)));
      this.history.set(history.subarray(length - kept, length));
    }
    this.length = kept;
  }

  private decodeCompressed(bytes: Uint8Array): void {
    const { at, count } = this.readLiterals(bytes);
    const start = this.length;
    const used = this.decodeSequences(bytes, at, count);
    const rest = count - used;
    if (this.length - start + rest > MAX_BLOCK_BYTES) throw new Damaged('a block is too long');
    this.history.set(this.literals.subarray(used, count), this.length);
    this.length += rest;
  }

  /** Fills `literals`. Returns their number, and where the sequences begin. */
  private readLiterals(bytes: Uint8Array): { at: number; count: number } {
    const byte = (index: number) => bytes[index] ?? 0;
    const type = byte(0) & 3;
    const format = (byte(0) >> 2) & 3;
    if (type === LiteralsType.Raw || type === LiteralsType.Rle) {
      const at = format === 3 ? 3 : format === 1 ? 2 : 1;
      const word = byte(0) | (byte(1) << 8) | (byte(2) << 16);
      const count = at === 1 ? (word & 255) >> 3 : (at === 2 ? word & 0xffff : word) >> 4;
      const end = at + (type === LiteralsType.Raw ? count : 1);
      checkLiterals(count, end, bytes.length);
      if (type === LiteralsType.Raw) this.literals.set(bytes.subarray(at, end));
      else this.literals.fill(bytes[at]!, 0, count);
      return { at: end, count };
    }
    const bits = [10, 10, 14, 18][format]!;
    const at = format < 2 ? 3 : format + 2;
    const header = byte(0) + byte(1) * 2 ** 8 + byte(2) * 2 ** 16 + byte(3) * 2 ** 24 + byte(4) * 2 ** 32;
    const count = Math.floor(header / 16) % 2 ** bits;
    const end = at + (Math.floor(header / 2 ** (4 + bits)) % 2 ** bits);
    checkLiterals(count, end, bytes.length);
    let from = at;
    if (type === LiteralsType.Compressed) {
      const { table, end: behind } = readHuffman(bytes, at, end);
      this.huffman = table;
      from = behind;
    }
    this.decodeLiterals(bytes, from, end, count, format > 0);
    return { at: end, count };
  }

  private decodeLiterals(bytes: Uint8Array, from: number, end: number, count: number, isFour: boolean): void {
    const { huffman, literals } = this;
    if (!huffman) throw new Damaged('literals have no table');
    if (!isFour) {
      decodeHuffman(huffman, bytes, from, end, literals.subarray(0, count));
      return;
    }
    if (end - from < 6) throw new Damaged('literals are cut off');
    const quarter = (count + 3) >> 2;
    if (quarter * 3 > count) throw new Damaged('literals are too few for four streams');
    let at = from + 6;
    for (let stream = 0; stream < 4; stream++) {
      const next = stream < 3 ? at + (bytes[from + stream * 2]! | (bytes[from + stream * 2 + 1]! << 8)) : end;
      if (next > end) throw new Damaged('literals are cut off');
      decodeHuffman(huffman, bytes, at, next, literals.subarray(stream * quarter, stream < 3 ? (stream + 1) * quarter : count));
      at = next;
    }
  }

  /** Carries out the sequences at `from`. Returns the number of literals that they used. */
  private decodeSequences(bytes: Uint8Array, from: number, literalCount: number): number {
    let at = from;
    const byte = () => {
      if (at >= bytes.length) throw new Damaged('a block is cut off');
      return bytes[at++]!;
    };
    const first = byte();
    const count = first < 128 ? first : first < 255 ? ((first - 128) << 8) + byte() : byte() + (byte() << 8) + 0x7f00;
    if (count === 0) {
      if (at !== bytes.length) throw new Damaged('a block goes on behind its end');
      return 0;
    }
    const modes = byte();
    if ((modes & 3) !== 0) throw new Damaged('a reserved bit is set');
    const table = (mode: number, before: FseTable | undefined, predefined: FseTable, maxLog: number, maxSymbol: number): FseTable => {
      if (mode === TableMode.Predefined) return predefined;
      if (mode === TableMode.Rle) {
        const symbol = byte();
        if (symbol > maxSymbol) throw new Damaged('a code is too large');
        return singleFse(symbol);
      }
      if (mode === TableMode.Described) {
        const read = readFse(bytes, at, bytes.length, maxLog, maxSymbol);
        at = read.end;
        return read.table;
      }
      if (!before) throw new Damaged('a table is repeated that was never there');
      return before;
    };
    this.lengthTable = table(
      modes >> 6,
      this.lengthTable,
      LITERAL_LENGTH.predefined,
      LITERAL_LENGTH.maxLog,
      LITERAL_LENGTH.bases.length - 1,
    );
    this.offsetTable = table((modes >> 4) & 3, this.offsetTable, OFFSETS, OFFSET_LOG, MAX_OFFSET_CODE);
    this.matchTable = table((modes >> 2) & 3, this.matchTable, MATCH_LENGTH.predefined, MATCH_LENGTH.maxLog, MATCH_LENGTH.bases.length - 1);
    return this.carryOut(new BackwardBits(bytes, at, bytes.length), count, literalCount, [
      this.lengthTable,
      this.offsetTable,
      this.matchTable,
    ]);
  }

  private carryOut(stream: BackwardBits, count: number, literalCount: number, tables: readonly [FseTable, FseTable, FseTable]): number {
    const [lengths, offsets, matches] = tables;
    const { literals, history } = this;
    const limit = this.length + MAX_BLOCK_BYTES;
    let lengthState = stream.take(lengths.log);
    let offsetState = stream.take(offsets.log);
    let matchState = stream.take(matches.log);
    let used = 0;
    let to = this.length;
    for (let left = count; left > 0; left--) {
      const offsetCode = offsets.symbols[offsetState]!;
      // At most 24 bits can be taken at a time.
      const lowBits = offsetCode > 16 ? 16 : offsetCode;
      const high = (1 << (offsetCode - lowBits)) | stream.take(offsetCode - lowBits);
      const offsetValue = high * (1 << lowBits) + stream.take(lowBits);
      const matchCode = matches.symbols[matchState]!;
      const matchLength = MATCH_LENGTH.bases[matchCode]! + stream.take(MATCH_LENGTH.extra[matchCode]!);
      const lengthCode = lengths.symbols[lengthState]!;
      const literalLength = LITERAL_LENGTH.bases[lengthCode]! + stream.take(LITERAL_LENGTH.extra[lengthCode]!);
      if (left > 1) {
        lengthState = lengths.bases[lengthState]! + stream.take(lengths.bits[lengthState]!);
        matchState = matches.bases[matchState]! + stream.take(matches.bits[matchState]!);
        offsetState = offsets.bases[offsetState]! + stream.take(offsets.bits[offsetState]!);
      }
      if (stream.left < 0) throw new Damaged('sequences are cut off');
      if (used + literalLength > literalCount) throw new Damaged('a block has too few literals');
      if (to + literalLength + matchLength > limit) throw new Damaged('a block is too long');
      for (let index = 0; index < literalLength; index++) history[to++] = literals[used++]!;
      const offset = this.offsetOf(offsetValue, literalLength);
      if (offset > to || offset > this.window) throw new Damaged('a match lies before the content');
      if (offset >= matchLength && matchLength > LONG_MATCH) history.copyWithin(to, to - offset, to - offset + matchLength);
      else for (let index = 0; index < matchLength; index++) history[to + index] = history[to - offset + index]!;
      to += matchLength;
    }
    if (stream.left !== 0) throw new Damaged('sequences do not end where they should');
    this.length = to;
    return used;
  }

  /** The smallest values stand for offsets used before. */
  private offsetOf(value: number, literalLength: number): number {
    const { recent } = this;
    const index = value > 3 ? 3 : value - 1 + (literalLength === 0 ? 1 : 0);
    const offset = value > 3 ? value - 3 : index === 3 ? recent[0]! - 1 : recent[index]!;
    if (offset === 0) throw new Damaged('a match lies nowhere');
    if (index >= 2) recent[2] = recent[1]!;
    if (index >= 1) recent[1] = recent[0]!;
    recent[0] = offset;
    return offset;
  }
}

function checkLiterals(count: number, end: number, length: number): void {
  if (count > MAX_BLOCK_BYTES || end > length) throw new Damaged('literals are cut off');
}

/** Codes below `plain` stand for themselves plus `first`. The others follow on, each with some extra bits. */
function kindOf(first: number, plain: number, extraBits: number[], maxLog: number, log: number, probabilities: number[]): Kind {
  const extra = Uint8Array.from([...times(plain, 0), ...extraBits]);
  const bases = new Int32Array(extra.length);
  let base = first;
  for (let code = 0; code < bases.length; code++) {
    bases[code] = base;
    base += 2 ** extra[code]!;
  }
  return { bases, extra, maxLog, predefined: buildFse(probabilities, log) };
}

function times(count: number, value: number): number[] {
  return new Array<number>(count).fill(value);
}
