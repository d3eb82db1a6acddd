// Checks a swap plan as it is sent, by replaying several steps tick by tick as the process acts (python/weir_gpu/swap/mover.py).
// On purpose it shares no code with the planner: it knows the profile and the moves, and compares.

import type { SwapMove, SwapPlan } from '../../../abi/exchange.ts';
import { Format } from '../../../abi/formats.ts';
import type { Fault } from '../../offsets/verifier.ts';
import type { SwapProfile } from './profile.ts';

const STEPS = 6;
/** Expected waits are those of this step: until then the copies of earlier steps may still be queueing up. */
const SETTLED_STEP = 3;
/** The planner moves ticks that coincide this far apart, and takes waits this short for none. */
const ROUNDING_US = 0.01;

/** A tensor that moves. Nobody uses it from tick `idle` on, until the program does at tick `use`; that may be in the next step. */
interface Subject {
  readonly name: string;
  readonly size: number;
  readonly idle: number;
  readonly use: number;
  /** Saved tensors: the tick after which its host memory is free again. */
  readonly lastUse: number | undefined;
}

type Report = (message: string) => void;

export function verifySwapPlan(profile: SwapProfile, plan: SwapPlan, maxFaults = 10): Fault[] {
  const faults: Fault[] = [];
  const report = (message: string) => {
    if (faults.length < maxFaults) faults.push({ message });
  };
  if (plan.version !== Format.exchange.version) report(`the plan is of version ${plan.version}`);
  if (plan.key !== profile.key) report(`the plan is for step ${plan.key}, and the profile is of step ${profile.key}`);
  const subjects = plan.moves.map((move, number) => subjectOf(profile, move, number, report));
  checkTwice(plan.moves, report);
  if (faults.length > 0) return faults;
  const known = subjects as Subject[];
  const replayed = replay(profile, plan.moves, known, report);
  if (faults.length > 0) return faults;
  checkExpected(profile, plan, replayed, report);
  checkHost(profile, plan, known, report);
  return faults;
}

/** The tensor that a move names; undefined, with a fault, if the move makes no sense for it. */
function subjectOf(profile: SwapProfile, move: SwapMove, number: number, report: Report): Subject | undefined {
  const count = profile.ticks.us.length;
  const subject = findSubject(profile, move, count);
  if (!subject) {
    report(`move ${number} is of ${move.class} ${move.index}, which is not in the profile or never idle`);
    return undefined;
  }
  const { name, size } = subject;
  if (move.size !== size) report(`move ${number} has ${move.size} bytes, and ${name} has ${size}`);
  for (const tick of [move.out, move.drop, move.back]) {
    if (!Number.isInteger(tick) || tick < 0 || tick >= count)
      report(`move ${number} of ${name} has tick ${tick}, and the step has ${count}`);
  }
  if (!Number.isInteger(move.turn) || move.turn < 0) report(`move ${number} of ${name} has turn ${move.turn}`);
  return subject;
}

function findSubject(profile: SwapProfile, { class: kind, index }: SwapMove, count: number): Subject | undefined {
  const name = `${kind} ${index}`;
  if (kind === 'record') {
    const record = profile.records[index];
    if (!record || record.sole < 0 || record.uses.length === 0) return undefined;
    const use = Math.min(...record.uses);
    return record.sole < use ? { name, size: record.size, idle: record.sole, use, lastUse: Math.max(...record.uses) } : undefined;
  }
  if (kind === 'layer') {
    const passage = profile.passages[index];
    if (!passage || passage.left >= passage.needed) return undefined;
    return { name, size: passage.size, idle: passage.left, use: passage.needed, lastUse: undefined };
  }
  const item = kind === 'item' ? profile.items[index] : undefined;
  if (!item || item.pre < 0) return undefined;
  // The optimizer uses its state from `pre` to `post`, both included.
  const idle = (item.post + 1) % count;
  return idle === item.pre ? undefined : { name, size: item.size, idle, use: item.pre, lastUse: undefined };
}

/** Nothing moves twice in a step, and the order of copies in is the same in every run. */
function checkTwice(moves: readonly SwapMove[], report: Report): void {
  const names = new Set<string>();
  const turns = new Set<number>();
  for (const { class: kind, index, turn } of moves) {
    const name = `${kind} ${index}`;
    if (names.has(name)) report(`${name} moves twice`);
    if (turns.has(turn)) report(`${name} has turn ${turn}, as another move has`);
    names.add(name);
    turns.add(turn);
  }
}

interface Replayed {
  /** Most bytes on the GPU in a step, from the second step on. */
  readonly peak: number;
  /** Time waited in the settled step; its waits, and those that rounding cannot explain. */
  readonly stallUs: number;
  readonly waits: number;
  readonly certainWaits: number;
  /** How far rounding can move any of these times. */
  readonly slackUs: number;
}

type Place = 'gpu' | 'leaving' | 'host' | 'returning';

/** A move on its way through the steps. */
class Trip {
  readonly move: SwapMove;
  readonly subject: Subject;
  place: Place = 'gpu';
  /** The first steps may begin between a copy out and its return. */
  hasLeft = false;
  /** When the latest copy is over. */
  copied = 0;

  constructor(move: SwapMove, subject: Subject) {
    this.move = move;
    this.subject = subject;
  }
}

