// Pickles are cut at their opcodes. Their mutations change lengths, integers and opcodes.
import { type Format, flipBits, joined, replaced, type Subject } from '../mutate.ts';
import type { Random } from '../random.ts';

export const PICKLE: Format = { cuts: pickleCuts, mutations: [changeLength, extremeInteger, insertOpcode, repeatOpcode] };

/** Opcodes that a length follows. */
const WITH_LENGTH = [0x8c, 0x58, 0x8d, 0x43, 0x42, 0x8e, 0x96, 0x8a, 0x8b, 0x95];

function changeLength({ bytes, cuts }: Subject, random: Random): Uint8Array {
  const candidates = cuts.filter((cut) => WITH_LENGTH.includes(bytes[cut]!));
  const at = candidates.length > 0 ? random.pick(candidates) : random.pick(cuts);
  const changed = Uint8Array.from(bytes);
  for (let left = random.pick([1, 1, 4, 8]); left > 0; left--) {
    if (at + left < changed.length) changed[at + left] = random.pick([0, 1, 0xff, 0x7f, random.below(256)]);
  }
  return changed;
}

/** Numbers at limits, and values of other types in place of numbers. */
const EXTREMES: readonly Uint8Array[] = [
  [0x4b, 0],
  [0x4a, 0xff, 0xff, 0xff, 0x7f],
  [0x4a, 0, 0, 0, 0x80],
  [0x4a, 0xff, 0xff, 0xff, 0xff],
  [0x8a, 0],
  [0x8a, 1, 0xff],
  [0x8a, 5, 0, 0, 0, 0x80, 0],
  [0x8a, 5, 0, 0, 0, 0, 1],
  [0x8a, 7, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x1f],
  [0x8a, 7, 0, 0, 0, 0, 0, 0, 0x20],
  [0x8a, 8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f],
  [0x8a, 8, 0, 0, 0, 0, 0, 0, 0, 0x80],
  [0x8a, 9, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0],
  [0x8a, 9, 0, 0, 0, 0, 0, 0, 0, 0, 1],
  [0x8a, 12, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12],
  [0x47, 0x7f, 0xf0, 0, 0, 0, 0, 0, 0],
  [0x47, 0x7f, 0xf8, 0, 0, 0, 0, 0, 0],
  [0x47, 0x7f, 0xe1, 0xcc, 0xf3, 0x85, 0xeb, 0xc8, 0xa0],
  [0x47, 0x3f, 0xe0, 0, 0, 0, 0, 0, 0],
  [0x4e],
  [0x88],
  [0x5d],
  [0x7d],
  [0x29],
].map((bytes) => Uint8Array.from(bytes));

function extremeInteger(subject: Subject, random: Random): Uint8Array {
  const { bytes, cuts } = subject;
  const integers = cuts.flatMap((cut, index) => (isInteger(bytes[cut]!) ? [index] : []));
  if (integers.length === 0) return flipBits(subject, random);
  return replaced(bytes, cuts, random.pick(integers), random.pick(EXTREMES));
}

const OPCODES = [...'(0.1NKMJG}]t)lduaesqrhjXBC2IcRiobpgPQTUVLFS'].map((character) => character.charCodeAt(0));

function opcode(random: Random): Uint8Array {
  const code = random.chance(0.7) ? random.pick(OPCODES) : 0x80 + random.below(0x19);
  const operand = Array.from({ length: random.pick([0, 0, 1, 2, 4]) }, () => random.below(256));
  return Uint8Array.of(code, ...operand);
}

function insertOpcode({ bytes, cuts }: Subject, random: Random): Uint8Array {
  const at = random.pick(cuts);
  return joined(bytes.subarray(0, at), opcode(random), bytes.subarray(at));
}

/** Thousands of one opcode: stacks, marks and nesting without end. */
function repeatOpcode({ bytes, cuts }: Subject, random: Random): Uint8Array {
  if (random.chance(0.9)) return insertOpcode({ bytes, cuts }, random);
  const at = random.pick(cuts);
  const piece = random.chance(0.5) ? Uint8Array.of(random.pick([0x28, 0x5d, 0x7d, 0x29, 0x32, 0x85, 0x94, 0x4e])) : opcode(random);
  const copies = Array.from({ length: random.pick([50, 1000, 10_000]) }, () => piece);
  return joined(bytes.subarray(0, at), ...copies, bytes.subarray(at));
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

export function pickleCuts(bytes: Uint8Array): number[] {
  const cuts: number[] = [];
  for (let at = 0; at < bytes.length; ) {
    cuts.push(at);
    const code = bytes[at++]!;
    if (code === 0x8c || code === 0x8a || code === 0x43) at += 1 + (bytes[at] ?? 0);
    else if ((code === 0x58 || code === 0x42) && at + 4 <= bytes.length) at += 4 + (bytes[at]! | (bytes[at + 1]! << 8));
    else at += OPERANDS.get(code) ?? 0;
  }
  return cuts;
}

function isInteger(code: number): boolean {
  return code === 0x4b || code === 0x4d || code === 0x4a || code === 0x8a;
}
