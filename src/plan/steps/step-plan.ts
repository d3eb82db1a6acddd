// The plan for a recorded run: its step, an offset for every block of the step, and the memory this needs in total.
// If the run has no step, the reason why.

import type { EnginePlan } from '../../allocator/engine/allocator.ts';
import { LIVE_UNIT } from '../../trace/summary.ts';
import type { Layout } from '../offsets/buffers.ts';
import { type OffsetsOptions, planOffsets } from '../offsets/planner.ts';
import { type Fault, verifyOffsets } from '../offsets/verifier.ts';
import { planSmartPool } from '../steps/smartpool.ts';
import type { MemoryOps } from './memory-ops.ts';
import { findPeriod, isPeriodic, type Period } from './period.ts';
import { buffersOfStep, extractStep, type Step, unrollStep } from './step.ts';

export interface FoundStep {
  readonly periodic: true;
  readonly period: Period;
  readonly step: Step;
  /** Peak of live bytes in the recording. */
  readonly peak: number;
  /** Total memory that SmartPool would need, for comparison. */
  readonly smartPoolTotal: number;
}

export interface NoStep {
  readonly periodic: false;
  readonly reason: string;
}

export function findStep(ops: MemoryOps): FoundStep | NoStep {
  const period = findPeriod(ops);
  if (!isPeriodic(period)) return { periodic: false, reason: period.reason };
  const step = extractStep(ops, period);
  if (step.blocks.length === 0) return { periodic: false, reason: 'its steps free nothing that they allocate' };
  return { periodic: true, period, step, peak: ops.peak, smartPoolTotal: planSmartPool(step).total };
}

/** A step with the offsets of its blocks for each turn. */
export interface StepPlan {
  readonly step: Step;
  /** `layout.offsets[block * turns + turn]`. */
  readonly layout: Layout;
  readonly lowerBound: number;
}

/** The plan in the form that the engine takes. The step must be of one stream (see `mainStreamOf`). */
export function enginePlanOf({ step, layout }: StepPlan): EnginePlan {
  return { requests: step.blocks, turns: step.turns, offsets: layout.offsets, footprint: layout.footprint };
}

/** Plans offsets in this thread. To plan in several, give `buffersOfStep` to `planOffsetsInWorkers`. */
export function planStep(step: Step, options: OffsetsOptions = {}): StepPlan {
  const { offsets, footprint, lowerBound } = planOffsets(buffersOfStep(step, LIVE_UNIT), options);
  return { step, layout: { offsets, footprint }, lowerBound };
}

/** Checks a plan by itself: its lifetimes, repeated step after step, must never share bytes. */
export function verifyStepPlan(plan: StepPlan): Fault[] {
  const unrolled = unrollStep(plan.step, plan.layout);
  return verifyOffsets(unrolled.buffers, unrolled.layout);
}

export interface FollowedPlan {
  readonly faults: readonly Fault[];
  /** Requests of the recording that the plan covers, and how many of them are as planned. */
  readonly planned: number;
  readonly followed: number;
}

/** Checks a plan against the lifetimes of a recording, in every step that follows the plan. */
export function verifyStepPlanOn(ops: MemoryOps, plan: StepPlan): FollowedPlan {
  const { step, layout } = plan;
  const buffers = [];
  const offsets: number[] = [];
  let planned = 0;
  for (let round = 0; step.start + round * step.period < ops.count; round++) {
    for (let index = 0; index < step.blocks.length; index++) {
      const block = step.blocks[index]!;
      const op = step.start + round * step.period + block.birth;
      if (op >= ops.count) break;
      planned++;
      if (!ops.isAlloc[op] || ops.size[op] !== block.size || ops.stream[op] !== block.stream) continue;
      const end = ops.partner[op]!;
      // The engine checks that a planned range is free, so a block that outlives its plan is not overwritten.
      const to = Math.min(end < 0 ? Number.POSITIVE_INFINITY : end + 1, op + block.death - block.birth);
      buffers.push({ id: `${index} of step ${round}`, size: block.size, spans: [{ from: op, to }], alignment: LIVE_UNIT });
      offsets.push(layout.offsets[index * step.turns + (round % step.turns)]!);
    }
  }
  const faults = verifyOffsets(buffers, { offsets: Float64Array.from(offsets), footprint: layout.footprint });
  return { faults, planned, followed: buffers.length };
}
