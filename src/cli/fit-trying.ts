// Runs of a command for `weir fit`: which values to try, what a failure means, and whether the answer was right.
import { existsSync, mkdirSync, statSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { RUN_ALLOCATORS, type RunAllocator } from '../abi/allocators.ts';
import { chooseAllocators } from '../allocator/registry.ts';
import { formatBytes } from '../base/bytes.ts';
import { UsageError } from '../base/errors.ts';
import { checkPoints, learnFit } from '../fit/model.ts';
import type { Point } from '../fit/monomials.ts';
import { type FitPrediction, type FitRuns, predictOn, replaysOf, SWAP_AUTO } from '../fit/prediction.ts';
import { type FitRun, markedSteps } from '../fit/sequence.ts';
import { listWords, pointWords } from '../report/words/fit.ts';
import { shellWord } from '../report/words/shell.ts';
import { RunError } from '../run/child/run-error.ts';
import { createScratchFolder, removeFolder } from '../run/child/run-folder.ts';
import { emptyReason } from '../run/summary/summary-text.ts';
import type { RunVoice } from '../run/supervision.ts';
import { parametersOf, withValues } from '../run/trying/placeholders.ts';
import { endWords, failureLine, hasSucceeded, type TriedRun, tryRun } from '../run/trying/try-run.ts';
import { summarizeTrace } from '../trace/summary.ts';
import { EventKind, type Trace } from '../trace/trace.ts';
import { type FitFlags, largestOf } from './fit-options.ts';
import { loadRecording } from './input.ts';
import { createProgress } from './progress.ts';
import { readVersion } from './version.ts';

/** Two small values of one parameter. The third is chosen by their answer. */
const FIRST_VALUES: readonly number[] = [2, 4];
/** The same, if only multiples are allowed. */
const FIRST_MULTIPLES: readonly number[] = [1, 2];
const MOST_RUNS = 5;
/** A value that was predicted within this share needs no further run. */
const AGREEMENT = 0.005;
/** A larger step would guess too far if the first runs mislead. At powers of two, sizes that double would look proportional. */
const MOST_FACTOR = 3;

export interface Tried {
  readonly names: readonly string[];
  readonly runs: readonly FitRun[];
  readonly gpuBytes: number;
  /** Memory of the GPU on which they ran. */
  readonly ownBytes: number | undefined;
  /** The smallest value whose run found too little memory there. */
  readonly outOfMemory: Point | undefined;
}

/** The runs of one command. */
export class Trials {
  readonly names: readonly string[];
  private readonly command: readonly string[];
  private readonly flags: FitFlags;
  private readonly voice: RunVoice;
  private readonly folder: string;
  private readonly isInterrupted: () => boolean;
  private outOfMemory: Point | undefined;

  constructor(command: readonly string[], flags: FitFlags, voice: RunVoice, isInterrupted: () => boolean) {
    this.names = parametersOf(command);
    this.command = command;
    this.flags = flags;
    this.voice = voice;
    this.isInterrupted = isInterrupted;
    this.checkFlags();
    if (flags.keep !== undefined) makeFolder(flags.keep);
    this.folder = flags.keep ?? createScratchFolder();
  }

  close(): void {
    if (this.flags.keep === undefined) removeFolder(this.folder);
  }

  /** Undefined: it was interrupted. */
  async all(): Promise<Tried | undefined> {
    const given = this.flags.try;
    const { multiple } = this.flags;
    const first = multiple === 1 ? FIRST_VALUES : FIRST_MULTIPLES.map((count) => count * multiple);
    const points = [...(given ?? first.map((value) => [value]))].sort((a, b) => productOf(a) - productOf(b));
    const runs: FitRun[] = [];
    for (const point of points) {
      const trace = await this.record(point, runs);
      if (this.isInterrupted()) return undefined;
      if (!trace) break;
      runs.push({ trace, values: point });
    }
    const ownBytes = usableOf(runs.at(-1)!.trace) ?? runs.at(-1)!.trace.limits.deviceBytes;
    const gpuBytes = this.flags.gpu ?? ownBytes;
    if (gpuBytes === undefined) throw new UsageError('the runs do not say how much memory the GPU has; add --gpu SIZE');
    if (given === undefined && !(await this.check(runs, gpuBytes))) return undefined;
    return { names: this.names, runs, gpuBytes, ownBytes, outOfMemory: this.outOfMemory };
  }

  /** Adds runs until one is as it was predicted. False: it was interrupted. */
  private async check(runs: FitRun[], gpuBytes: number): Promise<boolean> {
    let failing = Number.POSITIVE_INFINITY;
    for (let turn = runs.length; turn < MOST_RUNS; turn++) {
      const fitRuns = replaysOf(learnFit(runs));
      const choices = chooseAllocators('weir');
      const largest = predictOn(fitRuns, { gpuBytes, choices }).rows[0]!.sure.value;
      const last = runs.at(-1)!.values[0]!;
      const { multiple } = this.flags;
      const next = Math.floor(Math.min(largest / 2, last * MOST_FACTOR, (last + failing) / 2) / multiple) * multiple;
      // The answer is near: there is nothing between.
      if (next <= last) return true;
      const trace = await this.record([next], runs);
      if (this.isInterrupted()) return false;
      if (!trace) {
        failing = next;
        continue;
      }
      runs.push({ trace, values: [next] });
      const real = summarizeTrace(trace).peakLive;
      const [lower, upper] = [fitRuns.replays.peakLive([next], 'lower'), fitRuns.replays.peakLive([next], 'upper')];
      const isRight = real >= lower * (1 - AGREEMENT) && real <= upper * (1 + AGREEMENT) && upper <= lower * (1 + AGREEMENT);
      this.voice.say(
        isRight
          ? `the run of ${next} is as the smaller ones predict: ${formatBytes(real)} live at its peak`
          : `the run of ${next} has ${formatBytes(real)} live at its peak, and the smaller ones predict ${formatBytes(lower)} to ${formatBytes(upper)}`,
      );
      if (isRight) return true;
    }
    return true;
  }

  /** The recording of a run; undefined if it ran out of memory or failed and there are enough others. */
  private async record(point: Point, before: readonly FitRun[]): Promise<Trace | undefined> {
    const tried = await this.run(point, 'pytorch', undefined);
    if (this.isInterrupted()) return undefined;
    this.refuse(tried, point);
    if (!hasSucceeded(tried.end)) {
      const sentence = `the run of ${pointWords(point)} failed (${endWords(tried.end)}): ${reasonOf(tried)}`;
      if (tried.isOutOfMemory) this.outOfMemory = point;
      if (before.length < 2)
        throw new RunError(
          tried.isOutOfMemory
            ? `${sentence}; try smaller values with --try, or see what takes the memory with weir record`
            : `${sentence}; to see all that it prints: ${this.words(point)}`,
        );
      this.voice.trouble(`${sentence}; going on with ${listWords(before.map(({ values }) => pointWords(values)))}`);
      return undefined;
    }
    const trace = await this.load(tried, point);
    const steps = markedSteps(trace).length;
    if (steps === 0 && !this.flags.whole)
      throw new RunError(
        `no optimizer step was seen in the run of ${pointWords(point)}; call weir_gpu.step() at the start of each step, or add --whole to take the run as it is`,
      );
    if (steps === 1 && !this.flags.whole)
      throw new RunError(
        `the run of ${pointWords(point)} has one step only, which ends before optimizer state is there at a peak; let it run for two steps or more, or add --whole to take it as it is`,
      );
    this.voice.say(`${pointWords(point)}: ${steps} steps, peak reserved ${formatBytes(tried.peakReserved)}`);
    return trace;
  }

  /** Of several processes, the one that needs most. Some may use no GPU, or another one. */
  private async load({ files }: TriedRun, point: Point): Promise<Trace> {
    const traces: Trace[] = [];
    for (const file of files) {
      const recording = await loadRecording(file, createProgress(true));
      traces.push(...recording.traces.filter(({ allocations }) => allocations.count > 0));
    }
    const { device } = this.flags;
    const own = device === undefined ? traces : traces.filter((trace) => trace.device === device);
    if (own.length > 0) return largestOf(own);
    if (traces.length === 0) throw new RunError(`the run of ${pointWords(point)} requested no GPU memory; give a command that does`);
    const others = [...new Set(traces.map((trace) => trace.device))].sort((a, b) => a - b).join(', ');
    throw new RunError(`the run of ${pointWords(point)} requested no memory of GPU ${device}; --device can be ${others}`);
  }

  async run(point: Point, allocator: RunAllocator, limit: number | undefined, swap = false): Promise<TriedRun> {
    const command = withValues(this.command, this.names, point);
    this.voice.say(`running ${this.words(point)}${allocator === 'pytorch' ? '' : ` on ${swap ? SWAP_AUTO : allocator}`}`);
    return tryRun(
      {
        command,
        allocator,
        swap,
        limit,
        endAfter: this.flags.whole ? 0 : this.flags.steps,
        folder: this.folder,
        name: `${allocator}${swap ? '-swap' : ''}-${point.join('x')}`,
        version: readVersion(),
        environment: process.env,
      },
      { ...this.voice, say: () => {} },
    );
  }

  private words(point: Point): string {
    return withValues(this.command, this.names, point).map(shellWord).join(' ');
  }

  private refuse({ outcome, end }: TriedRun, point: Point): void {
    const [refusal] = outcome.refusals;
    if (refusal) throw new RunError(refusal.message);
    if (outcome.summary.processes.length === 0 && hasSucceeded(end))
      throw new RunError(`the run of ${pointWords(point)} cannot be used: ${emptyReason(outcome.summary, undefined)}`);
  }

  private checkFlags(): void {
    const { flags, names } = this;
    if (names.length > 1 && flags.try === undefined)
      throw new UsageError(
        `the command has ${names.length} parameters, so name the values to run, in the order ${names.join(', ')}: --try 4x512,8x512,4x1024,8x1024`,
      );
    const wrong = flags.try?.find((point) => point.length !== names.length);
    if (wrong) throw new UsageError(`--try ${wrong.join('x')} needs a value for each of ${names.join(', ')}, with x between them`);
    if (flags.try && flags.try.length < 2) throw new UsageError('--try needs two values or more: one value shows no growth');
    if (flags.try) checkPoints(flags.try);
  }
}

/** What speaks against an answer: a value ran out of memory on a GPU where it should fit. */
export function contradictions({ ownBytes, outOfMemory }: Tried, { replays }: FitRuns): string[] {
  const [pytorch] = chooseAllocators('pytorch');
  if (!outOfMemory || ownBytes === undefined || !replays.fits(pytorch!, outOfMemory, 'upper', ownBytes)) return [];
  return [
    `the run of ${pointWords(outOfMemory)} ran out of memory, but by this answer it fits in ${formatBytes(ownBytes)}: other processes use the GPU, or the program needs more from some value on. Try values just below ${pointWords(outOfMemory)}`,
  ];
}

/** What a run of the answer and of the next value showed on one allocator. */
export interface Confirmation {
  readonly allocator: string;
  readonly value: number;
  readonly fits: boolean;
  /** Peak reserved of the run of `value`, and as it was predicted for a GPU of this size. */
  readonly peakReserved: number;
  readonly predicted: number;
  /** The smallest value that does not fit for sure; null: the runs settle none. */
  readonly next: number | null;
  readonly nextFits: boolean | null;
  /** Why a run failed, if memory was not the reason; then nothing is confirmed. */
  readonly otherFailure: string | null;
}

/** Runs the answer and the next larger value; of an interval, its lower end and what is above it. Undefined: it was interrupted. */
export async function confirm(
  trials: Trials,
  { rows, line, gpuBytes }: FitPrediction,
  limit: number | undefined,
  voice: RunVoice,
  isInterrupted: () => boolean,
): Promise<Confirmation[] | undefined> {
  const found: Confirmation[] = [];
  for (const { allocator, sure, possible, onGpu, swap: swapped } of rows) {
    const swap = swapped !== undefined;
    // Without state that could leave, the run is that of Weir.
    if (swapped?.bytes === 0) continue;
    const answer = swapped?.largest ?? sure;
    const runnable = swap ? 'weir' : RUN_ALLOCATORS.find((name) => name === allocator);
    if (!runnable || answer.value === 0 || !answer.isBounded) continue;
    const values = (value: number) => line.point.map((given, index) => (index === line.parameter ? value : given));
    const first = await trials.run(values(answer.value), runnable, limit, swap);
    if (isInterrupted()) return undefined;
    const next = possible.isBounded ? possible.value + line.multiple : null;
    const second = next === null ? undefined : await trials.run(values(next), runnable, limit, swap);
    if (isInterrupted()) return undefined;
    const confirmation = {
      allocator,
      value: answer.value,
      fits: hasSucceeded(first.end),
      peakReserved: first.peakReserved,
      predicted: onGpu?.peakReserved ?? 0,
      next,
      nextFits: second ? hasSucceeded(second.end) : null,
      otherFailure: otherFailure(first) ?? (second && otherFailure(second)) ?? null,
    };
    voice.say(confirmationWords(confirmation, gpuBytes));
    found.push(confirmation);
  }
  return found;
}

export function isRight({ fits, nextFits, otherFailure }: Confirmation): boolean {
  return fits && !nextFits && otherFailure === null;
}

function reasonOf({ said }: TriedRun): string {
  return failureLine(said) || 'it printed nothing';
}

function otherFailure(tried: TriedRun): string | undefined {
  return hasSucceeded(tried.end) || tried.isOutOfMemory ? undefined : `${endWords(tried.end)}: ${reasonOf(tried)}`;
}

function confirmationWords(confirmation: Confirmation, gpuBytes: number): string {
  const { allocator, value, fits, next, nextFits, peakReserved, predicted } = confirmation;
  if (confirmation.otherFailure !== null)
    return `not confirmed on ${allocator}: a run failed, but not for lack of memory (${confirmation.otherFailure})`;
  const size = formatBytes(gpuBytes);
  const peaks = fits ? ` (peak reserved ${formatBytes(peakReserved)}, predicted ${formatBytes(predicted)})` : '';
  const above = next === null ? 'and no value is known to be too large' : `${next} ${nextFits ? 'fits, too' : 'does not'}`;
  const how = `${value} ${fits ? 'fits' : 'does not fit'} in ${size}${peaks}, ${above}`;
  return `confirmed on ${allocator}: ${isRight(confirmation) ? 'right' : 'wrong'}: ${how}`;
}

/** The memory that PyTorch could have in the run, as its process said; undefined: it did not. */
export function usableOf({ events, symbols }: Trace): number | undefined {
  for (let event = 0; events.detail && event < events.count; event++) {
    if (events.kind[event] !== EventKind.Mark) continue;
    const bytes = /^weir usable (\d+)$/.exec(symbols.strings[events.detail[event]!] ?? '')?.[1];
    if (bytes !== undefined) return Number(bytes);
  }
  return undefined;
}

/** Without its parents: Node never returns if these cannot be made, as in /proc. */
function makeFolder(path: string): void {
  const parent = dirname(resolve(path));
  if (!existsSync(parent)) throw new UsageError(`--keep ${path}: there is no folder ${parent}`);
  if (!existsSync(path)) mkdirSync(path);
  else if (!statSync(path).isDirectory()) throw new UsageError(`--keep ${path}: it is no folder`);
}

function productOf(point: Point): number {
  return point.reduce((product, value) => product * value, 1);
}
