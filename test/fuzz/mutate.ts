// Damages inputs the way that finds defects: an input is cut at its opcodes, tokens, cells or records,
// so that most mutants stay well-formed enough to reach the code behind the first check.
import type { Random } from './random.ts';

/** An input and the offsets at which it may be cut, ascending from 0. */
export interface Subject {
  readonly bytes: Uint8Array;
  readonly cuts: readonly number[];
}

export type Mutation = (subject: Subject, random: Random, corpus: readonly Uint8Array[]) => Uint8Array;

/** How inputs of one kind are cut and damaged. */
export interface Format {
  cuts(bytes: Uint8Array): number[];
  /** Mutations of this format only. They come up as often as the common ones. */
  readonly mutations: readonly Mutation[];
  /** Makes lengths and checksums right again. Readers would stop at them and never see the rest. */
  mend?(bytes: Uint8Array, random: Random): Uint8Array;
}

/** A larger input finds nothing more, and there is time for fewer of them. */
const MOST_BYTES = 1 << 16;

export function mutate(format: Format, corpus: readonly Uint8Array[], random: Random): Uint8Array {
  let bytes = random.pick(corpus);
  let cuts = format.cuts(bytes);
  // One change alone reaches deepest, and many together find what no one thought of.
  const rounds = random.chance(0.5) ? 1 : 1 + random.below(random.chance(0.1) ? 20 : 4);
  for (let round = 0; round < rounds && cuts.length > 1; round++) {
    const mutation = random.pick(random.chance(0.5) ? format.mutations : common(format));
    const mutant = mutation({ bytes, cuts }, random, corpus);
    if (mutant.length < 2 || mutant.length > MOST_BYTES) break;
    bytes = mutant;
    // Slightly wrong cuts make mutants too.
    cuts = random.chance(0.5) ? format.cuts(bytes) : cuts.filter((cut) => cut < mutant.length);
  }
  return format.mend && random.chance(0.9) ? format.mend(bytes, random) : bytes;
}

/** Mutations that suit every format. */
function common(format: Format): readonly Mutation[] {
  return [flipBits, setByte, deletePieces, duplicatePieces, splicePieces(format), truncate, replacePiece, swapPieces];
}

export function flipBits({ bytes }: Subject, random: Random): Uint8Array {
  const flipped = Uint8Array.from(bytes);
  for (let left = 1 + random.below(4); left > 0; left--) flipped[random.below(bytes.length)]! ^= 1 << random.below(8);
  return flipped;
}

function setByte({ bytes }: Subject, random: Random): Uint8Array {
  const changed = Uint8Array.from(bytes);
  changed[random.below(bytes.length)] = random.pick([0, 1, 0x7f, 0x80, 0xff, random.below(256)]);
  return changed;
}

function deletePieces(subject: Subject, random: Random): Uint8Array {
  const [from, to] = pieces(subject, random);
  return joined(subject.bytes.subarray(0, from), subject.bytes.subarray(to));
}

function duplicatePieces(subject: Subject, random: Random): Uint8Array {
  const [from, to] = pieces(subject, random);
  const copy = subject.bytes.subarray(from, to);
  const copies = Array.from({ length: random.chance(0.1) ? 200 : 1 }, () => copy);
  return joined(subject.bytes.subarray(0, to), ...copies, subject.bytes.subarray(to));
}

/** Inserts pieces of another input. */
function splicePieces(format: Format): Mutation {
  return ({ bytes, cuts }, random, corpus) => {
    const donor = random.pick(corpus);
    const [from, to] = pieces({ bytes: donor, cuts: format.cuts(donor) }, random);
    const at = random.pick(cuts);
    return joined(bytes.subarray(0, at), donor.subarray(from, to), bytes.subarray(at));
  };
}

function truncate({ bytes }: Subject, random: Random): Uint8Array {
  const kept = Uint8Array.from(bytes.subarray(0, 1 + random.below(bytes.length)));
  // With a STOP or a bracket at its end, the rest looks whole again.
  if (random.chance(0.5)) kept[kept.length - 1] = random.pick([0x2e, 0x7d, 0x5d]);
  return kept;
}

/** Puts a piece of the same input in place of another: a string for a string, a list for a number. */
function replacePiece({ bytes, cuts }: Subject, random: Random): Uint8Array {
  const target = random.below(cuts.length);
  const source = random.below(cuts.length);
  return replaced(bytes, cuts, target, bytes.subarray(cuts[source]!, cuts[source + 1] ?? bytes.length));
}

function swapPieces({ bytes, cuts }: Subject, random: Random): Uint8Array {
  const [first, second] = [random.below(cuts.length), random.below(cuts.length)].sort((a, b) => a - b) as [number, number];
  if (first === second) return bytes;
  const piece = (index: number) => bytes.subarray(cuts[index]!, cuts[index + 1] ?? bytes.length);
  const between = bytes.subarray(cuts[first + 1]!, cuts[second]!);
  return joined(bytes.subarray(0, cuts[first]!), piece(second), between, piece(first), bytes.subarray(cuts[second + 1] ?? bytes.length));
}

/** The input with other bytes in place of one of its pieces. */
export function replaced(bytes: Uint8Array, cuts: readonly number[], index: number, piece: Uint8Array): Uint8Array {
  return joined(bytes.subarray(0, cuts[index]!), piece, bytes.subarray(cuts[index + 1] ?? bytes.length));
}

/** Begin and end of some neighbouring pieces. */
export function pieces({ cuts, bytes }: Subject, random: Random): [number, number] {
  const from = random.below(cuts.length);
  const to = Math.min(cuts.length, from + 1 + random.below(random.pick([1, 3, 20, 200])));
  return [cuts[from] ?? 0, cuts[to] ?? bytes.length];
}

export function joined(...parts: readonly Uint8Array[]): Uint8Array {
  const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}
