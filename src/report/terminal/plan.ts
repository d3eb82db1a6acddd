// Plans for the terminal: the rows of words/plan.ts, and a small picture below.
import { printable } from '../../base/printable.ts';
import type { Fault } from '../../plan/offsets/verifier.ts';
import type { NoStep } from '../../plan/steps/step-plan.ts';
import type { FollowedPlan } from '../../plan/steps/verifier.ts';
import type { OffsetsFacts, PlanFacts } from '../plan.ts';
import { followedWords, planRows } from '../words/plan.ts';

const NAME_WIDTH = 11;

export function formatPlan(facts: PlanFacts | OffsetsFacts, picture: readonly string[]): string {
  const rows = planRows(facts).map(({ name, words }) => `${name.padEnd(NAME_WIDTH)}${words}`);
  return lines(picture.length === 0 ? rows : [...rows, '', ...picture]);
}

export function formatNotPeriodic({ reason }: NoStep): string {
  return lines([
    `no plan: the run is not periodic, ${reason}.`,
    'A plan needs steps that repeat. weir replay FILE compares allocators that need no plan.',
  ]);
}

/** The outcome of `weir verify`. */
export function formatVerification(what: string, faults: readonly Fault[], followed?: FollowedPlan): string {
  const share = followed && followed.planned > 0 ? [followedWords(followed)] : [];
  return lines([
    `${faults.length === 0 ? 'correct' : 'wrong'}: ${what}`,
    ...share,
    ...faults.map((fault) => `  ${printable(fault.message)}`),
  ]);
}

function lines(parts: readonly string[]): string {
  return `${parts.join('\n')}\n`;
}
