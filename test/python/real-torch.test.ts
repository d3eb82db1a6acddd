// Weir without `weir run` where people use it: in a notebook, in Ray, and in a training that swaps. Real kernels, real Ray workers and
// the real PyTorch (of WEIR_TEST_PYTHON), on the stand-in GPU.
import { spawn, spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { describe, expect, test } from 'vitest';
import { outcomeOf } from '../support/command.ts';
import { Standin, whyNoStandin } from '../support/standin.ts';

const PYTHON = process.env['WEIR_TEST_PYTHON'] ?? 'python3';

/** Why these modules cannot be used, as a remark for the name of a test; empty if they can. */
function lacking(...modules: string[]): string {
  const none = whyNoStandin();
  if (none) return ` (skipped: ${none})`;
  const missing = modules.filter((name) => spawnSync(PYTHON, ['-c', `import ${name}`], { cwd: tmpdir() }).status !== 0);
  return missing.length === 0 ? '' : ` (skipped: ${PYTHON} has no ${missing.join(', ')}; WEIR_TEST_PYTHON names one that has)`;
}

const noTorch = lacking('torch');
const noNotebook = lacking('torch', 'ipykernel', 'jupyter_client');
const noRay = lacking('torch', 'ray');
const PEAK = /peak live 42 MiB, peak reserved 44 MiB/;

describe.skipIf(noTorch !== '')(`the real PyTorch without a wrapper${noTorch}`, () => {
  const standin = new Standin();

  async function run(script: string, ...words: string[]) {
    const env = standin.environment({ WEIR_STANDIN_TORCH: 'any' }, '');
    const cwd = mkdtempSync(join(standin.folder, 'cwd-'));
    const child = spawn(PYTHON, [resolve('test/python/standin', script), ...words], { cwd, env, stdio: ['ignore', 'pipe', 'pipe'] });
    const result = await outcomeOf(child);
    expect([result.code, result.stderr.includes('Traceback')], result.stderr.slice(-3000)).toEqual([0, false]);
    return { stderr: result.stderr, found: JSON.parse(result.stdout.trim().split('\n').at(-1)!) };
  }

  test('swaps by plans of its own supervisor, with the same losses to the bit', async () => {
    const { found: plain } = await run('swapped_training.py', 'plain');
    const { found, stderr } = await run('swapped_training.py', 'swapped');
    expect(found.losses).toHaveLength(14);
    expect(found.losses).toEqual(plain.losses);
    expect(found.faults).toEqual([]);
    expect(found.report.stepsPlanned).toBeGreaterThan(0);
    expect(found.report.bytesOut).toBeGreaterThan(0);
    expect(found.text).toMatch(/^ {2}swapped: expected peak /m);
    expect(stderr).toMatch(/^weir: process \d+: .*swap/m);
    expect(stderr).toMatch(/^weir: {3}swapped out /m);
    expect(standin.left()).toEqual([]);
  });

  test('under torchrun each rank has a supervisor, and neither the launcher nor the DataLoader has one', async () => {
    const folder = mkdtempSync(join(standin.folder, 'path-'));
    standin.countingNode(folder);
    const env = standin.environment(
      { WEIR_STANDIN_TORCH: 'any', WEIR: '1', WEIR_LIMIT: '400MiB', PATH: `${folder}:${process.env['PATH']}`, OMP_NUM_THREADS: '1' },
      '',
    );
    const words = [
      '-m',
      'torch.distributed.run',
      '--nproc-per-node=2',
      '--master-port=0',
      '--standalone',
      resolve('test/python/standin/rank.py'),
    ];
    const result = await outcomeOf(spawn(PYTHON, words, { cwd: folder, env, stdio: ['ignore', 'pipe', 'pipe'] }));
    expect(result.code, result.stderr.slice(-3000)).toBe(0);
    const ranks = result.stdout
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line));
    expect(ranks.map(({ rank }) => rank).sort()).toEqual([0, 1]);
    for (const { rank, total, text, limit } of ranks) {
      expect([total, limit]).toEqual([112, 400 * 2 ** 20]);
      expect(text).toMatch(new RegExp(`^rank ${rank}: peak live 42 MiB`));
      expect(text).toContain('events of one process');
      expect(result.stderr).toMatch(new RegExp(`^weir: rank ${rank}: peak live 42 MiB`, 'm'));
    }
    expect(readFileSync(join(folder, 'log'), 'utf8')).toBe('started\nstarted\n');
    expect(standin.left()).toEqual([]);
  });

  test.skipIf(noNotebook !== '')(`in the first cell of a notebook${noNotebook}`, async () => {
    const { found } = await run('notebook.py');
    const [enabled, trained, summary, again, other, interrupted, later, supervisor] = found as [string, string][];
    expect(enabled).toEqual(['ok', '']);
    expect(trained).toEqual(['ok', '3.0']);
    expect(summary).toEqual(['ok', expect.stringMatching(PEAK)]);
    expect(summary![1]).toContain('pytorch would have needed 52 MiB');
    expect(again).toEqual(['ok', '']);
    expect(other).toEqual([
      'error',
      expect.stringContaining('Error: Weir is already in place in this process, with another value of limit'),
    ]);
    expect(interrupted).toEqual(['error', expect.stringContaining('KeyboardInterrupt')]);
    expect(later).toEqual(['ok', expect.stringMatching(PEAK)]);
    await standin.gone(supervisor![1].trim());
    expect(standin.left()).toEqual([]);
  });

  test.skipIf(noRay !== '')(`in Ray's tasks and actors, by runtime_env${noRay}`, async () => {
    const { found } = await run('ray_tasks.py');
    for (const [sum, limit, text, started] of [...found.tasks, ...found.actor]) {
      expect([sum, limit]).toEqual([3, 400 * 2 ** 20]);
      expect(text).toMatch(PEAK);
      await standin.gone(started);
    }
    expect(found.plain).toEqual([3, null, 'Weir is not in place in this process, so there is nothing to report', null]);
    expect(standin.left()).toEqual([]);
  });
});
