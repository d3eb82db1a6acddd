// What the runs of one program teach: for each request of the largest run, its size as a function of the parameters.
import { formatBytes } from '../base/bytes.ts';
import { InputError, UsageError } from '../base/errors.ts';
import { EventKind, type Trace } from '../trace/trace.ts';
import { boundLoops } from './loops.ts';
import { degreeOf, type Point } from './monomials.ts';
import { modesFor, pairRuns } from './pairing.ts';
import { boundScratch } from './scratch.ts';
import { type FitRun, freeEventOf, type Sequence, SiteNames, sequenceOf } from './sequence.ts';
import { doubted, openFunction, type Sample, type SizeFunction, SizeLearner } from './size-function.ts';

export interface FitModel {
  /** The run with the largest values. Synthesised runs make its requests in its order. */
  readonly template: Sequence;
  /** The parameters of the runs, ascending; the last is the template's. */
  readonly points: readonly Point[];
  /** The size of each allocation of the template. */
  readonly functions: readonly SizeFunction[];
  readonly learned: Learned;
  /** Defects of the recordings, one sentence each. */
  readonly warnings: readonly string[];
}

/** What of the template the other runs explain, in bytes of all its requests. */
export interface Learned {
  readonly requests: number;
  readonly bytes: number;
  /** Bytes by how far their function is known. `unpaired`: the block is in no other run. */
  readonly settled: number;
  readonly unsettled: number;
  readonly unpaired: number;
  /** The part of `unsettled` and `scratch` that no function fits at all. */
  readonly open: number;
  /** The part of `unsettled` whose function only two runs support, where these two differ in structure. */
  readonly doubted: number;
  /** Scratch memory of kernels that may be larger or smaller than its function says; in none of the parts above. */
  readonly scratch: number;
  /** Bytes of the other runs' requests that the template does not have, of the run nearest to it. */
  readonly vanished: number;
  /** The part of it that is not merely requested more often, as by a further step. */
  readonly dropped: number;
  /** Bytes of requests that are constant, and that grow, by their function. */
  readonly constant: number;
  readonly growing: number;
  /** Whether a run more than two coefficients need has checked the functions. */
  readonly isChecked: boolean;
}

/** Runs that share less of their bytes are not the same program. */
const LEAST_SHARED = 0.3;
/** Warnings of recordings whose live memory is not known. */
const UNUSABLE: readonly string[] = ['allocs-skipped', 'frees-skipped'];
/** Warnings about what is not needed here. */
export const HARMLESS: readonly string[] = ['segments-skipped', 'completions-skipped'];
/** A share of the bytes that needs no other explanation. */
const NEARLY_ALL = 0.95;
/** A share of the bytes by which another pairing must be better. */
const CLEARLY = 0.05;
/** Below this share of the bytes, a difference in structure needs no doubt. */
export const NOTABLE = 0.001;
/** Samples that a function needs if the runs differ in structure. */
const ENOUGH_SAMPLES = 3;
/** A growth that concerns less than this share of the bytes says nothing about unknown blocks. */
const LEAST_TYPICAL = 0.01;

