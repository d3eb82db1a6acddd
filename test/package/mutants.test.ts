// The list of mutants changes lines that are there: a mutant whose line has moved would prove nothing.
import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';

it('every mutant changes exactly one place', () => {
  const script = fileURLToPath(new URL('../../scripts/mutants.mjs', import.meta.url));
  const { stdout, status } = spawnSync(process.execPath, [script, '--stale'], { encoding: 'utf8' });
  expect({ stdout, status }).toEqual({ stdout: '', status: 0 });
});
