// The plan for a recorded run: its step, an offset for every block of the step, and the memory this needs in total.
// If the run has no step, the reason why.

import type { EnginePlan } from '../../allocator/engine/allocator.ts';
import { LIVE_UNIT } from '../../trace/summary.ts';
import type { Layout } from '../offsets/buffers.ts';
import { type OffsetsOptions, planOffsets } from '../offsets/planner.ts';
import { planSmartPool } from '../steps/smartpool.ts';
import type { MemoryOps } from './memory-ops.ts';
import { findPeriod, isPeriodic, type Period } from './period.ts';
import { buffersOfStep, extractStep, type Step } from './step.ts';

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
