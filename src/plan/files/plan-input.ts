// The inputs of `weir plan` and `weir verify`, detected by content: a list of buffers, a text trace of mallocs,
// a recording of accesses, or a recording read by src/trace. Checks a plan against any of them.
import { InputError } from '../../base/errors.ts';
import type { Trace } from '../../trace/trace.ts';
import type { Buffer } from '../offsets/buffers.ts';
import { type Fault, verifyOffsets } from '../offsets/verifier.ts';
import { type MemoryOps, opsOfTrace } from '../steps/memory-ops.ts';
import { type FollowedPlan, verifyStepPlan, verifyStepPlanOn } from '../steps/verifier.ts';
import { type AccessRecording, type SwapStep, swapStepOf } from '../swaps/accesses.ts';
import { peakWithoutSwaps, verifySwapLayout, verifySwaps } from '../swaps/verifier.ts';
import { accessesOfTrace, hasAccesses, looksLikeAccessJson, readAccessJson } from './access-inputs.ts';
import { looksLikeAutoSwap, readAutoSwap } from './autoswap-trace.ts';
import { looksLikeBufferCsv, readBufferCsv } from './buffer-csv.ts';
import { looksLikeMallocText, readMallocText } from './malloc-text.ts';
import type { OffsetsPlanFile, PlanFile, SwapPlanFile } from './plan-file.ts';

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
      'the recording does not say which operators read and write which memory, so swaps cannot be planned from it; weir record --accesses records that, and weir run --swap auto plans them while the job runs',
    );
  }
  return { kind: 'accesses', recording: accessesOfTrace(trace) };
}

/** No step takes longer: 11 days. Sums of times stay exact. */
const MOST_PERIOD_US = 1e12;

/** The step to plan swaps for: a middle one, so that steps before and after it are recorded. */
export function swapStepFrom(recording: AccessRecording): SwapStep {
  if (recording.steps.length === 0) throw new InputError('the recording has no steps; record at least two');
  const step = swapStepOf(recording, Math.floor((recording.steps.length - 1) / 2));
  if (!(step.periodUs > 0 && step.periodUs <= MOST_PERIOD_US))
    throw new InputError(`the step of the recording takes ${step.periodUs} us; record it with times in microseconds`);
  return step;
}

/** Checks a plan against the input it was made for, or against the one it is to be used on. */
export function verifyPlanOn(
  plan: PlanFile,
  input: PlanInput,
): { readonly faults: readonly Fault[]; readonly followed?: FollowedPlan | undefined } {
  if (plan.kind === 'offsets' && input.kind === 'buffers') return { faults: verifyBuffersFile(plan, input.buffers) };
  if (plan.kind === 'step' && input.kind === 'operations') {
    const followed = verifyStepPlanOn(input.ops, plan.plan);
    return { faults: [...verifyStepPlan(plan.plan), ...followed.faults], followed };
  }
  if (plan.kind === 'swaps' && input.kind === 'accesses') return { faults: verifySwapFile(plan, swapStepFrom(input.recording)) };
  throw new InputError(`a plan of kind ${plan.kind} cannot be checked against ${input.kind}; give the file that the plan was made from`);
}

/** The plan must hold exactly the buffers of the input, in any order. Ids may occur more than once. */
function verifyBuffersFile(plan: OffsetsPlanFile, buffers: readonly Buffer[]): Fault[] {
  const planned = new Map<string, number[]>();
  for (let index = plan.buffers.length - 1; index >= 0; index--) {
    const { id } = plan.buffers[index]!;
    const own = planned.get(id);
    if (own) own.push(index);
    else planned.set(id, [index]);
  }
  const faults: Fault[] = [];
  const offsets = buffers.map((buffer) => {
    const index = planned.get(buffer.id)?.pop();
    const found = index === undefined ? undefined : plan.buffers[index]!;
    if (!found) faults.push({ message: `the plan lacks buffer ${buffer.id}` });
    else if (found.size !== buffer.size)
      faults.push({ message: `buffer ${buffer.id} has ${found.size} bytes in the plan and ${buffer.size} in the list` });
    else if (lifeOf(found) !== lifeOf(buffer))
      faults.push({ message: `buffer ${buffer.id} lives ${lifeOf(found)} in the plan and ${lifeOf(buffer)} in the list` });
    return plan.layout.offsets[index ?? 0] ?? 0;
  });
  if (plan.buffers.length > buffers.length)
    faults.push({ message: `the plan has ${plan.buffers.length} buffers, and the list only ${buffers.length}` });
  if (faults.length > 0) return faults.slice(0, 10);
  return verifyOffsets(buffers, { offsets: Float64Array.from(offsets), footprint: plan.layout.footprint });
}

function lifeOf({ spans }: Buffer): string {
  return spans.map(({ from, to }) => `from ${from} to ${to}`).join(', ');
}

function verifySwapFile(plan: SwapPlanFile, step: SwapStep): Fault[] {
  if (Math.abs(plan.periodUs - step.periodUs) > 1) {
    return [{ message: `the plan is for a step of ${plan.periodUs} us, but the recorded step takes ${step.periodUs} us` }];
  }
  const peak = peakWithoutSwaps(step);
  if (plan.peak !== peak) return [{ message: `the plan is for a peak of ${plan.peak} bytes, but the recorded step has ${peak}` }];
  const faults = verifySwaps(step, plan.swaps, plan.limit, plan.costs);
  if (faults.length > 0) return faults;
  return verifySwapLayout(step, plan.swaps, plan.turns, { offsets: plan.offsets, footprint: plan.footprint - step.untouchedBytes });
}