export function learnFit(runs: readonly FitRun[]): FitModel {
  checkPoints(runs.map(({ values }) => values));
  const names = new SiteNames();
  const ordered = [...runs].sort((a, b) => sizeOf(a.values) - sizeOf(b.values)).map((run) => sequenceOf(run, names));
  for (const { trace, values } of ordered) requireRequests(trace, values);
  const warnings = warningsOf(ordered);
  const template = ordered.at(-1)!;
  const others = ordered.slice(0, -1);
  requireSteps(template, others);
  const partners = others.map((other) => ({ other, partner: bestPairing(other, template) }));
  const { allocations } = template.trace;
  requireOrder(template, partners);
  const learner = new SizeLearner(template.values.length);
  const samplesOf = (allocation: number): Sample[] => {
    const found: Sample[] = [];
    for (const { other, partner } of partners) {
      const twin = partner[allocation]!;
      if (twin >= 0) found.push({ point: other.values, size: other.trace.allocations.requested[twin]! });
    }
    return [...found, { point: template.values, size: allocations.requested[allocation]! }];
  };
  const functions: SizeFunction[] = [];
  const alone: number[] = [];
  const fewSamples: number[] = [];
  for (let allocation = 0; allocation < allocations.count; allocation++) {
    const samples = samplesOf(allocation);
    if (samples.length === 1) alone.push(allocation);
    else if (samples.length < ENOUGH_SAMPLES) fewSamples.push(allocation);
    functions.push(learner.learn(samples));
  }
  const describeWith = (doubtful: readonly number[], scratch: readonly number[] = []) =>
    describe(template, functions, { alone, doubtful, scratch }, partners.at(-1)!);
  const learned = describeWith([]);
  requireSame(learned, ordered);
  requireGrowth(learned, ordered);
  const power = fastestPower(template, functions);
  const ownSize = (allocation: number): Sample => ({ point: template.values, size: allocations.requested[allocation]! });
  for (const allocation of alone) functions[allocation] = openFunction([ownSize(allocation)], power);
  for (const [allocation, size] of boundLoops(template, partners.at(-1)!, functions, alone, power)) functions[allocation] = size;
  const points = ordered.map(({ values }) => values);
  const hasStacks = ordered.every((run) => run.hasStacks);
  const scratch = boundScratch(template, functions, samplesOf, power);
  for (const [allocation, size] of scratch) functions[allocation] = size;
  const doubtful = differenceOf(learned) <= NOTABLE ? [] : fewSamples.filter(isDoubtful);
  for (const allocation of doubtful) functions[allocation] = doubted(functions[allocation]!, ownSize(allocation), power);
  return { template, points, functions, learned: describeWith(doubtful, [...scratch.keys()]), warnings };

  /** The structure changes with the value, so it may change again. What only two runs show is no law then. */
  function isDoubtful(allocation: number): boolean {
    if (scratch.has(allocation)) return false;
    const { kind } = functions[allocation]!;
    // Without stacks, blocks of equal size may be different ones. What is never freed, such as weights, hardly is.
    return kind === 'constant' ? !hasStacks && freeEventOf(template.trace, allocation) >= 0 : kind !== 'open';
  }
}

/** The share of the bytes that one of the two largest runs has and the other has not, or has in sizes that fit no function. */
export function differenceOf({ bytes, unpaired, open, dropped }: Learned): number {
  return bytes === 0 ? 0 : Math.min(1, (unpaired + open + dropped) / bytes);
}

/** By whole stacks, if these explain nearly all. Else by whatever explains most. */
function bestPairing(other: Sequence, template: Sequence): Int32Array {
  let best: Int32Array | undefined;
  let most = -1;
  for (const mode of modesFor(other, template)) {
    const partner = pairRuns(other, template, mode);
    let [bytes, paired] = [0, 0];
    partner.forEach((twin, allocation) => {
      const size = template.trace.allocations.requested[allocation]!;
      bytes += size;
      if (twin >= 0) paired += size;
    });
    // A looser pairing must explain clearly more, since it can be wrong.
    if (best === undefined || paired > most + bytes * CLEARLY) {
      best = partner;
      most = paired;
    }
    if (paired >= bytes * NEARLY_ALL) break;
  }
  return best!;
}

/** Each kind of defect once, of the largest run that has it. */
function warningsOf(runs: readonly Sequence[]): string[] {
  const found = new Map<string, string>();
  for (const { trace, values } of runs) {
    for (const { code, message } of trace.warnings)
      if (!HARMLESS.includes(code)) found.set(code, `the run of ${values.join(' x ')}: ${message}`);
  }
  return [...found.values()];
}

