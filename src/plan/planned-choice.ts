// `planned` among the other allocators: the step that a run repeats, planned, over expandable segments for the rest.
// Unlike the others it has to see the recording first.
import { type AllocatorChoice, chooseAllocators } from '../allocator/registry.ts';
import { InputError } from '../base/errors.ts';
import type { Trace } from '../trace/trace.ts';
import { opsOfTrace } from './memory-ops.ts';
import { PlannedAllocator } from './planned-allocator.ts';
import { findStep, type NoStep, planStep } from './step-plan.ts';

/** Enough for the layouts of training steps to reach their lower bound, which most do at once. */
const BUDGET_MS = 1500;
const DYNAMIC = 'expandable';

/** The plan for a recording as an allocator, or why there is none. */
export function plannedChoice(trace: Trace): AllocatorChoice | NoStep {
  const found = findStep(opsOfTrace(trace));
  if (!found.periodic) return found;
  const plan = planStep(found.step, { budgetMs: BUDGET_MS });
  const [dynamic] = chooseAllocators(DYNAMIC);
  return {
    name: 'planned',
    kind: 'planned',
    settings: '',
    create: (context) => new PlannedAllocator(context, plan, dynamic!.create),
  };
}

/** Replaces `planned` by the plan for this recording; other choices stay as they are. */
export function withPlan(choice: AllocatorChoice, trace: Trace): AllocatorChoice {
  if (choice.kind !== 'planned') return choice;
  const planned = plannedChoice(trace);
  if ('periodic' in planned) throw new InputError(`there is nothing to plan, since the run is not periodic: ${planned.reason}`);
  return planned;
}
