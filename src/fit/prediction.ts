// The answer to "will it fit?": for each allocator the largest value, with an interval where the runs do not settle it.
import type { AllocatorChoice } from '../allocator/registry.ts';
import { UsageError } from '../base/errors.ts';
import { reconstruct } from '../replay/reconstruct.ts';
import type { ReplayResult } from '../replay/replay.ts';
import { type Growth, growthAt } from './growth.ts';
import type { FitModel, Learned } from './model.ts';
import type { Point } from './monomials.ts';
import { FitReplays, fittingFrom, fittingUpTo, type Largest, type Line, largestValue, onLine } from './search.ts';
import { isSettledAt } from './size-function.ts';
import { type SwappedState, swappableIn, swappedState } from './swapped-state.ts';
import { type Bound, DRAWS, type Synthesis, synthesise } from './synthesis.ts';

/** Sizes between the ends of the intervals that are replayed too: an allocator can need most of all for one of them. */
const BETWEEN: readonly Bound[] = [0.25, 0.5, 0.75];

/** Peak reserved at one point. */
export interface PredictedPeak {
  readonly point: Point;
  /** From the smallest to the largest size of blocks whose function is not settled. */
  readonly lower: number;
  readonly upper: number;
  readonly liveLower: number;
  readonly liveUpper: number;
}

export interface SwapFigures {
  /** Optimizer state that leaves the GPU if memory runs short. */
  readonly bytes: number;
  /** Fits with that state away, for as long as swapping is not given up for what it costs. */
  readonly largest: Largest;
}

export interface FitRow {
  readonly allocator: string;
  readonly conf: string | undefined;
  /** Fits even if unsettled blocks are as large as they may be. */
  readonly sure: Largest;
  /** Fits if they are as small as they may be; the same as `sure` if all is settled. */
  readonly possible: Largest;
  /** At `sure` on the GPU itself, where an allocator gives cached memory back before it fails; undefined: no value fits. */
  readonly onGpu: { readonly peakReserved: number; readonly retries: number } | undefined;
  /** Without a limit, at `sure` and at the next value; undefined: no value fits, or swapping depends on the limit. */
  readonly peak: PredictedPeak | undefined;
  readonly nextPeak: PredictedPeak | undefined;
  /** Peaks at the points that were asked for. */
  readonly asked: readonly PredictedPeak[];
  /** Only with swapping: `sure` is that of Weir then, and `onGpu` is that of `swap.largest`. */
  readonly swap?: SwapFigures | undefined;
}

/** How the row of Weir with swapping is called. */
export const SWAP_AUTO = 'weir --swap auto';

export interface FitPrediction {
  readonly gpuBytes: number;
  readonly names: readonly string[];
  readonly line: Line;
  readonly points: readonly Point[];
  readonly learned: Learned;
  /** Steps that were added behind the recorded ones; 0: no step was found that repeats. */
  readonly repeats: number;
  readonly rows: readonly FitRow[];
  /** Whether the runs tell what is optimizer state. Else there is no row for swapping. */
  readonly tellsState: boolean;
  /** At the largest of the sure values without swapping. */
  readonly growthPoint: Point;
  readonly growth: Growth;
}

export interface PredictOptions {
  readonly gpuBytes: number;
  readonly choices: readonly AllocatorChoice[];
  /** Names of the parameters, for words. */
  readonly names?: readonly string[] | undefined;
  /** The parameter to search for, and the values of the others; the first and the template's if absent. */
  readonly line?: Line | undefined;
  /** Points to predict the peak of. */
  readonly asked?: readonly Point[] | undefined;
  readonly repeats?: number | undefined;
  readonly onProgress?: ((fraction: number, doing: string) => void) | undefined;
}

/** A model with all that is needed to replay runs of other values. */
export interface FitRuns {
  readonly model: FitModel;
  readonly synthesis: Synthesis;
  readonly replays: FitReplays;
  /** The same with optimizer state that is swapped out if memory runs short; undefined: the runs do not tell which memory that is. */
  readonly swapped?: { readonly state: SwappedState; readonly replays: FitReplays } | undefined;
}

