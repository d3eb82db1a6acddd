// The allocator `planned`: our engine with a plan for the step that a run repeats.
// Unlike the other allocators, it must see the recording first.
import { ENGINE_PRESETS } from '../../abi/settings.ts';
import { createWeir } from '../../allocator/engine/allocator.ts';
import type { AllocatorChoice } from '../../allocator/registry.ts';
import { InputError, InvariantError } from '../../base/errors.ts';
import type { Trace } from '../../trace/trace.ts';
import { opsOfTrace } from './memory-ops.ts';
import { mainStreamOf } from './step.ts';
import { enginePlanOf, findStep, type NoStep, planStep } from './step-plan.ts';

/** Enough for most layouts of training steps to reach their lower bound. */
const BUDGET_MS = 1500;

/** The allocator with the plan for a recording, or the reason why there is none. */
export function plannedChoice(trace: Trace): AllocatorChoice | NoStep {
  const found = findStep(opsOfTrace(trace));
  if (!found.periodic) return found;
  const plan = enginePlanOf(planStep(mainStreamOf(found.step), { budgetMs: BUDGET_MS }));
  return {
    name: 'planned',
    kind: 'planned',
    settings: '',
    create: (context) => {
      const allocator = createWeir(context, ENGINE_PRESETS.planned);
      if (allocator.installPlan(plan) === 0) throw new InvariantError('the engine refuses the plan');
      return allocator;
    },
  };
}

/** Replaces the choice `planned` by the plan for this recording. Returns other choices unchanged. */
export function withPlan(choice: AllocatorChoice, trace: Trace): AllocatorChoice {
  if (choice.kind !== 'planned') return choice;
  const planned = plannedChoice(trace);
  if ('periodic' in planned) throw new InputError(`there is no step to plan: ${planned.reason}`);
  return planned;
}
