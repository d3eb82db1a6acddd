// Answers the processes of a run that ask for swap plans: DIR/<pid>.profile.json in, DIR/<pid>.swap.json out.
// A swap plan is sent only if it passes its check, in the very form in which it is sent.
import { readdirSync, readFileSync, renameSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { EXCHANGE_FILES, type SwapPlan, type SwapReport } from '../../abi/exchange.ts';
import { InvariantError } from '../../base/errors.ts';
import { readShape } from '../../base/shape.ts';
import { describePlan, planProfile } from '../../plan/swaps/live/planner.ts';
import { readSwapProfile } from '../../plan/swaps/live/profile.ts';
import { verifySwapPlan } from '../../plan/swaps/live/verifier.ts';

/** Steps may be as short as this, and the process goes on without a plan until there is one. */
const POLL_MS = 20;

export interface SwapWatchOptions {
  readonly pollMs?: number | undefined;
  readonly budgetMs?: number | undefined;
  /** Called for each plan sent, and for each profile without a plan. */
  readonly onPlan?: ((pid: number, plan: SwapPlan, words: string) => void) | undefined;
  readonly onError?: ((pid: number, error: unknown) => void) | undefined;
  /** Another planner, for tests. */
  readonly planner?: typeof planProfile | undefined;
}

/** Polls for profiles until the returned function is called. */
export function watchSwapProfiles(directory: string, options: SwapWatchOptions = {}): () => void {
  const answered = new Map<string, string>();
  const timer = setInterval(() => answerProfiles(directory, answered, options), options.pollMs ?? POLL_MS);
  return () => clearInterval(timer);
}

/** Answers each profile that is new since the last call. */
export function answerProfiles(directory: string, answered: Map<string, string>, options: SwapWatchOptions = {}): void {
  for (const name of listOf(directory)) {
    const pid = pidIn(name, EXCHANGE_FILES.SwapProfile);
    if (pid === undefined) continue;
    const path = join(directory, name);
    try {
      const { mtimeMs, ino, size } = statSync(path);
      const stamp = `${mtimeMs} ${ino} ${size}`;
      if (answered.get(name) === stamp) continue;
      answered.set(name, stamp);
      const profile = readSwapProfile(JSON.parse(readFileSync(path, 'utf8')));
      const plan = (options.planner ?? planProfile)(profile, { budgetMs: options.budgetMs });
      const sent = JSON.stringify(plan);
      const fault = verifySwapPlan(profile, JSON.parse(sent) as SwapPlan)[0];
      if (fault) throw new InvariantError(`the swap plan did not pass its check: ${fault.message}`);
      const target = join(directory, `${pid}${EXCHANGE_FILES.SwapPlan}`);
      writeFileSync(`${target}.tmp`, sent);
      renameSync(`${target}.tmp`, target);
      options.onPlan?.(pid, plan, describePlan(plan));
    } catch (error) {
      options.onError?.(pid, error);
    }
  }
}

/** The process in the name of a file of this kind; undefined for other files. */
export function pidIn(name: string, ending: string): number | undefined {
  const pid = name.endsWith(ending) ? name.slice(0, -ending.length) : '';
  return /^\d+$/.test(pid) ? Number(pid) : undefined;
}

export function readSwapReport(directory: string, pid: number): SwapReport | undefined {
  try {
    return readShape('SwapReport', JSON.parse(readFileSync(join(directory, `${pid}${EXCHANGE_FILES.SwapReport}`), 'utf8')));
  } catch {
    return undefined;
  }
}

function listOf(directory: string): string[] {
  try {
    return readdirSync(directory);
  } catch {
    return [];
  }
}
