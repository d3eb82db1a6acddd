// Answers the processes of a run that ask for swap plans: DIR/<pid>.profile.json in, DIR/<pid>.swap.json out.
// A swap plan is sent only if it passes its check, in the very form in which it is sent.
import { readdirSync, readFileSync, renameSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { InvariantError } from '../../base/errors.ts';
import { describePlan, planProfile } from '../../plan/swaps/live/planner.ts';
import { readSwapProfile } from '../../plan/swaps/live/profile.ts';
import type { ProfilePlan } from '../../plan/swaps/live/swap-plan.ts';
import { verifySwapPlan } from '../../plan/swaps/live/verifier.ts';

export interface SwapWatchOptions {
  readonly pollMs?: number | undefined;
  readonly budgetMs?: number | undefined;
  /** Called for each plan sent, and for each profile without a plan. */
  readonly onPlan?: ((pid: number, plan: ProfilePlan, words: string) => void) | undefined;
  readonly onError?: ((pid: number, error: unknown) => void) | undefined;
  /** Another planner, for tests. */
  readonly planner?: typeof planProfile | undefined;
}

/** Totals of a process, from DIR/<pid>.swap-report.json, which it writes when it ends. */
export interface SwapReport {
  readonly pid: number;
  readonly steps: number;
  readonly stepsPlanned: number;
  readonly stepsOff: number;
  readonly bytesOut: number;
  readonly bytesIn: number;
  /** Bytes of `bytesOut` that were parameters, and gradients. */
  readonly parametersOut?: number;
  readonly gradientsOut?: number;
  /** Copies whose checksums were compared (WEIR_SWAP_DEBUG). */
  readonly checked?: number;
  /** Emergency swap-outs, made because a request found no memory, and their bytes. */
  readonly reliefs?: number;
  readonly relievedBytes?: number;
  readonly stalls: number;
  readonly stallUs: number;
  readonly misses: number;
  readonly peakAllocated: number;
  readonly peakReserved: number;
  readonly expected: Partial<ProfilePlan['expected']>;
  /** GPU time of a step without swaps and with them; null if too few were measured. */
  readonly stepUs?: { readonly plain: number | null; readonly planned: number | null };
  readonly stopped: string | null;
}

/** Polls for profiles until the returned function is called. */
export function watchSwapProfiles(directory: string, options: SwapWatchOptions = {}): () => void {
  const answered = new Map<string, string>();
  const timer = setInterval(() => answerProfiles(directory, answered, options), options.pollMs ?? 100);
  return () => clearInterval(timer);
}

/** Answers each profile that is new since the last call. */
export function answerProfiles(directory: string, answered: Map<string, string>, options: SwapWatchOptions = {}): void {
  for (const name of listOf(directory)) {
    const pid = /^(\d+)\.profile\.json$/.exec(name)?.[1];
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
      const fault = verifySwapPlan(profile, JSON.parse(sent) as ProfilePlan)[0];
      if (fault) throw new InvariantError(`the swap plan did not pass its check: ${fault.message}`);
      const target = join(directory, `${pid}.swap.json`);
      writeFileSync(`${target}.tmp`, sent);
      renameSync(`${target}.tmp`, target);
      options.onPlan?.(Number(pid), plan, describePlan(plan));
    } catch (error) {
      options.onError?.(Number(pid), error);
    }
  }
}

export function readSwapReport(directory: string, pid: number): SwapReport | undefined {
  try {
    return JSON.parse(readFileSync(join(directory, `${pid}.swap-report.json`), 'utf8')) as SwapReport;
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
