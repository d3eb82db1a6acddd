// The inputs of `weir plan` and `weir verify`, detected by content: a list of buffers, a text trace of mallocs,
// a recording of accesses, or a recording read by src/trace. Checks a plan against any of them.
import { InputError } from '../../base/errors.ts';
import type { Trace } from '../../trace/trace.ts';
import type { Buffer } from '../offsets/buffers.ts';
import { type Fault, verifyOffsets } from '../offsets/verifier.ts';
import { type MemoryOps, opsOfTrace } from '../steps/memory-ops.ts';
import { type FollowedPlan, verifyStepPlan, verifyStepPlanOn } from '../steps/step-plan.ts';
import { type AccessRecording, type SwapStep, swapStepOf } from '../swaps/accesses.ts';
import { gappedBuffers } from '../swaps/planner.ts';
import { verifySwaps } from '../swaps/verifier.ts';
import { accessesOfTrace, hasAccesses, looksLikeAccessJson, looksLikeAutoSwap, readAccessJson, readAutoSwap } from './access-inputs.ts';
import { looksLikeBufferCsv, readBufferCsv } from './buffer-csv.ts';
import { looksLikeMallocText, readMallocText } from './malloc-text.ts';
import type { PlanFile, SwapPlanFile } from './plan-file.ts';

export type PlanInput =
  | { readonly kind: 'buffers'; readonly buffers: readonly Buffer[] }
  | { readonly kind: 'operations'; readonly ops: MemoryOps }
  | { readonly kind: 'accesses'; readonly recording: AccessRecording };

/** Reads the text formats. Returns undefined for other content, which may be a recording for `readRecording`. */
export function readPlanText(text: string): PlanInput | undefined {
  if (looksLikeBufferCsv(text)) return { kind: 'buffers', buffers: readBufferCsv(text) };
  if (looksLikeAutoSwap(text)) return { kind: 'accesses', recording: readAutoSwap(text) };
  if (looksLikeMallocText(text)) return { kind: 'operations', ops: readMallocText(text) };
  if (looksLikeAccessJson(text)) return { kind: 'accesses', recording: readAccessJson(text) };
  return undefined;
}

/** The input for planning offsets, or with `swap` for planning swaps, from a trace. */
export function planInputOf(trace: Trace, swap: boolean): PlanInput {
  if (!swap) return { kind: 'operations', ops: opsOfTrace(trace) };
  if (!hasAccesses(trace)) {
    throw new InputError(
      'the recording does not say which operators read and write which memory, so swaps cannot be planned from it; weir run --swap auto plans them while the job runs',
    );
  }
  return { kind: 'accesses', recording: accessesOfTrace(trace) };
}

/** The step to plan swaps for: a middle one, so that steps before and after it are recorded. */
export function swapStepFrom(recording: AccessRecording): SwapStep {
  if (recording.steps.length === 0) throw new InputError('the recording has no steps; record at least two');
  return swapStepOf(recording, Math.floor((recording.steps.length - 1) / 2));
}

/** Checks a plan against the input it was made for, or against the one it is to be used on. */
export function verifyPlanOn(
  plan: PlanFile,
  input: PlanInput,
): { readonly faults: readonly Fault[]; readonly followed?: FollowedPlan | undefined } {
  if (plan.kind === 'offsets' && input.kind === 'buffers') {
    const layout = { offsets: offsetsById(plan.buffers, plan.layout.offsets, input.buffers), footprint: plan.layout.footprint };
    return { faults: verifyOffsets(input.buffers, layout) };
  }
  if (plan.kind === 'step' && input.kind === 'operations') {
    const followed = verifyStepPlanOn(input.ops, plan.plan);
    const faults = [...verifyStepPlan(plan.plan), ...followed.faults];
    if (followed.planned === 0) {
      faults.push({ message: 'the recording ends before the plan begins: it is from another run' });
    } else if (followed.followed * 2 < followed.planned) {
      faults.push({
        message: `the recording does not follow the plan: ${followed.followed} of ${followed.planned} requests are as planned`,
      });
    }
    return { faults, followed };
  }
  if (plan.kind === 'swaps' && input.kind === 'accesses') return { faults: verifySwapFile(plan, swapStepFrom(input.recording)) };
  throw new InputError(`a plan of kind ${plan.kind} cannot be checked against ${input.kind}; give the file that the plan was made from`);
}

/** Offsets of the plan in the order of `buffers`; NaN for a buffer that the plan does not have. */
function offsetsById(planned: readonly Buffer[], offsets: Float64Array, buffers: readonly Buffer[]): Float64Array {
  const byId = new Map(planned.map((buffer, index) => [buffer.id, offsets[index]!]));
  return Float64Array.from(buffers, (buffer) => byId.get(buffer.id) ?? Number.NaN);
}

function verifySwapFile(plan: SwapPlanFile, step: SwapStep): Fault[] {
  if (Math.abs(plan.periodUs - step.periodUs) > 1) {
    return [{ message: `the plan is for a step of ${plan.periodUs} us, but the recorded step takes ${step.periodUs} us` }];
  }
  const faults = verifySwaps(step, plan.swaps, plan.limit, plan.costs);
  if (faults.length > 0 || plan.offsets.length === 0) return faults;
  const layout = { offsets: Float64Array.from(plan.offsets), footprint: plan.footprint - step.untouchedBytes };
  return verifyOffsets(gappedBuffers(step, plan.swaps, plan.turns, 1), layout);
}
