// Steps and phases of a run as a ruler, and for each event the same place of the step before.
import { categoriesOf, type PhaseName } from '../report/categories.ts';
import { toldSteps } from '../report/run-steps.ts';
import type { Trace } from '../trace/trace.ts';
import type { Clock } from './clock.ts';

export const PHASE_NAMES: readonly PhaseName[] = ['setup', 'forward', 'backward', 'optimizer'];

/** Stretches of the run, one after the other. Each ends where the next begins, the last with the recording. */
export interface Ruler {
  /** First event of each step, and its time. Empty: no steps were found. */
  readonly stepEvent: Int32Array;
  readonly stepTime: Float64Array;
  /** Numbers as the program counts, or from 1 on; -1: before the first step. */
  readonly stepNumber: Int32Array;
  /** First event of each phase, its time, and its place in PHASE_NAMES. */
  readonly phaseEvent: Int32Array;
  readonly phaseTime: Float64Array;
  readonly phaseName: Uint8Array;
  /** Phases are guessed from the rise and fall of live memory. */
  readonly isGuess: boolean;
}

/** More phases than that are not those of steps. */
const MOST_PHASES = 50_000;

export class StepRuler {
  readonly ruler: Ruler;
  private readonly count: number;

  constructor(trace: Trace, clock: Clock) {
    this.count = clock.count;
    const { phases } = categoriesOf(trace).timeline;
    const shown = phases.length <= MOST_PHASES ? phases : [];
    const steps = stepsFor(trace);
    const timeOf = (event: number) => clock.position('time', event);
    this.ruler = {
      stepEvent: Int32Array.from(steps, ({ from }) => from),
      stepTime: Float64Array.from(steps, ({ from }) => timeOf(from)),
      stepNumber: Int32Array.from(steps, ({ number }) => number),
      phaseEvent: Int32Array.from(shown, ({ from }) => from),
      phaseTime: Float64Array.from(shown, ({ from }) => timeOf(from)),
      phaseName: Uint8Array.from(shown, ({ name }) => PHASE_NAMES.indexOf(name)),
      isGuess: shown.some(({ name, origin }) => name !== 'setup' && origin === 'lifetimes'),
    };
  }

  /** The place of an event in the ruler: its step, and its phase in PHASE_NAMES; undefined where it is in none. */
  placeOf(event: number): { step: number | undefined; phase: PhaseName | undefined } {
    const { stepEvent, stepNumber, phaseEvent, phaseName } = this.ruler;
    const step = placeIn(stepEvent, event);
    const phase = placeIn(phaseEvent, event);
    return {
      step: step < 0 || stepNumber[step]! < 0 ? undefined : stepNumber[step],
      phase: phase < 0 ? undefined : PHASE_NAMES[phaseName[phase]!],
    };
  }

  /**
   * The same place in the step before: as many events into the same phase, or into the step if it has no such phase. Where the
   * two differ in length, the same share of them. Undefined: there is no step before.
   */
  before(event: number): number | undefined {
    const { stepEvent, stepNumber } = this.ruler;
    const step = placeIn(stepEvent, event);
    if (step < 1 || stepNumber[step - 1]! < 0) return undefined;
    const now = { from: stepEvent[step]!, to: this.endOf(stepEvent, step) };
    const then = { from: stepEvent[step - 1]!, to: now.from };
    const isOpen = step === stepEvent.length - 1;
    const phase = this.phaseIn(now, event);
    const same = phase && this.nthPhase(then, phase.name, phase.nth);
    return same ? sameShare(phase, same, event, isOpen && phase.to === now.to) : sameShare(now, then, event, isOpen);
  }

  private endOf(starts: Int32Array, place: number): number {
    return starts[place + 1] ?? this.count;
  }

  /** The phase around an event, within a step, and how many phases of that name precede it there. */
  private phaseIn(step: Stretch, event: number): (Stretch & { name: number; nth: number }) | undefined {
    const { phaseEvent, phaseName } = this.ruler;
    const place = placeIn(phaseEvent, event);
    if (place < 0) return undefined;
    const name = phaseName[place]!;
    let nth = 0;
    for (let other = place - 1; other >= 0 && this.endOf(phaseEvent, other) > step.from; other--) if (phaseName[other] === name) nth++;
    return { ...within(step, phaseEvent[place]!, this.endOf(phaseEvent, place)), name, nth };
  }

  private nthPhase(step: Stretch, name: number, nth: number): Stretch | undefined {
    const { phaseEvent, phaseName } = this.ruler;
    let left = nth;
    for (let place = Math.max(0, placeIn(phaseEvent, step.from)); place < phaseEvent.length && phaseEvent[place]! < step.to; place++) {
      if (phaseName[place] !== name || this.endOf(phaseEvent, place) <= step.from || left-- > 0) continue;
      return within(step, phaseEvent[place]!, this.endOf(phaseEvent, place));
    }
    return undefined;
  }
}

interface Stretch {
  readonly from: number;
  readonly to: number;
}

function within(step: Stretch, from: number, to: number): Stretch {
  return { from: Math.max(step.from, from), to: Math.min(step.to, to) };
}

/** A stretch that the recording cuts off has no length of its own. */
function sameShare(now: Stretch, then: Stretch, event: number, isOpen: boolean): number {
  const length = isOpen ? Math.max(now.to - now.from, then.to - then.from) : now.to - now.from;
  return then.from + Math.min(then.to - then.from - 1, Math.floor(((event - now.from) * (then.to - then.from)) / length));
}

/** The last of ascending starts at or before an event; -1: none. */
function placeIn(starts: Int32Array, event: number): number {
  let low = 0;
  let high = starts.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (starts[middle]! <= event) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

/** The program's own steps if it counts or marks them, else those that the phases end. */
function stepsFor(trace: Trace): { from: number; number: number }[] {
  const told = toldSteps(trace);
  if (told && (told.by === 'marks' || told.steps[0]?.number !== undefined)) {
    const steps = told.steps.map(({ from, number }, index) => ({ from, number: number ?? index + 1 }));
    return steps[0]!.from > 0 ? [{ from: 0, number: -1 }, ...steps] : steps;
  }
  const steps: { from: number; number: number }[] = [];
  let last = -1;
  for (const { from, name, step } of categoriesOf(trace).timeline.phases) {
    if (name === 'setup') {
      if (steps.length === 0) steps.push({ from, number: -1 });
    } else if (step !== last) {
      steps.push({ from, number: Math.max(0, steps.at(-1)?.number ?? 0) + 1 });
      last = step;
    }
  }
  return steps.length > 1 ? steps : [];
}
