// The steps of a run as stretches of its events: from marks, from PyTorch's annotations, from texts that count steps,
// or from the repetition of its requests. Used where memory is compared from step to step and from run to run.
import { PhaseMark } from '../abi/events.ts';
import { type MemoryOps, markKind, opsOfTrace } from '../plan/steps/memory-ops.ts';
import { findPeriod, isPeriodic } from '../plan/steps/period.ts';
import { EventKind, type Trace } from '../trace/trace.ts';

/** Events `from` to `to`. */
export interface RunStep {
  readonly from: number;
  /** The first event after the step. */
  readonly to: number;
  /** As the program counts; undefined: it does not. */
  readonly number: number | undefined;
  /** Its end is recorded. */
  readonly isComplete: boolean;
}

export interface RunSteps {
  readonly by: 'marks' | 'annotations' | 'metadata' | 'repetition';
  /** What the marks say, with # for numbers; empty for a repetition. */
  readonly name: string;
  /** At least two. */
  readonly steps: readonly RunStep[];
}

export interface NoSteps {
  /** One sentence without its end, for people. */
  readonly reason: string;
}

export function hasSteps(found: RunSteps | NoSteps): found is RunSteps {
  return 'steps' in found;
}

const STEP_WORDS = /(^|[^a-z])(step|iter|iteration|batch)([^a-z]|$)/i;

interface StepMark {
  readonly event: number;
  readonly text: string;
}

export function stepsOf(trace: Trace): RunSteps | NoSteps {
  return toldSteps(trace) ?? fromRepetition(trace);
}

/** Steps that the program or PyTorch marked, without a search for repetitions, which takes long. */
export function toldSteps(trace: Trace): RunSteps | undefined {
  const marks = fromMarks(marksOf(trace), 'marks', trace);
  if (marks) return marks;
  const texts = [fromMarks(annotationsOf(trace), 'annotations', trace), fromMarks(metadataOf(trace), 'metadata', trace)].filter(
    (found) => found !== undefined,
  );
  // Steps with numbers can be found again in another run.
  return texts.find(({ steps }) => steps[0]?.number !== undefined) ?? texts[0];
}

/** The steps that marks of one kind begin: those about steps, else the commonest. */
function fromMarks(marks: readonly StepMark[], by: RunSteps['by'], { events }: Trace): RunSteps | undefined {
  const kinds = new Map<string, StepMark[]>();
  for (const mark of marks) {
    // The recorder's own marks are about steps, and about parts of them.
    const kind = mark.text === PhaseMark.step ? PhaseMark.step : markKind(mark.text);
    if (kind === undefined) continue;
    const known = kinds.get(kind);
    // Two marks without an event between them begin one step.
    if (known?.at(-1)?.event === mark.event) known.pop();
    if (known) known.push(mark);
    else kinds.set(kind, [mark]);
  }
  const worth = ([kind, list]: readonly [string, StepMark[]]) =>
    (kind === PhaseMark.step ? 4e9 : STEP_WORDS.test(kind) && !/zero_grad/.test(kind) ? 2e9 : 0) + list.length;
  const [best] = [...kinds].filter(([, list]) => list.length > 1).sort((a, b) => worth(b) - worth(a));
  if (!best) return undefined;
  const [name, chosen] = best;
  const numbers = chosen.map(({ text }) => Number(/(\d+)\D*$/.exec(text)?.[1] ?? Number.NaN));
  const isCounted = numbers.every((number, index) => Number.isSafeInteger(number) && (index === 0 || number > numbers[index - 1]!));
  const steps = chosen.map(({ event }, index) => ({
    from: event,
    to: chosen[index + 1]?.event ?? events.count,
    number: isCounted ? numbers[index] : undefined,
    isComplete: index + 1 < chosen.length,
  }));
  return { by, name, steps: steps.filter(({ from, to }) => to > from) };
}

function marksOf({ events, symbols }: Trace): StepMark[] {
  const marks: StepMark[] = [];
  for (let event = 0; events.detail && event < events.count; event++)
    if (events.kind[event] === EventKind.Mark) marks.push({ event, text: symbols.strings[events.detail[event]!] ?? '' });
  return marks;
}

function annotationsOf({ annotations, events }: Trace): StepMark[] {
  const starts = annotations.filter(({ stage }) => stage !== 'END').sort((a, b) => a.timeUs - b.timeUs);
  let event = 0;
  return starts.flatMap(({ name, timeUs }) => {
    while (event < events.count && events.timeUs[event]! < timeUs) event++;
    return event < events.count ? [{ event, text: name }] : [];
  });
}

/** Where the user metadata of requests begins to name another step. */
function metadataOf({ events, symbols }: Trace): StepMark[] {
  const marks: StepMark[] = [];
  // Threads of autograd have no metadata, so a text that comes back is still the same step.
  let last = 0;
  for (let event = 0; event < events.count; event++) {
    const metadata = events.metadata[event]!;
    if (events.kind[event] !== EventKind.Alloc || metadata === 0 || metadata === last) continue;
    const text = symbols.strings[metadata] ?? '';
    if (!STEP_WORDS.test(text)) continue;
    marks.push({ event, text });
    last = metadata;
  }
  return marks;
}

/** A repetition that covers less of the run, or reaches less of its range of memory, may be that of layers. */
const LEAST_COVERAGE = 0.5;
const LEAST_RANGE = 0.8;
const LEAST_STEPS = 3;
const ONLY_PARTS = 'only parts of a step repeat';

function fromRepetition(trace: Trace): RunSteps | NoSteps {
  const ops = opsOfTrace(trace);
  const period = findPeriod({ ...ops, marks: [] }, undefined, true);
  if (!isPeriodic(period)) return { reason: period.reason };
  const starts = period.stretches.flatMap(({ from, to }) =>
    Array.from({ length: Math.floor((to - from) / period.length) + 1 }, (_, turn) => from + turn * period.length),
  );
  if (
    starts.length < LEAST_STEPS ||
    starts.length * period.length < LEAST_COVERAGE * ops.count ||
    !reachesRange(ops, starts, period.length)
  )
    return { reason: ONLY_PARTS };
  const steps = starts.map((op) => ({
    from: ops.event![op]!,
    to: op + period.length < ops.count ? ops.event![op + period.length]! : trace.events.count,
    number: undefined,
    isComplete: true,
  }));
  return { by: 'repetition', name: '', steps };
}

/** Whether most of the steps take about as much memory as the run does since the first of them. */
function reachesRange(ops: MemoryOps, starts: readonly number[], length: number): boolean {
  const live = new Float64Array(ops.count);
  let now = ops.liveBefore;
  let least = Number.POSITIVE_INFINITY;
  let most = 0;
  for (let op = 0; op < ops.count; op++) {
    now += ops.isAlloc[op] ? ops.size[op]! : -ops.size[op]!;
    live[op] = now;
    // Programs free everything at their end.
    if (op < starts[0]! || op >= starts.at(-1)! + length) continue;
    least = Math.min(least, now);
    most = Math.max(most, now);
  }
  const peaks = starts.map((start) => live.subarray(start, start + length).reduce((peak, bytes) => Math.max(peak, bytes), 0));
  const median = peaks.sort((a, b) => a - b)[peaks.length >> 1]!;
  return median - least >= LEAST_RANGE * (most - least) && most >= LEAST_RANGE * ops.peak;
}