export function replaysOf(model: FitModel, repeats?: number): FitRuns {
  const { emptyCacheBefore, rules } = reconstruct(model.template.trace);
  const synthesis = synthesise(model, { repeats, emptyCacheBefore });
  const state = swappedState(model.template.trace);
  // Which events and blocks there are does not depend on the values.
  const swappable = state && swappableIn(synthesis.at(model.template.values, 'upper'), synthesis, state);
  const swapped = state && { state, replays: new FitReplays(synthesis, rules, swappable) };
  return { model, synthesis, replays: new FitReplays(synthesis, rules), swapped };
}

export function predictFit(model: FitModel, options: PredictOptions): FitPrediction {
  return predictOn(replaysOf(model, options.repeats), options);
}

export function predictOn(runs: FitRuns, options: PredictOptions): FitPrediction {
  const { gpuBytes, choices, onProgress } = options;
  const { model, synthesis } = runs;
  if (choices.length === 0) throw new UsageError('name at least one allocator');
  const line = options.line ?? { point: model.template.values, parameter: 0, multiple: 1 };
  const rows = choices.map((choice, index): FitRow => {
    onProgress?.(index / choices.length, `searching the largest value on ${choice.name}`);
    return rowOn(runs, choice, line, gpuBytes, options.asked);
  });
  const weir = choices.find(({ name }) => name === 'weir');
  const plain = rows.find(({ allocator }) => allocator === 'weir');
  if (weir && plain) rows.push(...swapRow(runs, weir, plain, line, gpuBytes));
  onProgress?.(1, 'done');
  const best = Math.max(line.multiple, ...rows.flatMap(({ sure, swap }) => (swap ? [] : [sure.value])));
  const growthPoint = onLine(line, best);
  return {
    gpuBytes,
    names: options.names ?? defaultNames(model),
    line,
    points: model.points,
    learned: model.learned,
    repeats: synthesis.repeats,
    rows,
    tellsState: runs.swapped !== undefined,
    growthPoint,
    growth: growthAt(model, synthesis, growthPoint, onLine(line, best + line.multiple)),
  };
}

export interface FrontierRow {
  /** The value of the other parameter. */
  readonly at: number;
  readonly largest: readonly Pick<FitRow, 'allocator' | 'sure' | 'possible'>[];
}

/** Of two parameters: the largest value of the one of the line, for some values of the other. */
export function predictFrontier(
  runs: FitRuns,
  options: PredictOptions & { readonly line: Line; readonly others: readonly number[] },
): FrontierRow[] {
  const { line, others, choices, gpuBytes, onProgress } = options;
  const other = line.parameter === 0 ? 1 : 0;
  return others.map((at, index) => {
    onProgress?.(index / others.length, `searching the largest value at ${at}`);
    const along = { ...line, point: line.point.map((value, parameter) => (parameter === other ? at : value)) };
    const largest = choices.map((choice) => ({ allocator: choice.name, ...largestOn(runs, choice, along, gpuBytes) }));
    const weir = choices.find(({ name }) => name === 'weir');
    const swapped = weir && withSwapping(runs);
    const plain = largest.find(({ allocator }) => allocator === 'weir');
    if (swapped && plain) largest.push({ allocator: SWAP_AUTO, ...upTo(largestOn(swapped, weir, along, gpuBytes), plain) });
    return { at, largest };
  });
}

function rowOn(runs: FitRuns, choice: AllocatorChoice, line: Line, gpuBytes: number, asked: readonly Point[] = []): FitRow {
  const { sure, possible } = largestOn(runs, choice, line, gpuBytes);
  return {
    allocator: choice.name,
    conf: choice.conf,
    sure,
    possible,
    onGpu: sure.value > 0 ? onGpu(runs.replays.on(choice, onLine(line, sure.value), 'upper', { capacity: gpuBytes })) : undefined,
    peak: sure.value > 0 ? predictPeak(runs, choice, onLine(line, sure.value)) : undefined,
    nextPeak: predictPeak(runs, choice, onLine(line, sure.value + line.multiple)),
    asked: asked.map((point) => predictPeak(runs, choice, point)),
  };
}

