// Plans that reach a running process as files: followed, replaced, damaged in every way, refused; what the process computes is
// never touched. The process is a job over the host driver that checks every block it was given.
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { encodePlan, type ProcessPlan } from '../../src/plan/files/process-plan.ts';
import { StepWatch, type WatchedPlan } from '../../src/plan/steps/step-watch.ts';
import { EventKind } from '../../src/trace/trace.ts';
import { buildPlanJob, type Sanitizer, whyNoNative } from './build.ts';
import { Ring } from './ring.ts';

interface JobResult {
  readonly hits: number;
  readonly misses: number;
  readonly plans: number;
  readonly refused: number;
  readonly peakLive: number;
  readonly peakReserved: number;
  readonly reserved: number;
  readonly lastCalls: number;
  readonly lastHits: number;
  readonly lastRequests: number;
  readonly failures: number;
  readonly corrupted: number;
}

const root = mkdtempSync(join(tmpdir(), 'weir-plans-'));
afterAll(() => rmSync(root, { recursive: true, force: true }));

/** Runs the job; the folder keeps its ring. */
function run(job: string, options: Readonly<Record<string, number | string>>): { result: JobResult; ring: string } {
  const ring = mkdtempSync(join(root, 'ring-'));
  const words = Object.entries({ ring, ...options }).map(([name, value]) => `${name}=${value}`);
  const { status, signal, stdout, stderr } = spawnSync(job, words, { encoding: 'utf8' });
  if (status !== 0) throw new Error(`${words.join(' ')}: status ${status} ${signal}: ${stderr.slice(0, 4000)}`);
  return { result: JSON.parse(stdout) as JobResult, ring };
}

/** What the supervisor would plan from the recording of a run. */
function planFrom(folder: string): { found: WatchedPlan; plan: ProcessPlan } {
  const ring = new Ring(join(folder, readdirSync(folder).find((name) => name.endsWith('.ring'))!));
  const watch = new StepWatch();
  for (const row of ring.rows(0, ring.u64('tail'))) {
    if (row.kind === EventKind.Alloc) watch.alloc(row.address, row.size, row.stream);
    else if (row.kind === EventKind.FreeRequested) watch.freeRequested(row.address, row.size, row.stream);
    else if (row.kind === EventKind.FreeCompleted) watch.freeCompleted(row.address);
    if (!watch.isDue) continue;
    const found = watch.look({ reserved: 0, outside: 0 });
    if (found.kind !== 'planned') continue;
    const { step, layout: places } = found.plan;
    const sizes = step.blocks.map(({ size }) => size);
    return { found, plan: { device: 0, stream: 0n, sizes, turns: step.turns, offsets: places.offsets, footprint: places.footprint } };
  }
  throw new Error('no step was found');
}

