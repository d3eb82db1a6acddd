// What a step takes when the process follows a swap plan tick by tick: memory, waits, host memory. The planner decides by it.
// Pure.

import type { SwapMove } from '../../../abi/exchange.ts';
import { type Gap, gapOfPassage, gapOfRecord, type SwapProfile } from './profile.ts';

export interface Following {
  /** Most bytes allocated. */
  readonly peak: number;
  /** Per step, once settled. */
  readonly stalls: number;
  readonly stallUs: number;
  /** Uses of tensors that are still on the host; the process swaps each in on demand. */
  readonly misses: number;
  /** Most bytes of host memory at once. */
  readonly hostBytes: number;
  /** Bytes held from each tick to the next. */
  readonly load: Float64Array;
}

/** The gap in which the tensor may be away. Optimizer state has none: its gap goes past the end of the step. */
export function gapOf(profile: SwapProfile, { class: kind, index }: Pick<SwapMove, 'class' | 'index'>): Gap | undefined {
  if (kind === 'item') return undefined;
  return kind === 'record' ? gapOfRecord(profile.records[index]!) : gapOfPassage(profile.passages[index]!);
}

/** Whether the ticks are in order and within the gap. Memory is dropped before copies out begin, so `drop` comes a tick later. */
export function isSound(profile: SwapProfile, move: SwapMove): boolean {
  const gap = gapOf(profile, move);
  if (gap) return gap.free <= move.out && move.out < move.drop && move.drop < move.back && move.back <= gap.use;
  const count = profile.ticks.us.length;
  const { pre, post } = profile.items[move.index]!;
  const since = (tick: number) => (tick - post + count) % count;
  const until = since(pre) === 0 ? count : since(pre);
  return since(move.out) > 0 && since(move.out) < since(move.drop) && since(move.drop) < since(move.back) && since(move.back) <= until;
}

const STEPS = 4;
/** Shorter waits are rounding errors. */
const NOTHING_US = 0.01;

export function followMoves(profile: SwapProfile, moves: readonly SwapMove[]): Following {
  const { us, peak } = profile.ticks;
  const { copies } = profile;
  const count = us.length;
  const copyUs = (size: number, bytesPerSecond: number) => copies.fixedUs + (size / bytesPerSecond) * 1e6;
  const at = (tick: (move: SwapMove) => number, by: (a: SwapMove, b: SwapMove) => number) => {
    const lists: SwapMove[][] = Array.from({ length: count }, () => []);
    for (const move of [...moves].sort(by)) lists[tick(move)]!.push(move);
    return lists;
  };
  const inOrder = (a: SwapMove, b: SwapMove) => moves.indexOf(a) - moves.indexOf(b);
  const outs = at((move) => move.out, inOrder);
  const drops = at((move) => move.drop, inOrder);
  const backs = at(
    (move) => move.back,
    (a, b) => a.turn - b.turn,
  );
  const uses = at((move) => gapOf(profile, move)?.use ?? profile.items[move.index]!.pre, inOrder);
  const state = new Map<SwapMove, 'here' | 'leaving' | 'away' | 'returning'>(moves.map((move) => [move, 'here']));
  const done = new Map<SwapMove, number>();
  const load = new Float64Array(count);
  let now = 0;
  let outFree = 0;
  let backFree = 0;
  let away = 0;
  let stalls = 0;
  let stallUs = 0;
  let misses = 0;
  const waitFor = (move: SwapMove) => {
    const late = done.get(move)! - now;
    if (late <= NOTHING_US) return;
    now += late;
    stalls++;
    stallUs += late;
  };
  const bring = (move: SwapMove) => {
    backFree = Math.max(now, backFree) + copyUs(move.size, copies.inBoth);
    done.set(move, backFree);
    state.set(move, 'returning');
    away -= move.size;
  };
  for (let step = 0; step < STEPS; step++) {
    stalls = 0;
    stallUs = 0;
    misses = 0;
    for (let tick = 0; tick < count; tick++) {
      for (const move of drops[tick]!) {
        if (state.get(move) !== 'leaving') continue;
        waitFor(move);
        state.set(move, 'away');
        away += move.size;
      }
      for (const move of backs[tick]!) if (state.get(move) === 'away') bring(move);
      for (const move of outs[tick]!) {
        outFree = Math.max(now, outFree) + copyUs(move.size, copies.outBoth);
        done.set(move, outFree);
        state.set(move, 'leaving');
      }
      for (const move of uses[tick]!) {
        if (state.get(move) === 'away') {
          misses++;
          bring(move);
        }
        if (state.get(move) === 'returning') waitFor(move);
        state.set(move, 'here');
      }
      load[tick] = peak[tick]! - away;
      now += (us[tick + 1] ?? profile.periodUs) - us[tick]!;
    }
  }
  return {
    peak: load.reduce((most, bytes) => Math.max(most, bytes), 0),
    stalls,
    stallUs,
    misses,
    hostBytes: hostBytesOf(profile, moves),
    load,
  };
}

/** State and layers keep their host memory. A saved tensor has some from its copy out to its last use. */
export function hostBytesOf(profile: SwapProfile, moves: readonly SwapMove[]): number {
  const changes = new Float64Array(profile.ticks.us.length + 1);
  let always = 0;
  for (const move of moves) {
    const gap = move.class === 'record' ? gapOf(profile, move) : undefined;
    if (!gap) {
      always += move.size;
      continue;
    }
    changes[move.out]! += move.size;
    changes[gap.last + 1]! -= move.size;
  }
  let most = 0;
  let held = 0;
  for (const change of changes) {
    held += change;
    most = Math.max(most, held);
  }
  return always + most;
}
