// The run as a row of phases: setup, forward, backward and optimizer, from marks, annotations, call stacks or the shape of live memory.
import { PhaseMark } from '../../abi/events.ts';
import { opsOfTrace } from '../../plan/steps/memory-ops.ts';
import { findPeriod, isPeriodic } from '../../plan/steps/period.ts';
import { endsOf } from '../../trace/ends.ts';
import { EventKind, type Trace } from '../../trace/trace.ts';
import { LiveCurve } from '../live-curve.ts';
import type { StackMeanings } from './stacks.ts';

export type PhaseName = 'setup' | 'forward' | 'backward' | 'optimizer';

/** Where phases come from. `lifetimes`: forward and backward passes are guessed from the rise and fall of live memory. */
export type PhaseOrigin = 'phases' | 'stacks' | 'lifetimes';

export interface Phase {
  readonly from: number;
  readonly name: PhaseName;
  /** Steps that had ended before. */
  readonly step: number;
  readonly origin: PhaseOrigin;
}

export interface Timeline {
  /** In order, from event 0 on; empty: nothing is known. */
  readonly phases: readonly Phase[];
  /** The phase of each event, as a place in `phases`. */
  readonly phaseOf: Int32Array;
  readonly hasBackward: boolean;
  readonly hasOptimizer: boolean;
  /** The first phase of that name from a place in `phases` on, as a place; the number of phases if there is none. */
  nextFrom(place: number, name: 'backward' | 'optimizer'): number;
}

interface Change {
  readonly from: number;
  readonly name: PhaseName | 'either';
  /** A step ends here. */
  readonly endsStep?: boolean;
}

/** A rise or fall of live memory counts as a pass if it is at least this share of the highest in the same stretch. */
const PASS_SHARE = 0.4;
/** Finding the step of a longer recording takes too long for a report that asks for it in passing. */
const MOST_SEARCHED = 400_000;
/** Blocks that live for no more events than this are no sign that a step has begun. */
const SHORT_LIFE = 8;

export function timelineOf(trace: Trace, stacks: StackMeanings): Timeline {
  const { changes, origin } = changesOf(trace, stacks);
  const live = changes.some(({ name }) => name === 'either') ? new LiveCurve(trace).after : undefined;
  const setupEnd = origin === 'stacks' ? 0 : setupEndOf(trace, changes);
  const phases: Phase[] = [];
  let step = 0;
  const add = (from: number, name: PhaseName, by: PhaseOrigin) => {
    const at = Math.max(from, 0);
    const last = phases.at(-1);
    if (last && last.from === at) phases.pop();
    if (phases.at(-1)?.name !== name || phases.at(-1)?.step !== step) phases.push({ from: at, name, step, origin: by });
  };
  changes.forEach(({ from, name, endsStep }, index) => {
    if (endsStep) step++;
    const to = changes[index + 1]?.from ?? trace.events.count;
    let start = from;
    if (from < setupEnd) {
      add(from, 'setup', 'lifetimes');
      start = Math.min(setupEnd, to);
      if (start === to) return;
    }
    if (name !== 'either') add(start, name, origin);
    else for (const pass of passesIn(live!, start, to)) add(pass.from, pass.name, 'lifetimes');
  });
  const next = { backward: nextPlaces(phases, 'backward'), optimizer: nextPlaces(phases, 'optimizer') };
  return {
    phases,
    phaseOf: placesOf(phases, trace.events.count),
    hasBackward: next.backward[0]! < phases.length,
    hasOptimizer: next.optimizer[0]! < phases.length,
    nextFrom: (place, name) => next[name][place] ?? phases.length,
  };
}

function changesOf(trace: Trace, stacks: StackMeanings): { changes: Change[]; origin: PhaseOrigin } {
  const marked = markedChanges(trace);
  if (marked.length > 0) return { changes: marked, origin: 'phases' };
  if (stacks.tellPhases) {
    const changes = stackChanges(trace, stacks);
    if (changes.some(({ name }) => name === 'backward' || name === 'optimizer')) return { changes, origin: 'stacks' };
  }
  const annotated = annotatedChanges(trace);
  if (annotated.length > 0) return { changes: annotated, origin: 'phases' };
  // Stacks that tell phases, and no backward pass among them: the run only infers, so memory that falls is no sign of one.
  if (stacks.tellPhases) return { changes: [], origin: 'stacks' };
  return { changes: periodChanges(trace), origin: 'lifetimes' };
}

const MARKED: ReadonlyMap<string, PhaseName> = new Map([
  [PhaseMark.step, 'forward'],
  [PhaseMark.forward, 'forward'],
  [PhaseMark.backward, 'backward'],
  [PhaseMark.optimizer, 'optimizer'],
]);

function markedChanges({ events, symbols }: Trace): Change[] {
  const changes: Change[] = [];
  for (let event = 0; events.detail && event < events.count; event++) {
    if (events.kind[event] !== EventKind.Mark) continue;
    const text = symbols.strings[events.detail[event]!] ?? '';
    const name = MARKED.get(text);
    if (name) changes.push({ from: event, name, endsStep: text === PhaseMark.step });
  }
  return changes.length > 0 ? [{ from: 0, name: 'forward' }, ...changes] : [];
}