const reason = whyNoNative();
describe.skipIf(reason !== undefined)(`a process that is sent plans${reason ? ` (skipped: ${reason})` : ''}`, () => {
  let job = '';
  let good: ProcessPlan;
  let path = '';
  const written = (name: string, change: Partial<ProcessPlan> = {}) => {
    const file = join(root, name);
    writeFileSync(file, encodePlan({ ...good, ...change }));
    return file;
  };
  beforeAll(() => {
    job = buildPlanJob('none');
    good = planFrom(run(job, { steps: 20 }).ring).plan;
    path = written('good.plan');
  });

  test('holds less, makes no driver call in its last steps and computes the same', () => {
    const without = run(job, { steps: 30 }).result;
    const { result, ring } = run(job, { steps: 30, plan: path, at: 8 });
    expect(result).toMatchObject({ plans: 1, refused: 0, corrupted: 0, lastCalls: 0 });
    expect(result.lastHits).toBe(result.lastRequests);
    expect(result.lastHits).toBe(5 * good.sizes.length);
    expect(result.reserved).toBeLessThan(without.reserved);
    expect(result.reserved).toBeLessThan(1.03 * result.peakLive);
    // Said in the recording, as marks.
    const file = new Ring(join(ring, readdirSync(ring).find((name) => name.endsWith('.ring'))!));
    const marks = file.rows(0, file.u64('tail')).filter(({ kind }) => kind === EventKind.Mark);
    expect(marks.map(({ detail }) => detail)).toEqual([1, 2]);
    expect([file.gauge('planned_hits'), file.gauge('plans')]).toEqual([result.hits, 1]);
  });

  test('serves what is as planned between requests that are not', () => {
    for (const seed of [1, 2, 3]) {
      const plan = join(root, `${seed}.plan`);
      writeFileSync(plan, encodePlan(planFrom(run(job, { steps: 20, seed }).ring).plan));
      const { result } = run(job, { steps: 60, plan, at: 8, deviate: 30, seed });
      expect(result).toMatchObject({ plans: 1, corrupted: 0 });
      expect(result.hits).toBeGreaterThan(0);
      expect(result.misses).toBeGreaterThan(0);
    }
  });

  test('a plan for other steps is installed and of no use', () => {
    const plan = written('other.plan', { sizes: Array.from(good.sizes, (size) => size + 512), footprint: good.footprint + 512 });
    expect(run(job, { steps: 30, plan, at: 8 }).result).toMatchObject({ plans: 1, hits: 0, corrupted: 0 });
  });

  test('a plan whose places overlap is followed as far as they are free', () => {
    const plan = written('overlapping.plan', { offsets: new Float64Array(good.offsets.length) });
    const { result } = run(job, { steps: 30, plan, at: 8 });
    expect(result).toMatchObject({ plans: 1, corrupted: 0 });
    expect(result.misses).toBeGreaterThan(result.hits);
  });

  test.each([
    ['for a stream that nobody uses', { stream: 0x1234_5678_9abcn }],
    ['for the stream that cannot be', { stream: 2n ** 64n - 1n }],
    ['with a place above its end', { footprint: 512 }],
    ['larger than any memory', { footprint: 2 ** 41 }],
    ['with a size that is none', { sizes: [100] as number[], offsets: [0], turns: 1 }],
    ['of more turns than there can be', { turns: 17 }],
    ['without requests', { sizes: [] as number[], offsets: [] as number[] }],
  ])('one %s is refused and counted', (name, change) => {
    const { result } = run(job, { steps: 20, plan: written(`${name}.plan`, change), at: 8 });
    expect(result).toMatchObject({ plans: 0, refused: 1, hits: 0, corrupted: 0 });
  });

  test('one for another GPU is left to it', () => {
    expect(run(job, { steps: 20, plan: written('gpu.plan', { device: 3 }), at: 8 }).result).toMatchObject({
      plans: 0,
      refused: 0,
      corrupted: 0,
    });
  });

  test('every byte of a plan flipped, and every beginning of one', () => {
    const { result } = run(job, { steps: 20, plan: path, at: 10, corrupt: 1 });
    expect(result.corrupted).toBe(0);
    expect(result.refused).toBeGreaterThan(encodePlan(good).length);
    expect(result.plans).toBeGreaterThan(0);
  });

  test('none is taken while a graph is captured', () => {
    expect(run(job, { steps: 30, plan: path, at: 8, capture: 1 }).result).toMatchObject({ plans: 1, corrupted: 0 });
  });

  test.each([2_000, 20_000, 200_000])('%d of a million driver calls fail', (rate) => {
    for (const seed of [1, 2, 3]) expect(run(job, { steps: 40, plan: path, at: 8, rate, seed }).result.corrupted).toBe(0);
    expect(run(job, { steps: 40, plan: path, at: 8, rate, deviate: 20 }).result.corrupted).toBe(0);
  });

  test('another thread allocates meanwhile', () => {
    const { result } = run(job, { steps: 60, plan: path, at: 8, noise: 1 });
    expect(result).toMatchObject({ plans: 1, corrupted: 0 });
    expect(result.hits).toBeGreaterThan(0);
  });

  test.each(['address,undefined', 'thread'] as const)('sanitizer %s', (sanitizer: Sanitizer) => {
    if (whyNoNative(sanitizer) !== undefined) return;
    const checked = buildPlanJob(sanitizer);
    expect(run(checked, { steps: 20, plan: path, at: 8 }).result).toMatchObject({ plans: 1, corrupted: 0, lastCalls: 0 });
    expect(run(checked, { steps: 20, plan: path, at: 8, noise: 1, deviate: 20 }).result.corrupted).toBe(0);
    expect(run(checked, { steps: 20, plan: path, at: 8, rate: 20_000 }).result.corrupted).toBe(0);
    if (sanitizer !== 'thread') expect(run(checked, { steps: 20, plan: path, at: 10, corrupt: 1 }).result.corrupted).toBe(0);
  });
});