/** Peaks without a limit would be those of Weir: state is swapped out only if memory runs short. */
function swapRow(runs: FitRuns, weir: AllocatorChoice, plain: FitRow, line: Line, gpuBytes: number): FitRow[] {
  const swapped = withSwapping(runs);
  if (!swapped || !runs.swapped) return [];
  const { bytes } = runs.swapped.state;
  const row = { ...plain, allocator: SWAP_AUTO, asked: [] };
  if (bytes === 0) return [{ ...row, swap: { bytes, largest: plain.sure } }];
  const found = largestOn(swapped, weir, line, gpuBytes);
  const { value } = found.sure;
  return [
    {
      ...row,
      ...upTo(found, plain),
      onGpu: value > 0 ? onGpu(swapped.replays.on(weir, onLine(line, value), 'upper', { capacity: gpuBytes })) : undefined,
      peak: undefined,
      nextPeak: undefined,
      swap: { bytes, largest: found.sure },
    },
  ];
}

/** If swapping costs too much it is given up, and what fits then is what fits on Weir. How much it costs is not known here. */
function upTo({ possible }: Pick<FitRow, 'possible'>, plain: Pick<FitRow, 'sure' | 'possible'>): Pick<FitRow, 'sure' | 'possible'> {
  return { sure: plain.sure, possible: possible.value > plain.possible.value ? possible : plain.possible };
}

function withSwapping(runs: FitRuns): FitRuns | undefined {
  return runs.swapped && { ...runs, replays: runs.swapped.replays };
}

function largestOn(runs: FitRuns, choice: AllocatorChoice, line: Line, gpuBytes: number): Pick<FitRow, 'sure' | 'possible'> {
  const { model, replays } = runs;
  const fits = (value: number, bound: Bound) => replays.fits(choice, onLine(line, value), bound, gpuBytes);
  const search = (bound: 'lower' | 'upper') =>
    largestValue(line.point[line.parameter]!, line.multiple, {
      mayFit: (value) => replays.mayFit(onLine(line, value), bound, gpuBytes),
      fits: (value) => fits(value, bound),
    });
  const sure = search('upper');
  if (isSettled(model, onLine(line, sure.value + line.multiple))) return { sure, possible: sure };
  const possible = search('lower');
  let least = sure.value;
  let most = Math.max(possible.value, sure.value);
  for (const bound of between(model)) {
    least = fittingFrom(least, line.multiple, (value) => fits(value, bound));
    if (possible.isBounded) most = fittingUpTo(most, line.multiple, (value) => fits(value, bound));
  }
  if (possible.isBounded) most = fittingUpTo(most, line.multiple, (value) => leastNeeded(runs, choice, onLine(line, value)) <= gpuBytes);
  return { sure: { ...sure, value: least }, possible: { ...possible, value: most } };
}

export function predictPeak(runs: FitRuns, choice: AllocatorChoice, point: Point): PredictedPeak {
  const { replays } = runs;
  const peaks = boundsAt(runs.model, point).map((bound) => replays.unlimited(choice, point, bound).peakReserved);
  return {
    point,
    lower: leastNeeded(runs, choice, point),
    upper: Math.max(...peaks),
    liveLower: replays.peakLive(point, 'lower'),
    liveUpper: replays.peakLive(point, 'upper'),
  };
}

/**
 * Smaller blocks can need more memory, if they fit worse. So what an allocator needs besides live memory may be as little as in any
 * of the replays, while live memory is as little as it may be.
 */
function leastNeeded({ model, replays }: FitRuns, choice: AllocatorChoice, point: Point): number {
  const least = replays.peakLive(point, 'lower');
  const needed = boundsAt(model, point).map((bound) => {
    const { peakReserved } = replays.unlimited(choice, point, bound);
    const live = replays.peakLive(point, bound);
    return live === least ? peakReserved : Math.floor((peakReserved / live) * least);
  });
  return Math.min(...needed);
}

function boundsAt(model: FitModel, point: Point): readonly Bound[] {
  return isSettled(model, point) ? ['upper'] : ['lower', ...between(model), 'upper'];
}

function onGpu({ peakReserved, retries }: ReplayResult): FitRow['onGpu'] {
  return { peakReserved, retries };
}

/** If libraries choose algorithms, each call may have another one. */
function between({ functions }: FitModel): readonly Bound[] {
  return functions.some((size) => size.drawn) ? [...BETWEEN, ...DRAWS] : BETWEEN;
}

/** Whether all functions give one size there. */
function isSettled({ functions }: FitModel, point: Point): boolean {
  return functions.every((size) => isSettledAt(size, point) && !size.drawn);
}

function defaultNames({ template }: FitModel): string[] {
  return template.values.length === 1 ? ['value'] : template.values.map((_, index) => `value ${index + 1}`);
}
