// The entropy coding of zstd (RFC 8878, section 4): bits read from the end, FSE tables and Huffman tables.
// Every table is checked while it is built, so decoding with it cannot leave it.

export class Damaged extends Error {}

export function highestBit(value: number): number {
  return 31 - Math.clz32(value);
}

/** Bits of a stream that is read from its end. Its last byte has a one above the first bit. */
export class BackwardBits {
  private readonly bytes: Uint8Array;
  private readonly from: number;
  /** Number of bits that are left. Negative after reading beyond the beginning, where all bits are zero. */
  left: number;

  constructor(bytes: Uint8Array, from: number, to: number) {
    const last = to > from ? bytes[to - 1]! : 0;
    if (last === 0) throw new Damaged('a bit stream has no end');
    this.bytes = bytes;
    this.from = from;
    this.left = (to - from - 1) * 8 + highestBit(last);
  }

  /** Takes up to 24 bits. */
  take(count: number): number {
    this.left -= count;
    return this.at(this.left, count);
  }

  /** The `count` bits that come next, up to 24, without taking them. */
  peek(count: number): number {
    return this.at(this.left - count, count);
  }

  private at(position: number, count: number): number {
    if (position < 0) return position + count <= 0 ? 0 : this.at(0, position + count) << -position;
    const { bytes } = this;
    const at = this.from + (position >> 3);
    const word = bytes[at]! | (bytes[at + 1]! << 8) | (bytes[at + 2]! << 16) | (bytes[at + 3]! << 24);
    return (word >>> (position & 7)) & ((1 << count) - 1);
  }
}

/** A table of finite state entropy: symbol, bits to read and base of the next state, for each state. */
export interface FseTable {
  readonly log: number;
  readonly symbols: Uint8Array;
  readonly bits: Uint8Array;
  readonly bases: Uint16Array;
}

/** A table with one symbol, which takes no bits. */
export function singleFse(symbol: number): FseTable {
  return { log: 0, symbols: Uint8Array.of(symbol), bits: new Uint8Array(1), bases: new Uint16Array(1) };
}

/** Builds the table of a distribution: a probability for each symbol, in parts of 2^log; -1 is less than one part. */
export function buildFse(probabilities: ArrayLike<number>, log: number): FseTable {
  const size = 1 << log;
  const symbols = new Uint8Array(size);
  const next = new Uint16Array(probabilities.length);
  let high = size;
  for (let symbol = 0; symbol < probabilities.length; symbol++) {
    const probability = probabilities[symbol]!;
    next[symbol] = Math.abs(probability);
    if (probability < 0) symbols[--high] = symbol;
  }
  const step = (size >> 1) + (size >> 3) + 3;
  let position = 0;
  for (let symbol = 0; symbol < probabilities.length; symbol++) {
    for (let count = probabilities[symbol]!; count > 0; count--) {
      symbols[position] = symbol;
      do position = (position + step) & (size - 1);
      while (position >= high);
    }
  }
  if (position !== 0) throw new Damaged('a table does not add up');
  const bits = new Uint8Array(size);
  const bases = new Uint16Array(size);
  for (let state = 0; state < size; state++) {
    const number = next[symbols[state]!]!++;
    bits[state] = log - highestBit(number);
    bases[state] = (number << bits[state]!) - size;
  }
  return { log, symbols, bits, bases };
}

/** Reads the description of an FSE table at `from`, and sets `end` behind it. */
export function readFse(bytes: Uint8Array, from: number, to: number, maxLog: number, maxSymbol: number): { table: FseTable; end: number } {
  let position = from * 8;
  const peek = (count: number): number => {
    const at = position >> 3;
    const byte = (index: number) => (index < to ? bytes[index]! : 0);
    return ((byte(at) | (byte(at + 1) << 8) | (byte(at + 2) << 16)) >>> (position & 7)) & ((1 << count) - 1);
  };
  const log = peek(4) + 5;
  position += 4;
  if (log > maxLog) throw new Damaged('a table is too large');
  const probabilities: number[] = [];
  let remaining = 1 << log;
  while (remaining > 0) {
    if (probabilities.length > maxSymbol || position > to * 8) throw new Damaged('a table has too many symbols');
    const count = highestBit(remaining + 1) + 1;
    const low = (1 << (count - 1)) - 1;
    const threshold = (1 << count) - 1 - (remaining + 1);
    let value = peek(count);
    if ((value & low) < threshold) {
      value &= low;
      position += count - 1;
    } else {
      if (value > low) value -= threshold;
      position += count;
    }
    const probability = value - 1;
    remaining -= Math.abs(probability);
    probabilities.push(probability);
    if (probability === 0) {
      for (let repeat = 3; repeat === 3; ) {
        repeat = peek(2);
        position += 2;
        for (let index = 0; index < repeat; index++) probabilities.push(0);
        if (probabilities.length > maxSymbol + 1 || position > to * 8) throw new Damaged('a table has too many symbols');
      }
    }
  }
  const end = (position + 7) >> 3;
  if (remaining !== 0 || end > to) throw new Damaged('a table does not add up');
  return { table: buildFse(probabilities, log), end };
}

