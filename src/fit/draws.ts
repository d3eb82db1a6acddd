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
  /** The first batch to look at, and how far the next ones are from it. */
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
  /** The share of the epochs that fail, by allocator. */
  readonly failing: readonly { readonly allocator: string; readonly share: number }[];
}

const DEFAULT_EPOCHS = 1000;
/** Batches that are looked at beyond the first: until all allocators fail in most epochs. */
const MOST_ROWS = 12;
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
  const rows: DrawRow[] = [];
  for (let batch = Math.max(1, options.batch); rows.length < MOST_ROWS; batch += stride) {
    options.onProgress?.(rows.length / MOST_ROWS, `drawing epochs of batch ${batch}`);
    const drawn = drawEpochs(lengths, batch, epochs, synthesis.repeats, options.seed ?? 1);
    const failing = choices.map((choice) => ({ allocator: choice.name, share: failingShare(runs, choice, batch, drawn, gpuBytes) }));
    rows.push({ batch, steps: Math.max(1, Math.floor(lengths.length / batch)), failing });
    if (failing.every(({ share }) => share >= MOSTLY)) break;
  }
  return rows;
}

/** Epochs in the order of their longest steps. */
export function drawEpochs(lengths: readonly number[], batch: number, epochs: number, kept: number, seed: number): Epoch[] {
  const random = randomFrom(seed);
  const steps = Math.max(1, Math.floor(lengths.length / batch));
  const drawn = Array.from({ length: epochs }, (): Epoch => {
    const recent: number[] = [];
    let best: Epoch = { longest: 0, steps: [] };
    for (let step = 0; step < steps; step++) {
      let longest = 0;
      for (let sample = 0; sample < batch; sample++) longest = Math.max(longest, lengths[Math.floor(random() * lengths.length)]!);
      recent.push(longest);
      if (recent.length > kept) recent.shift();
      if (longest > best.longest) best = { longest, steps: [...recent] };
    }
    return best;
  });
  return drawn.sort((a, b) => a.longest - b.longest);
}

/** Longer steps need more memory, so the first epoch that fails is found by bisection. */
function failingShare(runs: FitRuns, choice: AllocatorChoice, batch: number, epochs: readonly Epoch[], gpuBytes: number): number {
  let low = 0;
  let high = epochs.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (fits(runs, choice, batch, epochs[middle]!, gpuBytes)) low = middle + 1;
    else high = middle;
  }
  return 1 - low / epochs.length;
}

function fits(
  { synthesis, replays }: FitRuns,
  choice: AllocatorChoice,
  batch: number,
  { steps, longest }: Epoch,
  gpuBytes: number,
): boolean {
  const point = (length: number): Point => [batch, length];
  // The recorded steps come first. They are given the shortest of these lengths, as any step of an epoch can be first.
  const first = Math.min(...steps);
  const padded = Array.from({ length: synthesis.repeats }, (_, index) => steps[index - (synthesis.repeats - steps.length)] ?? first);
  if (replays.peakLive(point(longest), 'upper') > gpuBytes) return false;
  const trace = synthesis.at(point(first), 'upper', padded.map(point));
  return whatIf(trace, choice, { capacity: gpuBytes }, { rules: replays.rules, stopAtOom: true }).ooms === 0;
}
