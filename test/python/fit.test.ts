// `weir fit` over a training of the real PyTorch (of WEIR_TEST_PYTHON), on the stand-in GPU: steps are found, runs are cut short.
import { spawn, spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { describe, expect, test } from 'vitest';
import { MAIN, outcomeOf } from '../support/command.ts';
import { Standin, whyNoStandin } from '../support/standin.ts';

const PYTHON = process.env['WEIR_TEST_PYTHON'] ?? 'python3';
const SCRIPT = resolve('test/python/standin/fit_training.py');
const hasTorch = spawnSync(PYTHON, ['-c', 'import torch'], { cwd: tmpdir() }).status === 0;
const reason = whyNoStandin() ?? (hasTorch ? undefined : `${PYTHON} has no torch; WEIR_TEST_PYTHON names one that has`);

describe.skipIf(reason !== undefined)(`weir fit over a training${reason ? ` (skipped: ${reason})` : ''}`, () => {
  const standin = new Standin();

  async function fitted(parameters: readonly string[], ...words: string[]) {
    const cwd = mkdtempSync(join(standin.folder, 'cwd-'));
    const env = standin.environment(
      // Whoever wants no categories in recordings still wants the steps here.
      { WEIR_STANDIN_TORCH: 'any', WEIR_OBSERVE: '0' },
      '',
    );
    const command = [MAIN, 'fit', '--gpu', '200MiB', ...parameters, '--', PYTHON, SCRIPT, '{}', ...words];
    const result = await outcomeOf(spawn(process.execPath, command, { cwd, env, stdio: ['ignore', 'pipe', 'pipe'] }));
    expect(existsSync(join(cwd, 'checkpoint'))).toBe(false);
    return result;
  }

  test.each([[[]], [['alternating']], [['inference']], [['both']]])('ends after some steps of the program %j', async (words) => {
    const { code, stdout, stderr } = await fitted(['--try', '2,4', '--steps', '3', '--json'], ...words);
    expect(stderr).toContain('weir: 2: 3 steps, peak reserved');
    expect(code).toBe(0);
    const { learned, results, growth } = JSON.parse(stdout);
    expect(learned).toMatchObject({ unsettled: 0, unpaired: 0 });
    expect(growth).toMatchObject({ constant: 24 * 2 ** 20, adds: 6 * 2 ** 20 });
    // 24 MiB of weights and 6 MiB for each of the batch.
    expect(results.find(({ allocator }: { allocator: string }) => allocator === 'weir').largest).toBe(29);
  });

  test('says that it saw no step', async () => {
    const { code, stderr } = await fitted(['--try', '2,4', '-q'], 'nothing');
    expect([code, stderr]).toEqual([
      125,
      expect.stringMatching(/^weir: no optimizer step was seen in the run of 2; call weir_gpu\.step\(\)/),
    ]);
  });
});
