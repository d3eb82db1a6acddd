// Answers the processes of a run that ask for swaps: DIR/<pid>.profile.json in, DIR/<pid>.swap.json out.
import { readdirSync, readFileSync, renameSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describePlan, type ProfilePlan, planProfile } from '../../plan/swaps/live/planner.ts';
import { readSwapProfile } from '../../plan/swaps/live/profile.ts';

export interface SwapWatchOptions {
  readonly pollMs?: number | undefined;
  readonly budgetMs?: number | undefined;
  /** Told of each plan, and of each profile that could not be planned. */
  readonly onPlan?: ((pid: number, plan: ProfilePlan, words: string) => void) | undefined;
  readonly onError?: ((pid: number, error: unknown) => void) | undefined;
}

/** What a process counted; DIR/<pid>.swap-report.json, written when it ends. */
export interface SwapReport {
  readonly pid: number;
  readonly steps: number;
  readonly stepsPlanned: number;
  readonly stepsOff: number;
  readonly bytesOut: number;
  readonly bytesIn: number;
  /** Of what went out: parameters, and gradients; not told by older processes. */
  readonly parametersOut?: number;
  readonly gradientsOut?: number;
  /** Copies that debugging compared with what had left. */
  readonly checked?: number;
  /** How often a request found no memory until something left for it, and how much did. */
  readonly reliefs?: number;
  readonly relievedBytes?: number;
  readonly stalls: number;
  readonly stallUs: number;
  readonly misses: number;
  readonly peakAllocated: number;
  readonly peakReserved: number;
  readonly expected: Partial<ProfilePlan['expected']>;
  /** How long a step took without swaps and with them, on the GPU; null where too few were seen. */
  readonly stepUs?: { readonly plain: number | null; readonly planned: number | null };
  readonly stopped: string | null;
}

/** Looks for profiles until the returned function is called. */
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
      const plan = planProfile(readSwapProfile(JSON.parse(readFileSync(path, 'utf8'))), { budgetMs: options.budgetMs });
      const target = join(directory, `${pid}.swap.json`);
      writeFileSync(`${target}.tmp`, JSON.stringify(plan));
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
