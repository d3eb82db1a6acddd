// Swapping inside Python, on a GPU made of host memory whose copies are as late as the waits allow.
import { execFile, spawnSync } from 'node:child_process';
import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, test } from 'vitest';
import { readSwapReport, watchSwapProfiles } from '../../src/run/swap-watch.ts';

const PYTHON = process.env['WEIR_TEST_PYTHON'] ?? 'python3';
const has = spawnSync(PYTHON, ['-c', 'import torch'], { cwd: tmpdir(), encoding: 'utf8' });
const reason = has.status === 0 ? '' : ` (skipped: ${PYTHON} has no torch; WEIR_TEST_PYTHON names one that has)`;
const script = (name: string) => fileURLToPath(new URL(name, import.meta.url));

describe.skipIf(reason !== '')(`swapping in Python${reason}`, () => {
  test('values, deviations, errors, optimizer state, host memory, surroundings', () => {
    const run = spawnSync(PYTHON, [script('swap_checks.py')], { encoding: 'utf8', timeout: 230_000 });
    expect(run.status, run.stderr.slice(-4000)).toBe(0);
    expect(run.stderr).toMatch(/Ran \d+ tests/);
  });

  test('a plan made by the supervisor is followed', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'weir-swap-'));
    const errors: unknown[] = [];
    let pid = 0;
    const stop = watchSwapProfiles(folder, {
      budgetMs: 300,
      pollMs: 20,
      onPlan: (process) => {
        pid = process;
      },
      onError: (_, error) => errors.push(error),
    });
    const output = await new Promise<string>((resolve, reject) => {
      execFile(PYTHON, [script('swap_follow.py'), folder], { timeout: 200_000 }, (error, stdout, stderr) =>
        error ? reject(new Error(stderr.slice(-4000))) : resolve(stdout),
      );
    }).finally(stop);
    const { same, faults, freed, report } = JSON.parse(output);
    expect(errors).toEqual([]);
    expect(same).toBe(true);
    expect(faults).toEqual([]);
    expect(freed).toBeGreaterThan(10);
    expect(report).toMatchObject({ stopped: null, plans: 1, stepsOff: 0, misses: 0 });
    expect(report.stepsPlanned).toBeGreaterThanOrEqual(5);
    expect(report.expected.peak).toBeLessThan(report.expected.from);
    expect(report.peakAllocated).toBeLessThanOrEqual(report.expected.from);
    expect(readSwapReport(folder, pid)).toMatchObject({ plans: 1 });
  });
});