/** A Huffman table: symbol and length of the code, for each value of the next `log` bits. */
export interface HuffmanTable {
  readonly log: number;
  readonly symbols: Uint8Array;
  readonly lengths: Uint8Array;
}

const MAX_HUFFMAN_LOG = 11;
const MAX_WEIGHT_LOG = 6;

/** Reads the description of a Huffman table at `from`. */
export function readHuffman(bytes: Uint8Array, from: number, to: number): { table: HuffmanTable; end: number } {
  if (from >= to) throw new Damaged('a table is missing');
  const header = bytes[from]!;
  const start = from + 1;
  const weights: number[] = [];
  let end: number;
  if (header >= 128) {
    const count = header - 127;
    end = start + ((count + 1) >> 1);
    if (end > to) throw new Damaged('a table is cut off');
    for (let index = 0; index < count; index++) weights.push((bytes[start + (index >> 1)]! >> (index & 1 ? 0 : 4)) & 15);
  } else {
    end = start + header;
    if (end > to) throw new Damaged('a table is cut off');
    readWeights(bytes, start, end, weights);
  }
  return { table: buildHuffman(weights), end };
}

/** Two states take turns. The stream is over when one would read beyond it. */
function readWeights(bytes: Uint8Array, from: number, to: number, weights: number[]): void {
  const { table, end } = readFse(bytes, from, to, MAX_WEIGHT_LOG, 255);
  const stream = new BackwardBits(bytes, end, to);
  const states = [stream.take(table.log), stream.take(table.log)];
  if (stream.left < 0) throw new Damaged('weights are cut off');
  for (let turn = 0; ; turn ^= 1) {
    const state = states[turn]!;
    weights.push(table.symbols[state]!);
    states[turn] = table.bases[state]! + stream.take(table.bits[state]!);
    if (weights.length > 254) throw new Damaged('there are too many weights');
    if (stream.left < 0) {
      weights.push(table.symbols[states[turn ^ 1]!]!);
      return;
    }
  }
}

function buildHuffman(weights: number[]): HuffmanTable {
  let sum = 0;
  for (const weight of weights) {
    if (weight > MAX_HUFFMAN_LOG) throw new Damaged('a weight is too large');
    if (weight > 0) sum += 2 ** (weight - 1);
  }
  if (sum === 0) throw new Damaged('a table is empty');
  const log = highestBit(sum) + 1;
  const rest = 2 ** log - sum;
  if (log > MAX_HUFFMAN_LOG || (rest & (rest - 1)) !== 0) throw new Damaged('weights do not add up');
  weights.push(highestBit(rest) + 1);
  const size = 1 << log;
  const symbols = new Uint8Array(size);
  const lengths = new Uint8Array(size);
  let at = 0;
  // The longest codes come first, and codes of one length in the order of their symbols.
  for (let weight = 1; weight <= log; weight++) {
    for (let symbol = 0; symbol < weights.length; symbol++) {
      if (weights[symbol] !== weight) continue;
      const end = at + (1 << (weight - 1));
      if (end > size) throw new Damaged('weights do not add up');
      symbols.fill(symbol, at, end);
      lengths.fill(log + 1 - weight, at, end);
      at = end;
    }
  }
  if (at !== size) throw new Damaged('weights do not add up');
  return { log, symbols, lengths };
}

/** Decodes exactly the bytes `into` from a stream that must end with them. */
export function decodeHuffman(table: HuffmanTable, bytes: Uint8Array, from: number, to: number, into: Uint8Array): void {
  const { log, symbols, lengths } = table;
  const stream = new BackwardBits(bytes, from, to);
  for (let at = 0; at < into.length; at++) {
    const code = stream.peek(log);
    into[at] = symbols[code]!;
    stream.left -= lengths[code]!;
  }
  if (stream.left !== 0) throw new Damaged('literals do not end where they should');
}
