// Plans for the terminal: the rows of words/plan.ts, and a small picture below.
import { formatBytes } from '../../base/bytes.ts';
import type { Fault } from '../../plan/offsets/verifier.ts';
import type { FollowedPlan, NoStep } from '../../plan/steps/step-plan.ts';
import type { OffsetsFacts, PlanFacts } from '../plan.ts';
import { CURVE_COLUMNS, overheadWords, planRows } from '../words/plan.ts';

const NAME_WIDTH = 11;
const CURVE_WIDTH = 13;

export function formatPlan(facts: PlanFacts | OffsetsFacts, picture: readonly string[]): string {
  const rows = planRows(facts).map(({ name, words }) => `${name.padEnd(NAME_WIDTH)}${words}`);
  return lines([...rows, ...curveLines(facts), '', ...picture]);
}

/** What lower limits cost. */
function curveLines(facts: PlanFacts | OffsetsFacts): string[] {
  if (facts.kind !== 'swaps' || facts.plan.curve.length < 2) return [];
  return [
    '',
    `${CURVE_COLUMNS.limit.padEnd(CURVE_WIDTH)}${CURVE_COLUMNS.overhead}`,
    ...facts.plan.curve.map(({ limit, overhead }) => `${formatBytes(limit).padEnd(CURVE_WIDTH)}${overheadWords(overhead)}`),
  ];
}

export function formatNotPeriodic({ reason }: NoStep): string {
  return lines([
    `no plan: the run is not periodic, ${reason}.`,
    'A plan needs steps that repeat. weir replay FILE compares allocators that need no plan.',
  ]);
}

/** The outcome of `weir verify`. */
export function formatVerification(what: string, faults: readonly Fault[], followed?: FollowedPlan): string {
  const share =
    followed && followed.planned > 0 ? [`The recording follows the plan in ${followed.followed} of ${followed.planned} requests.`] : [];
  return lines([`${faults.length === 0 ? 'correct' : 'wrong'}: ${what}`, ...share, ...faults.map((fault) => `  ${fault.message}`)]);
}

function lines(parts: readonly string[]): string {
  return `${parts.join('\n')}\n`;
}
