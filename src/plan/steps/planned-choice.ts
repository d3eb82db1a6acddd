// `planned` among the other allocators: our engine with a plan of the step that a run repeats.
// Unlike the others it has to see the recording first.
import { createWeir } from '../../allocator/engine/allocator.ts';
import type { AllocatorChoice } from '../../allocator/registry.ts';
import { InputError, InvariantError } from '../../base/errors.ts';
import type { Trace } from '../../trace/trace.ts';
import { opsOfTrace } from './memory-ops.ts';
import { mainStreamOf } from './step.ts';
import { enginePlanOf, findStep, type NoStep, planStep } from './step-plan.ts';

/** Enough for the layouts of training steps to reach their lower bound, which most do at once. */
const BUDGET_MS = 1500;

/** The plan for a recording as an allocator, or why there is none. */
export function plannedChoice(trace: Trace): AllocatorChoice | NoStep {
  const found = findStep(opsOfTrace(trace));
  if (!found.periodic) return found;
  const plan = enginePlanOf(planStep(mainStreamOf(found.step), { budgetMs: BUDGET_MS }));
  return {
    name: 'planned',
    kind: 'planned',
    settings: '',
    create: (context) => {
      const allocator = createWeir(context);
      if (allocator.installPlan(plan) === 0) throw new InvariantError('the engine refuses the plan');
      return allocator;
    },
  };
}

/** Replaces `planned` by the plan for this recording; other choices stay as they are. */
export function withPlan(choice: AllocatorChoice, trace: Trace): AllocatorChoice {
  if (choice.kind !== 'planned') return choice;
  const planned = plannedChoice(trace);
  if ('periodic' in planned) throw new InputError(`there is nothing to plan, since the run is not periodic: ${planned.reason}`);
  return planned;
}
