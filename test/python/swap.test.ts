// Swapping inside Python, on a GPU made of host memory whose copies are as late as the waits allow.
import { execFile, spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, test } from 'vitest';
import type { SwapPlan } from '../../src/abi/exchange.ts';
import { readSwapReport, watchSwapProfiles } from '../../src/run/swapping/swap-watch.ts';

const PYTHON = process.env['WEIR_TEST_PYTHON'] ?? 'python3';
const has = spawnSync(PYTHON, ['-c', 'import torch'], { cwd: tmpdir(), encoding: 'utf8' });
const reason = has.status === 0 ? '' : ` (skipped: ${PYTHON} has no torch; WEIR_TEST_PYTHON names one that has)`;
const script = (name: string) => fileURLToPath(new URL(name, import.meta.url));

describe.skipIf(reason !== '')(`swapping in Python${reason}`, () => {
  const files = [
    'values',
    'compile',
    'contexts',
    'lifetimes',
    'native_reach',
    'not_streamed',
    'deviations',
    'errors',
    'fences',
    'gradients',
    'interrupts',
    'large',
    'optimizer_state',
    'order',
    'other_optimizers',
    'parameters',
    'parameter_reach',
    'pinning',
    'pace',
    'plan',
    'relief',
    'sharded',
    'side_streams',
    'sooner',
    'streamed_step',
    'surroundings',
    'threads',
  ];
  test.each(files)('%s', (name) => {
    const run = spawnSync(PYTHON, [script(`swap/test_${name}.py`)], { encoding: 'utf8', timeout: 230_000 });
    expect(run.status, run.stderr.slice(-4000)).toBe(0);
    expect(run.stderr).toMatch(/Ran \d+ tests/);
  });

  test('that is all there is to test', () => {
    const found = readdirSync(script('swap')).filter((name) => name.startsWith('test_'));
    expect(found.sort()).toEqual(files.map((name) => `test_${name}.py`).sort());
  });

  async function follow(...more: string[]) {
    const folder = mkdtempSync(join(tmpdir(), 'weir-swap-'));
    const errors: unknown[] = [];
    const plans = new Map<number, SwapPlan>();
    const stop = watchSwapProfiles(folder, {
      budgetMs: 300,
      pollMs: 20,
      onPlan: (pid, plan) => plans.set(pid, plan),
      onError: (_, error) => errors.push(error),
    });
    const output = await new Promise<string>((resolve, reject) => {
      execFile(PYTHON, [script('swap/follow.py'), folder, ...more], { timeout: 200_000 }, (error, stdout, stderr) =>
        error ? reject(new Error(stderr.slice(-4000))) : resolve(stdout),
      );
    }).finally(stop);
    expect(errors).toEqual([]);
    const [[pid, plan]] = [...plans] as [[number, SwapPlan]];
    const { same, faults, freed, report } = JSON.parse(output);
    expect([same, faults]).toEqual([true, []]);
    expect(freed).toBeGreaterThan(10);
    expect(report).toMatchObject({ stopped: null, plans: 1, stepsOff: 0, misses: 0 });
    expect(report.stepsPlanned).toBeGreaterThanOrEqual(5);
    expect(report.expected.peak).toBeLessThan(report.expected.from);
    expect(report.peakAllocated).toBeLessThanOrEqual(report.expected.from);
    expect(readSwapReport(folder, pid)).toMatchObject({ plans: 1 });
    rmSync(folder, { recursive: true });
    return { plan, report };
  }

  test('a plan made by the supervisor is followed', async () => {
    const { plan, report } = await follow();
    expect(plan.moves.filter((move) => move.class === 'layer')).toEqual([]);
    expect(report.parametersOut).toBe(0);
  });

  test('a plan under a limit that only parameters can keep is followed', async () => {
    const { plan, report } = await follow('200000');
    expect(plan.moves.filter((move) => move.class === 'layer').length).toBeGreaterThan(0);
    expect(report.parametersOut).toBeGreaterThan(0);
  });

  test('a plan for steps whose state does not fit leaves the state to them', async () => {
    const { plan, report } = await follow('300000', 'state');
    expect(plan.moves.filter((move) => move.class === 'item')).toEqual([]);
    expect(plan.moves.length).toBeGreaterThan(0);
    expect(report.stepsStreamed).toBeGreaterThanOrEqual(13);
  });
});