/** Throws if nothing can be learned from runs of these values. */
export function checkPoints(points: readonly Point[]): void {
  const [first] = points;
  if (!first || points.length < 2) throw new UsageError('one value shows no growth; give runs of two values or more');
  for (const point of points) {
    if (point.length !== first.length) throw new UsageError('every run needs a value for each parameter');
    if (point.some((value) => !Number.isSafeInteger(value) || value <= 0))
      throw new UsageError(`${point.join(' x ')} is no value of a run; values are whole numbers above 0`);
  }
  for (const [index] of first.entries()) {
    if (points.every((point) => point[index] === first[index]))
      throw new UsageError(
        first.length === 1
          ? `all runs have the value ${first[0]}, which shows no growth; give runs of two values or more`
          : `parameter ${index + 1} has the value ${first[index]} in all runs, which shows no growth; vary it`,
      );
  }
  const keys = points.map((point) => point.join(' x '));
  const twice = keys.find((key, index) => keys.indexOf(key) !== index);
  if (twice !== undefined) throw new UsageError(`two runs have the value ${twice}; give each value once`);
}

function requireRequests({ allocations, events, warnings }: Trace, values: Point): void {
  const missing = warnings.find(({ code }) => UNUSABLE.includes(code));
  if (missing) throw new InputError(`the run of ${values.join(' x ')} cannot be used: ${missing.message}`);
  for (let event = 0; event < events.count; event++)
    if (events.kind[event] === EventKind.Oom)
      throw new InputError(`the run of ${values.join(' x ')} ran out of memory; record smaller values`);
  if (allocations.count === allocations.liveAtStart)
    throw new InputError(`the run of ${values.join(' x ')} requests no GPU memory (${events.count} events); record all of it`);
}

/** The largest run stands for all others, so it must not end before them. Its first step alone has no optimizer state at its peak. */
function requireSteps(template: Sequence, others: readonly Sequence[]): void {
  const longest = others.reduce((most, other) => (other.stepEvents.length > most.stepEvents.length ? other : most));
  const [own, most] = [template.stepEvents.length, longest.stepEvents.length];
  if (own >= 2 || own >= most || !longest.isMarked) return;
  throw new InputError(
    `the run of ${template.values.join(' x ')} has ${own === 0 ? 'no whole step' : 'one step only'}, and that of ${longest.values.join(' x ')} has ${most}; record it again for as many steps`,
  );
}

/** Memory grows with the values. If most of it shrinks, they were given in another order than the runs. */
function requireOrder(template: Sequence, partners: readonly { other: Sequence; partner: Int32Array }[]): void {
  // Of 4 x 1024 and 8 x 512, neither needs more for sure.
  const below = partners.findLast(({ other }) => other.values.every((value, index) => value <= template.values[index]!));
  if (!below) return;
  const { other, partner } = below;
  let [grown, shrunk] = [0, 0];
  partner.forEach((twin, allocation) => {
    if (twin < 0) return;
    const more = template.trace.allocations.requested[allocation]! - other.trace.allocations.requested[twin]!;
    if (more > 0) grown += more;
    else shrunk -= more;
  });
  if (shrunk > grown)
    throw new InputError(
      `the run of ${template.values.join(' x ')} requests less than that of ${other.values.join(' x ')}; are the values in the order of the runs?`,
    );
}

/** Each of the two largest runs must have a good part of the other. If all requests have counterparts, their sizes may be anything. */
function requireSame({ bytes, unpaired, open, dropped }: Learned, runs: readonly Sequence[]): void {
  const before = runs.at(-2)!.trace.allocations.requested.reduce((sum, size) => sum + size, 0);
  const parts = [
    { total: bytes, missing: unpaired + dropped === 0 ? 0 : unpaired + open },
    { total: before, missing: dropped },
  ].map(({ total, missing }) => ({ total, shared: total === 0 ? 1 : 1 - missing / total }));
  const { total, shared } = parts.reduce((least, part) => (part.shared < least.shared ? part : least));
  if (shared >= LEAST_SHARED) return;
  throw new InputError(
    `the runs of ${runs.map(({ values }) => values.join(' x ')).join(' and ')} are not the same program: they share ${Math.round(shared * 100)} % of ${formatBytes(total)} requested`,
  );
}