function replay(profile: SwapProfile, moves: readonly SwapMove[], subjects: readonly Subject[], report: Report): Replayed {
  const { copies } = profile;
  const { us, peak: unswapped } = profile.ticks;
  const count = us.length;
  const trips = moves.map((move, number) => new Trip(move, subjects[number]!));
  const byTick = (sorted: readonly Trip[], tickOf: (trip: Trip) => number) => {
    const ticks: Trip[][] = us.map(() => []);
    for (const trip of sorted) ticks[tickOf(trip)]!.push(trip);
    return ticks;
  };
  const outs = byTick(trips, ({ move }) => move.out);
  const drops = byTick(trips, ({ move }) => move.drop);
  const backs = byTick(
    trips.toSorted((a, b) => a.move.turn - b.move.turn),
    ({ move }) => move.back,
  );
  const uses = byTick(trips, ({ subject }) => subject.use);
  const slackUs = 2 * ROUNDING_US * (count + moves.length);
  let [now, outFree, inFree, away] = [0, 0, 0, 0];
  let [peak, stallUs, waits, certainWaits] = [0, 0, 0, 0];
  let isSettled = false;
  const copyUs = (size: number, bytesPerSecond: number) => copies.fixedUs + (1e6 * size) / bytesPerSecond;
  const waitFor = ({ copied }: Trip) => {
    const late = copied - now;
    if (late <= 0) return;
    now += late;
    if (!isSettled) return;
    stallUs += late;
    waits++;
    if (late > slackUs) certainWaits++;
  };
  for (let step = 0; step < STEPS; step++) {
    isSettled = step === SETTLED_STEP;
    for (let tick = 0; tick < count; tick++) {
      const fault = ({ subject }: Trip, what: string) => report(`${subject.name} ${what} at tick ${tick} of step ${step}`);
      for (const trip of drops[tick]!) {
        if (trip.place === 'leaving') {
          waitFor(trip);
          trip.place = 'host';
          away += trip.subject.size;
        } else if (trip.hasLeft) fault(trip, 'is to free its memory without a copy out before it');
      }
      for (const trip of backs[tick]!) {
        if (trip.place === 'host') {
          inFree = Math.max(now, inFree) + copyUs(trip.subject.size, copies.inBoth);
          trip.copied = inFree;
          trip.place = 'returning';
          away -= trip.subject.size;
        } else if (trip.hasLeft) fault(trip, 'is to come back and is not on the host');
      }
      for (const trip of outs[tick]!) {
        const { idle, use, size } = trip.subject;
        const isIdle = idle < use ? idle <= tick && tick < use : idle <= tick || tick < use;
        if (!isIdle) fault(trip, 'leaves while it is in use');
        if (trip.place !== 'gpu') fault(trip, 'leaves before it was used again');
        outFree = Math.max(now, outFree) + copyUs(size, copies.outBoth);
        trip.copied = outFree;
        trip.place = 'leaving';
        trip.hasLeft = true;
      }
      for (const trip of uses[tick]!) {
        if (trip.place === 'host') fault(trip, 'is used while it is on the host');
        if (trip.place === 'leaving') fault(trip, 'is used before its memory was freed');
        if (trip.place === 'returning') waitFor(trip);
        trip.place = 'gpu';
      }
      if (step > 0) peak = Math.max(peak, unswapped[tick]! - away);
      now += (us[tick + 1] ?? profile.periodUs) - (tick === 0 ? 0 : us[tick]!);
    }
  }
  return { peak, stallUs, waits, certainWaits, slackUs };
}

function checkExpected(profile: SwapProfile, { moves, expected }: SwapPlan, replayed: Replayed, report: Report): void {
  const equal = (what: string, claimed: unknown, found: unknown) => {
    if (claimed !== found) report(`the plan expects ${what} ${claimed}, and its moves give ${found}`);
  };
  let from = 0;
  for (const bytes of profile.ticks.peak) from = Math.max(from, bytes);
  let moved = 0;
  for (const { size } of moves) moved += size;
  equal('a peak without swapping of', expected.from, from);
  equal('a peak of', expected.peak, replayed.peak);
  equal('bytes moved:', expected.moved, moved);
  equal('a period of', expected.periodUs, profile.periodUs);
  equal('a limit of', expected.limit, profile.limit);
  equal('to keep the limit:', expected.keepsLimit, profile.limit === undefined || replayed.peak <= profile.limit);
  const { stalls, stallUs } = expected;
  if (!(stalls >= replayed.certainWaits && stalls <= replayed.waits))
    report(`the plan expects ${stalls} stalls, and its moves give ${replayed.certainWaits} to ${replayed.waits}`);
  if (!(Math.abs(stallUs - replayed.stallUs) <= replayed.slackUs))
    report(`the plan expects stalls of ${stallUs} us, and its moves give ${replayed.stallUs} us`);
}

/** State and layers keep their host memory. A saved tensor has some from its copy out to its last use. */
function checkHost(profile: SwapProfile, plan: SwapPlan, subjects: readonly Subject[], report: Report): void {
  let most = 0;
  for (let tick = 0; tick < profile.ticks.us.length; tick++) {
    let held = 0;
    for (const [number, { size, lastUse }] of subjects.entries()) {
      if (lastUse === undefined || (plan.moves[number]!.out <= tick && tick <= lastUse)) held += size;
    }
    most = Math.max(most, held);
  }
  if (plan.hostBytes !== most) report(`the plan expects ${plan.hostBytes} bytes of host memory, and its moves need ${most}`);
  if (most > profile.hostLimit) report(`the moves need ${most} bytes of host memory, above the limit of ${profile.hostLimit}`);
}
