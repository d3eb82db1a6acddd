// The readers under test. A target makes input number N of a seed, and reads it as the command does.
import { InputError, UsageError } from '../../src/base/errors.ts';
import { corpusOf } from './corpus.ts';
import { failRows, NoFailure } from './failure-reader.ts';
import { failureInput } from './formats/failure.ts';
import { GZIP, packGzip, packZstd, ZSTD } from './formats/packed.ts';
import { PICKLE } from './formats/pickle.ts';
import { RING } from './formats/ring.ts';
import { CELLS, JSON_TEXT } from './formats/text.ts';
import { WEIR } from './formats/weir.ts';
import { type Format, mutate } from './mutate.ts';
import { PLANTED } from './planted.ts';
import { type Random, randomOf } from './random.ts';
import {
  analyzeRecording,
  planBuffers,
  planProfileText,
  planRecording,
  planSwapsOf,
  readNumbers,
  readPlanFile,
  readPlanInput,
  readProfile,
  readQuestion,
  readRecordingOnly,
} from './readers.ts';
import { RingDamage, readRing } from './ring-reader.ts';
import { readInPieces, readPacked } from './unpacking.ts';

export interface Target {
  readonly name: string;
  /** What is read, in words. */
  readonly reads: string;
  /** Share of all executions, relative to the others. */
  readonly weight: number;
  /** The input of this number. The first numbers are the corpus itself. */
  input(seed: number, number: number): Uint8Array;
  /** Throws a refusal for an input that cannot be used. Anything else that it throws is a defect. */
  read(bytes: Uint8Array): void | Promise<void>;
  isRefusal(error: unknown): boolean;
}

type Make = (random: Random) => Uint8Array;

function target(
  name: string,
  folder: string,
  make: Format | Make,
  read: Target['read'],
  reads: string,
  options: { weight?: number; isRefusal?: Target['isRefusal'] } = {},
): Target {
  return {
    name,
    reads,
    weight: options.weight ?? 1,
    input: (seed, number) => {
      const files = corpusOf(folder);
      if (number < files.length) return files[number]!.bytes;
      const random = randomOf(name, seed, number);
      return typeof make === 'function' ? make(random) : mutate(make, bytesOf(folder), random);
    },
    read,
    isRefusal: options.isRefusal ?? ((error) => error instanceof InputError),
  };
}

const bytesCache = new Map<string, readonly Uint8Array[]>();

function bytesOf(folder: string): readonly Uint8Array[] {
  const known = bytesCache.get(folder) ?? corpusOf(folder).map(({ bytes }) => bytes);
  bytesCache.set(folder, known);
  return known;
}

const RECORDINGS: readonly (readonly [string, Format])[] = [
  ['pickle', PICKLE],
  ['json', JSON_TEXT],
  ['weir', WEIR],
];

/** Packs a damaged or sound recording, or damages a packed one. */
function packed(folder: string, format: Format, pack: (bytes: Uint8Array, random: Random) => Uint8Array): Make {
  return (random) => {
    const corpus = bytesOf(folder);
    if (random.chance(0.5)) return mutate(format, corpus, random);
    const [inner, innerFormat] = random.pick(RECORDINGS);
    const plain = random.chance(0.6) ? mutate(innerFormat, bytesOf(inner), random) : random.pick(bytesOf(inner));
    const made = pack(plain, random);
    return random.chance(0.3) ? mutate(format, [made, ...corpus.slice(0, 1)], random) : made;
  };
}

export const TARGETS: readonly Target[] = [
  target('pickle', 'pickle', PICKLE, readRecordingOnly, 'snapshots as pickle', { weight: 3 }),
  target('json', 'json', JSON_TEXT, readRecordingOnly, 'snapshots as JSON', { weight: 3 }),
  target('weir', 'weir', WEIR, readRecordingOnly, '.weir recordings', { weight: 3 }),
  target('gzip', 'gzip', packed('gzip', GZIP, packGzip), readPacked, 'recordings packed with gzip'),
  target('zstd', 'zstd', packed('zstd', ZSTD, packZstd), readPacked, 'recordings packed with zstd'),
  target('pickle-pieces', 'pickle', PICKLE, readInPieces, 'snapshots as pickle, in pieces and at once'),
  target('json-pieces', 'json', JSON_TEXT, readInPieces, 'snapshots as JSON, in pieces and at once'),
  target('weir-pieces', 'weir', WEIR, readInPieces, '.weir recordings, in pieces and at once'),
  target('plan', 'plan', JSON_TEXT, readPlanFile, 'plan files, checked as weir verify does', { weight: 2 }),
  target('csv', 'csv', CELLS, readPlanInput, 'buffers as CSV', { weight: 2 }),
  target('malloc', 'malloc', CELLS, readPlanInput, 'text traces of mallocs', { weight: 1 }),
  target('autoswap', 'autoswap', CELLS, readPlanInput, 'traces of the AutoSwap study', { weight: 1 }),
  target('accesses', 'accesses', JSON_TEXT, readPlanInput, 'recorded accesses as JSON', { weight: 2 }),
  target('profile', 'profile', JSON_TEXT, readProfile, 'profiles and reports of swapping', {
    weight: 1,
    isRefusal: (error) => error instanceof InputError || error instanceof SyntaxError,
  }),
  target('ring', 'ring', RING, readRing, 'rings of running processes', {
    weight: 0.5,
    isRefusal: (error) => error instanceof RingDamage,
  }),
  target(
    'failures',
    'failures',
    (random) => failureInput(bytesOf('failures'), random),
    failRows,
    'rows of processes that run out of memory',
    {
      weight: 0.2,
      isRefusal: (error) => error instanceof NoFailure,
    },
  ),
  target('question', 'question', JSON_TEXT, readQuestion, 'questions of the page', {
    weight: 0.5,
    isRefusal: (error) => error instanceof UsageError || error instanceof SyntaxError,
  }),
  target('numbers', 'numbers', CELLS, readNumbers, 'output of a job, as weir run --check reads it', { weight: 0.5 }),
  target('steps', 'weir', WEIR, planRecording, 'steps and accesses of .weir recordings', { weight: 1 }),
  target('offsets', 'csv', CELLS, planBuffers, 'buffers as CSV, with a plan made and checked', { weight: 0.2 }),
  target('swaps', 'accesses', JSON_TEXT, planSwapsOf, 'recorded accesses, with a swap plan made and checked', { weight: 0.1 }),
  target('swapping', 'profile', JSON_TEXT, planProfileText, 'profiles, with a swap plan made and checked', {
    weight: 0.1,
    isRefusal: (error) => error instanceof InputError || error instanceof SyntaxError,
  }),
  target('analysis', 'weir', WEIR, analyzeRecording, '.weir recordings, analyzed', { weight: 0.1 }),
];

/** A target by its name, the planted defects included. */
export function targetOf(name: string): Target {
  const found = [...TARGETS, ...PLANTED].find((candidate) => candidate.name === name);
  if (!found) throw new Error(`there is no target '${name}'; there are ${TARGETS.map((known) => known.name).join(', ')}`);
  return found;
}