function requireGrowth({ bytes, constant }: Learned, runs: readonly Sequence[]): void {
  if (constant < bytes) return;
  throw new InputError(
    `every block has the same size in the runs of ${runs.map(({ values }) => values.join(' x ')).join(' and ')}: memory does not depend on the value`,
  );
}

function describe(
  template: Sequence,
  functions: readonly SizeFunction[],
  which: { readonly alone: readonly number[]; readonly doubtful: readonly number[]; readonly scratch: readonly number[] },
  nearest: { other: Sequence; partner: Int32Array },
): Learned {
  const { requested, count } = template.trace.allocations;
  const alone = new Set(which.alone);
  const doubtful = new Set(which.doubtful);
  const scratch = new Set(which.scratch);
  const further = template.values.map((value) => 2 * value);
  let [bytes, settled, unsettled, unpaired, constant, growing, checked, open, doubtedBytes, scratchBytes] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
  for (let allocation = 0; allocation < count; allocation++) {
    const size = requested[allocation]!;
    const found = functions[allocation]!;
    const isSettled = found.lower(further) === found.upper(further);
    const isScratch = scratch.has(allocation) && !isSettled;
    bytes += size;
    if (isScratch) scratchBytes += size;
    else if (alone.has(allocation)) unpaired += size;
    else if (isSettled) settled += size;
    else unsettled += size;
    if (doubtful.has(allocation)) doubtedBytes += size;
    else if (found.kind === 'open' && (isScratch || !alone.has(allocation))) open += size;
    if (found.isChecked) checked += size;
    if (found.kind === 'constant') constant += size;
    else if (!alone.has(allocation)) growing += size;
  }
  return {
    requests: count,
    bytes,
    settled,
    unsettled,
    unpaired,
    open,
    doubted: doubtedBytes,
    scratch: scratchBytes,
    ...vanishedBytes(nearest),
    constant,
    growing,
    isChecked: checked > bytes / 2,
  };
}

function vanishedBytes({ other, partner }: { other: Sequence; partner: Int32Array }): Pick<Learned, 'vanished' | 'dropped'> {
  const { requested } = other.trace.allocations;
  const taken = new Uint8Array(requested.length);
  const pairedSizes = new Set<number>();
  for (const allocation of partner) {
    if (allocation < 0) continue;
    taken[allocation] = 1;
    pairedSizes.add(requested[allocation]!);
  }
  const left = requested.filter((_, allocation) => taken[allocation] === 0);
  const sum = (sizes: Float64Array) => sizes.reduce((total, size) => total + size, 0);
  return { vanished: sum(left), dropped: sum(left.filter((size) => !pairedSizes.has(size))) };
}

/** The power with which a good part of the program grows: unknown blocks may do the same. */
function fastestPower({ trace }: Sequence, functions: readonly SizeFunction[]): number {
  const { requested } = trace.allocations;
  const bytes = new Map<number, number>();
  let total = 0;
  functions.forEach(({ monomial, isChecked }, allocation) => {
    total += requested[allocation]!;
    if (!monomial || !isChecked) return;
    const power = Math.max(...monomial.powers);
    bytes.set(power, (bytes.get(power) ?? 0) + requested[allocation]!);
  });
  return [...bytes].reduce((most, [power, sum]) => (sum >= total * LEAST_TYPICAL ? Math.max(most, power) : most), 1);
}

function sizeOf(point: Point): number {
  return point.reduce((product, value) => product * value, 1);
}

/** For tests and words: how fast a function grows. */
export function degreeOfFunction({ monomial }: SizeFunction): number {
  return monomial ? degreeOf(monomial.powers) : 0;
}