/** Each request tells the phase it is in. A step ends with its optimizer. */
function stackChanges({ events }: Trace, stacks: StackMeanings): Change[] {
  const changes: Change[] = [{ from: 0, name: 'forward' }];
  let last: PhaseName = 'forward';
  for (let event = 0; event < events.count; event++) {
    if (events.kind[event] !== EventKind.Alloc) continue;
    const { phase } = stacks.of(events.stack[event]!);
    if (phase === 'none' || phase === last) continue;
    changes.push({ from: event, name: phase, endsStep: last === 'optimizer' });
    last = phase;
  }
  return changes;
}

const OPTIMIZER_STEP = /^Optimizer\.step#/;

/** PyTorch annotates the steps of its optimizers. Between them are forward and backward passes. */
function annotatedChanges({ annotations, events, device }: Trace): Change[] {
  const own = annotations.filter(({ name, device: where }) => OPTIMIZER_STEP.test(name) && (where === device || where < 0));
  const ordered = own.toSorted((a, b) => a.timeUs - b.timeUs);
  const changes: Change[] = [];
  let event = 0;
  let depth = 0;
  for (const { stage, timeUs } of ordered) {
    while (event < events.count && events.timeUs[event]! < timeUs) event++;
    if (stage === 'START' && depth++ === 0) changes.push({ from: event, name: 'optimizer' });
    else if (stage === 'END' && depth > 0 && --depth === 0) changes.push({ from: event, name: 'either', endsStep: true });
  }
  return changes.length > 0 ? [{ from: 0, name: 'either' }, ...changes] : [];
}

/** Without any of that: the step that the run repeats. */
function periodChanges(trace: Trace): Change[] {
  if (trace.events.count > MOST_SEARCHED) return [];
  const ops = opsOfTrace(trace);
  const period = findPeriod(ops);
  if (!isPeriodic(period)) return [];
  const changes: Change[] = [{ from: 0, name: 'either' }];
  for (const stretch of period.stretches)
    for (let op = stretch.from; op < Math.min(stretch.to + period.length, ops.count); op += period.length)
      changes.push({ from: ops.event![op]!, name: 'either', endsStep: true });
  return changes;
}

/** Live memory rises in a forward pass and falls in a backward pass. Small ups and downs are neither. */
function passesIn(live: Float64Array, from: number, to: number): { from: number; name: 'forward' | 'backward' }[] {
  const passes: { from: number; name: 'forward' | 'backward' }[] = [{ from, name: 'forward' }];
  if (to <= from) return passes;
  let lowest = live[from]!;
  let highest = lowest;
  for (let event = from; event < to; event++) {
    lowest = Math.min(lowest, live[event]!);
    highest = Math.max(highest, live[event]!);
  }
  const least = PASS_SHARE * (highest - lowest);
  if (least === 0) return passes;
  let turn = from;
  let rising = true;
  for (let event = from; event < to; event++) {
    const value = live[event]!;
    if (rising ? value >= live[turn]! : value <= live[turn]!) turn = event;
    else if (Math.abs(value - live[turn]!) >= least) {
      passes.push({ from: turn + 1, name: rising ? 'backward' : 'forward' });
      rising = !rising;
      turn = event;
    }
  }
  // A last rise is the start of something else: results of the backward pass that stay.
  return passes;
}

/** Setup is over with the first block of more than a moment that does not stay: the first input of the first step. */
function setupEndOf(trace: Trace, changes: readonly Change[]): number {
  const { events, allocations } = trace;
  const ends = endsOf(trace);
  const firstStep = changes.find(({ name }) => name === 'backward' || name === 'optimizer')?.from ?? changes[1]?.from ?? 0;
  const lastStep = changes.findLast(({ endsStep }) => endsStep)?.from ?? events.count;
  for (let allocation = allocations.liveAtStart; allocation < allocations.count; allocation++) {
    const began = allocations.allocEvent[allocation]!;
    if (began >= firstStep) break;
    const ended = ends.of[allocation]!;
    if (ended >= 0 && ended < lastStep && ended - began > SHORT_LIFE) return began;
  }
  return firstStep;
}

/** For each place, the first one from there on with a phase of that name. Every allocation asks, so it must not search. */
function nextPlaces(phases: readonly Phase[], name: PhaseName): Int32Array {
  const next = new Int32Array(phases.length + 1).fill(phases.length);
  for (let place = phases.length - 1; place >= 0; place--) next[place] = phases[place]!.name === name ? place : next[place + 1]!;
  return next;
}

function placesOf(phases: readonly Phase[], count: number): Int32Array {
  const places = new Int32Array(count);
  phases.forEach(({ from }, index) => {
    places.fill(index, from, phases[index + 1]?.from ?? count);
  });
  return places;
}
