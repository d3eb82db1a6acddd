// Steps of random length: each batch is padded to its longest sample. Epochs are drawn from the lengths of the samples, and the
// longest step of each is replayed behind the steps that were drawn before it.
import type { AllocatorChoice } from '../allocator/registry.ts';
import { InputError } from '../base/errors.ts';
import { randomFrom } from '../plan/offsets/random.ts';
import { whatIf } from '../replay/what-if.ts';
import type { Point } from './monomials.ts';
import type { FitRuns } from './prediction.ts';

export interface DrawOptions {
  readonly gpuBytes: number;
  readonly choices: readonly AllocatorChoice[];
  /** Lengths of the samples. */
  readonly lengths: readonly number[];
  /** The batch to begin at, and how far the next ones are from it. */
  readonly batch: number;
  readonly stride?: number | undefined;
  readonly epochs?: number | undefined;
  readonly seed?: number | undefined;
  readonly onProgress?: ((fraction: number, doing: string) => void) | undefined;
}

export interface DrawRow {
  readonly batch: number;
  /** Steps of an epoch. */
  readonly steps: number;
  /** Epochs that were drawn. */
  readonly epochs: number;
  /** The share of the epochs that fail, by allocator. */
  readonly failing: readonly { readonly allocator: string; readonly share: number }[];
}

const DEFAULT_EPOCHS = 1000;
/** Fewer epochs say too little. */
const LEAST_EPOCHS = 100;
/** Events that are replayed for one batch on one allocator. Large programs are given fewer epochs. */
const MOST_EVENTS = 8e6;
/** Batches that are looked at beyond the first: until all allocators fail in most epochs. */
const MOST_ROWS = 12;
/** Smaller batches, each twice as far from the first: until no allocator fails in any epoch. */
const MOST_SMALLER = 8;
const MOSTLY = 0.5;
/** The parameters, in this order. */
const PARAMETERS = 2;

/** An epoch by its longest step and the steps just before it. */
interface Epoch {
  readonly longest: number;
  /** Lengths of the last steps, the longest step last. */
  readonly steps: readonly number[];
}

export function predictDraws(runs: FitRuns, options: DrawOptions): DrawRow[] {
  const { model, synthesis } = runs;
  const { lengths, choices, gpuBytes, epochs = DEFAULT_EPOCHS, stride = 1 } = options;
  if (model.template.values.length !== PARAMETERS)
    throw new InputError('drawing lengths needs runs of two parameters, batch and length in this order');
  if (synthesis.repeats === 0) throw new InputError('no step of the runs repeats, so steps of random length cannot be made');
  if (lengths.length < 2) throw new InputError('drawing needs the lengths of two samples or more');
  const events = synthesis.at(model.template.values, 'upper').events.count;
  const count = Math.min(epochs, Math.max(LEAST_EPOCHS, Math.floor(MOST_EVENTS / events)));
  const rowOf = (batch: number): DrawRow => {
    options.onProgress?.(rows.length / MOST_ROWS, `drawing epochs of batch ${batch}`);
    const drawn = drawEpochs(lengths, batch, count, synthesis.repeats, options.seed ?? 1);
    const shares = failingShares(runs, choices, batch, drawn, gpuBytes);
    const failing = choices.map((choice, index) => ({ allocator: choice.name, share: shares[index]! }));
    return { batch, steps: Math.max(1, Math.floor(lengths.length / batch)), epochs: count, failing };
  };
  const rows: DrawRow[] = [];
  const first = Math.max(1, options.batch);
  for (let batch = first; rows.length < MOST_ROWS; batch += stride) {
    rows.push(rowOf(batch));
    if (rows.at(-1)!.failing.every(({ share }) => share >= MOSTLY)) break;
  }
  // Steps of different lengths fragment memory, so a batch that fits with the longest alone can fail.
  for (let turn = 0; turn < MOST_SMALLER && rows[0]!.batch > 1 && rows[0]!.failing.some(({ share }) => share > 0); turn++)
    rows.unshift(rowOf(Math.max(1, first - stride * 2 ** turn)));
  return rows;
}

/**
 * An epoch draws its samples with replacement. Its longest length, where that comes first, and the steps just before are drawn from
 * their own distributions: to draw each sample takes minutes if there are millions.
 */
export function drawEpochs(lengths: readonly number[], batch: number, epochs: number, kept: number, seed: number): Epoch[] {
  const random = randomFrom(seed);
  const sorted = Float64Array.from(lengths).sort();
  const steps = Math.max(1, Math.floor(lengths.length / batch));
  /** The longest of some samples, drawn from the shortest `among`. */
  const longestOf = (samples: number, among: number) => sorted[Math.floor(among * random() ** (1 / samples))]!;
  return Array.from({ length: epochs }, (): Epoch => {
    const longest = longestOf(steps * batch, sorted.length);
    const shorter = countUpTo(sorted, longest - 1);
    // How probable it is that a step is shorter, if none is longer.
    const logarithm = batch * Math.log(shorter / countUpTo(sorted, longest));
    const before = shorter === 0 ? 0 : Math.floor(Math.log1p(random() * Math.expm1(steps * logarithm)) / logarithm);
    const recent = Array.from({ length: Math.min(before, kept - 1) }, () => longestOf(batch, shorter));
    return { longest, steps: [...recent, longest] };
  });
}

/** How many of these whole numbers are at most `limit`. */
function countUpTo(sorted: Float64Array, limit: number): number {
  let [low, high] = [0, sorted.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle]! <= limit) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Each epoch is replayed: by fragmentation, one with a shorter step can fail where another with a longer one fits. */
function failingShares(
  { synthesis, replays }: FitRuns,
  choices: readonly AllocatorChoice[],
  batch: number,
  epochs: readonly Epoch[],
  gpuBytes: number,
): number[] {
  const point = (length: number): Point => [batch, length];
  const failed = choices.map(() => 0);
  const fail = (index: number) => failed.splice(index, 1, failed[index]! + 1);
  for (const { steps, longest } of epochs) {
    if (!replays.mayFit(point(longest), 'upper', gpuBytes)) {
      choices.forEach((_, index) => void fail(index));
      continue;
    }
    // The recorded steps come first. They are given the shortest of these lengths, as any step of an epoch can be first.
    const first = Math.min(...steps);
    const padded = Array.from({ length: synthesis.repeats }, (_, index) => steps[index - (synthesis.repeats - steps.length)] ?? first);
    const trace = synthesis.at(point(first), 'upper', padded.map(point));
    choices.forEach((choice, index) => {
      if (whatIf(trace, choice, { capacity: gpuBytes }, { rules: replays.rules, stopAtOom: true }).ooms > 0) fail(index);
    });
  }
  return failed.map((count) => count / epochs.length);
}
