// The observers inside Python: what memory holds, phases of steps, and accesses, on tensors in host memory.
import { spawnSync } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { fileURLToPath } from 'node:url';
import { describe, expect, test } from 'vitest';

const PYTHON = process.env['WEIR_TEST_PYTHON'] ?? 'python3';
const has = spawnSync(PYTHON, ['-c', 'import torch'], { cwd: tmpdir(), encoding: 'utf8' });
const reason = has.status === 0 ? '' : ` (skipped: ${PYTHON} has no torch; WEIR_TEST_PYTHON names one that has)`;
const folder = fileURLToPath(new URL('observe', import.meta.url));

describe.skipIf(reason !== '')(`observers in Python${reason}`, () => {
  const files = readdirSync(folder).filter((name) => name.startsWith('test_'));

  test.each(files)('%s', (name) => {
    const run = spawnSync(PYTHON, [`${folder}/${name}`], { encoding: 'utf8', timeout: 230_000 });
    expect(run.status, run.stderr.slice(-4000)).toBe(0);
    expect(run.stderr).toMatch(/Ran \d+ tests/);
  });

  test.each(['optimizer_state', 'gradients', 'other_optimizers'])('swapping works beside them: %s', (name) => {
    const script = fileURLToPath(new URL(`swap/test_${name}.py`, import.meta.url));
    const env = { ...process.env, WEIR_SWAP_TEST_OBSERVE: '1' };
    const run = spawnSync(PYTHON, [script], { encoding: 'utf8', timeout: 230_000, env });
    expect(run.status, run.stderr.slice(-4000)).toBe(0);
  });
});
