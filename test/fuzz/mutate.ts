// Damages recordings the way that finds defects: a pickle is cut at its opcodes and a JSON text at its tokens,
// so that most mutants stay well-formed enough to reach the code behind the first check.

/** A small seeded generator (mulberry32): the same seed gives the same mutants everywhere. */
export class Random {
  private state: number;
  constructor(seed: number) {
    this.state = seed | 0;
  }
  next(): number {
    this.state = (this.state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(this.state ^ (this.state >>> 15), 1 | this.state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  }
  below(limit: number): number {
    return Math.floor(this.next() * limit);
  }
  pick<Item>(items: readonly Item[]): Item {
    return items[this.below(items.length)]!;
  }
}

/** A recording and the offsets at which it may be cut. */
export interface Seed {
  readonly name: string;
  readonly bytes: Uint8Array;
  readonly cuts: readonly number[];
}

export function seedOf(name: string, bytes: Uint8Array): Seed {
  const cuts = bytes[0] === 0x80 ? pickleCuts(bytes) : bytes[0] === 0x7b ? jsonCuts(bytes) : wordCuts(bytes);
  return { name, bytes, cuts };
}

/** The pickle without its frames: they would give every mutant away that is shorter than it was. */
export function withoutFrames(bytes: Uint8Array): Uint8Array {
  const cuts = pickleCuts(bytes);
  return joined(
    ...cuts.map((cut, index) => (bytes[cut] === 0x95 ? new Uint8Array(0) : bytes.subarray(cut, cuts[index + 1] ?? bytes.length))),
  );
}

export function mutate(seeds: readonly Seed[], random: Random): Uint8Array {
  let seed = random.pick(seeds);
  const rounds = 1 + random.below(random.next() < 0.2 ? 20 : 4);
  for (let round = 0; round < rounds; round++) {
    const bytes = random.pick(MUTATIONS)(seed, random, seeds);
    if (bytes.length < 2 || bytes.length > 2 ** 21) break;
    // Cuts are found again only now and then: slightly wrong ones make mutants too.
    seed = random.next() < 0.5 ? seedOf(seed.name, bytes) : { ...seed, bytes, cuts: seed.cuts.filter((cut) => cut <= bytes.length) };
    if (seed.cuts.length < 2) break;
  }
  return seed.bytes;
}

type Mutation = (seed: Seed, random: Random, seeds: readonly Seed[]) => Uint8Array;

const MUTATIONS: readonly Mutation[] = [
  flipBits,
  setBytes,
  deletePieces,
  duplicatePieces,
  splicePieces,
  truncate,
  changeLength,
  extremeInteger,
  replacePiece,
  insertOpcode,
];

function flipBits({ bytes }: Seed, random: Random): Uint8Array {
  const flipped = Uint8Array.from(bytes);
  for (let left = 1 + random.below(4); left > 0; left--) flipped[random.below(bytes.length)]! ^= 1 << random.below(8);
  return flipped;
}

function setBytes({ bytes }: Seed, random: Random): Uint8Array {
  const changed = Uint8Array.from(bytes);
  changed[random.below(bytes.length)] = random.pick([0, 1, 0x7f, 0x80, 0xff, random.below(256)]);
  return changed;
}

function deletePieces(seed: Seed, random: Random): Uint8Array {
  const [from, to] = pieces(seed, random);
  return joined(seed.bytes.subarray(0, from), seed.bytes.subarray(to));
}

function duplicatePieces(seed: Seed, random: Random): Uint8Array {
  const [from, to] = pieces(seed, random);
  const copy = seed.bytes.subarray(from, to);
  const copies = Array.from({ length: random.next() < 0.1 ? 200 : 1 }, () => copy);
  return joined(seed.bytes.subarray(0, to), ...copies, seed.bytes.subarray(to));
}

function splicePieces(seed: Seed, random: Random, seeds: readonly Seed[]): Uint8Array {
  const donor = random.pick(seeds);
  const [from, to] = pieces(donor, random);
  const at = random.pick(seed.cuts);
  return joined(seed.bytes.subarray(0, at), donor.bytes.subarray(from, to), seed.bytes.subarray(at));
}

function truncate({ bytes }: Seed, random: Random): Uint8Array {
  const kept = Uint8Array.from(bytes.subarray(0, random.below(bytes.length)));
  // With a STOP or brackets put behind it, the rest looks whole again.
  if (random.next() < 0.5) kept[kept.length - 1] = random.pick([0x2e, 0x7d, 0x5d]);
  return kept;
}

/** Opcodes that a length follows. */
const WITH_LENGTH = [0x8c, 0x58, 0x8d, 0x43, 0x42, 0x8e, 0x96, 0x8a, 0x8b, 0x95];

function changeLength(seed: Seed, random: Random): Uint8Array {
  const candidates = seed.cuts.filter((cut) => WITH_LENGTH.includes(seed.bytes[cut]!));
  const at = candidates.length > 0 ? random.pick(candidates) : random.pick(seed.cuts);
  const changed = Uint8Array.from(seed.bytes);
  for (let left = random.pick([1, 1, 4, 8]); left > 0; left--) {
    if (at + left < changed.length) changed[at + left] = random.pick([0, 1, 0xff, 0x7f, random.below(256)]);
  }
  return changed;
}

const EXTREMES: readonly (readonly number[])[] = [
  [0x4b, 0],
  [0x4a, 0xff, 0xff, 0xff, 0x7f],
  [0x4a, 0, 0, 0, 0x80],
  [0x8a, 0],
  [0x8a, 1, 0xff],
  [0x8a, 7, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x1f],
  [0x8a, 7, 0, 0, 0, 0, 0, 0, 0x20],
  [0x8a, 8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f],
  [0x8a, 8, 0, 0, 0, 0, 0, 0, 0, 0x80],
  [0x8a, 9, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0],
  [0x8a, 9, 0, 0, 0, 0, 0, 0, 0, 0, 1],
  [0x8a, 12, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12],
  [0x47, 0x7f, 0xf0, 0, 0, 0, 0, 0, 0],
  [0x47, 0x7f, 0xf8, 0, 0, 0, 0, 0, 0],
  [0x47, 0x3f, 0xe0, 0, 0, 0, 0, 0, 0],
  [0x4e],
  [0x88],
  [0x5d],
  [0x7d],
];
const EXTREME_TEXTS = [
  '-1',
  '0',
  '1e999',
  '-1e999',
  '9007199254740993',
  '18446744073709551615',
  '18446744073709551616',
  '1.5',
  'null',
  '[]',
  '{}',
  'true',
  '""',
];

function extremeInteger(seed: Seed, random: Random): Uint8Array {
  const { bytes, cuts } = seed;
  const isPickle = bytes[0] === 0x80;
  const numbers = cuts.flatMap((cut, index) => ((isPickle ? isPickleInteger(bytes[cut]!) : isDigit(bytes[cut]!)) ? [index] : []));
  if (numbers.length === 0) return flipBits(seed, random);
  const index = random.pick(numbers);
  const replacement = isPickle ? Uint8Array.from(random.pick(EXTREMES)) : new TextEncoder().encode(random.pick(EXTREME_TEXTS));
  return joined(bytes.subarray(0, cuts[index]!), replacement, bytes.subarray(cuts[index + 1] ?? bytes.length));
}

/** Puts another piece of the same recording in place of one: a string for another, a list for a number. */
function replacePiece(seed: Seed, random: Random): Uint8Array {
  const { bytes, cuts } = seed;
  const target = random.below(cuts.length - 1);
  const source = random.below(cuts.length - 1);
  return joined(bytes.subarray(0, cuts[target]!), bytes.subarray(cuts[source]!, cuts[source + 1]!), bytes.subarray(cuts[target + 1]!));
}

const OPCODES = [...'(0.1NKMJG}]t)lduaesqrhjXBC2IcRiob'].map((character) => character.charCodeAt(0));

function insertOpcode(seed: Seed, random: Random): Uint8Array {
  const at = random.pick(seed.cuts);
  const opcode = random.next() < 0.7 ? random.pick(OPCODES) : 0x80 + random.below(0x19);
  const operand = Uint8Array.from({ length: random.pick([0, 0, 1, 2, 4]) }, () => random.below(256));
  return joined(seed.bytes.subarray(0, at), Uint8Array.of(opcode), operand, seed.bytes.subarray(at));
}

function pieces({ cuts, bytes }: Seed, random: Random): [number, number] {
  const from = random.below(cuts.length);
  const to = Math.min(cuts.length, from + 1 + random.below(random.pick([1, 3, 20, 200])));
  return [cuts[from]!, cuts[to] ?? bytes.length];
}

function joined(...parts: readonly Uint8Array[]): Uint8Array {
  const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

/** Bytes behind each opcode, for those that have any. */
const OPERANDS: ReadonlyMap<number, number> = new Map([
  [0x80, 1],
  [0x4b, 1],
  [0x4d, 2],
  [0x4a, 4],
  [0x47, 8],
  [0x68, 1],
  [0x6a, 4],
  [0x71, 1],
  [0x72, 4],
  [0x95, 8],
]);

function pickleCuts(bytes: Uint8Array): number[] {
  const cuts: number[] = [];
  for (let at = 0; at < bytes.length; ) {
    cuts.push(at);
    const opcode = bytes[at++]!;
    if (opcode === 0x8c || opcode === 0x8a || opcode === 0x43) at += 1 + (bytes[at] ?? 0);
    else if (opcode === 0x58 && at + 4 <= bytes.length) at += 4 + (bytes[at]! | (bytes[at + 1]! << 8));
    else at += OPERANDS.get(opcode) ?? 0;
  }
  return cuts;
}

function jsonCuts(bytes: Uint8Array): number[] {
  const cuts: number[] = [];
  for (let at = 0; at < bytes.length; ) {
    cuts.push(at);
    const byte = bytes[at++]!;
    if (byte === 0x22) {
      while (at < bytes.length && bytes[at] !== 0x22) at += bytes[at] === 0x5c ? 2 : 1;
      at++;
    } else if (isDigit(byte)) while (at < bytes.length && isDigit(bytes[at]!)) at++;
  }
  return cuts;
}

function wordCuts(bytes: Uint8Array): number[] {
  return Array.from({ length: Math.ceil(bytes.length / 4) }, (_, word) => word * 4);
}

function isPickleInteger(opcode: number): boolean {
  return opcode === 0x4b || opcode === 0x4d || opcode === 0x4a || opcode === 0x8a;
}

function isDigit(byte: number): boolean {
  return (byte >= 0x30 && byte <= 0x39) || byte === 0x2d;
}
