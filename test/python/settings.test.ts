// The environment as the Python part reads it (python/weir_gpu/settings.py): each variable, its default, and that nothing else reads it.
import { spawnSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { describe, expect, test } from 'vitest';

const PACKAGE = resolve('dist/python');
const found = spawnSync('python3', ['-c', 'import sys; sys.exit(sys.version_info < (3, 8))']);
const reason = found.status === 0 ? '' : ' (skipped: no Python 3.8 or newer)';

function ask(script: string) {
  const run = spawnSync('python3', ['-c', script], { env: { ...process.env, PYTHONPATH: PACKAGE }, encoding: 'utf8' });
  expect(run.stderr).toBe('');
  return JSON.parse(run.stdout);
}

/** The fields that differ from those of an empty environment; variables by the names of their constants in abi.py. */
function read(variables: Record<string, string>) {
  return ask(`
import dataclasses, json
from weir_gpu import abi, settings
def variable(name): return getattr(abi.ChildVariable, name, None) or getattr(abi.UserVariable, name, name)
names = json.loads(${JSON.stringify(JSON.stringify(variables))})
found = settings.read({variable(name): value for name, value in names.items()})
fields = {f.name: getattr(found, f.name) for f in dataclasses.fields(found)}
default = settings.Settings()
print(json.dumps({name: str(value) if name == "problem" else value for name, value in fields.items() if value != getattr(default, name)}))
`);
}

describe.skipIf(reason !== '')(`settings of the Python part${reason}`, () => {
  test('an empty environment gives the defaults', () => {
    expect(read({})).toEqual({});
  });

  test.each<[Record<string, string>, Record<string, unknown>]>([
    [
      { ALLOCATOR: 'weir', RUN_DIR: '/run', REQUIRED: '1', PYTHON: '/venv' },
      { allocator: 'weir', directory: '/run', required: true, python: '/venv' },
    ],
    [{ REQUIRED: '0', QUIET: '0', LEND: '1', ALLOW_UNTESTED: '0', SWAP_DEBUG: '0' }, {}],
    [
      { QUIET: '1', LEND: '0', ALLOW_UNTESTED: '1' },
      { quiet: true, lend: false, allow_untested: true },
    ],
    [
      { NATIVE: '/native', CACHE_DIR: '/cache' },
      { native: '/native', cache: '/cache' },
    ],
    [
      { LIMIT: '1024', RING_ROWS: '64', FAULTS: '3:5' },
      { limit: 1024, ring_rows: 64, faults: 3, faults_seed: 5 },
    ],
    [
      { SWAP: 'auto', SWAP_HOST: '4096' },
      { swap: true, swap_host: 4096 },
    ],
    [
      { SWAP: '1048576', SWAP_DEBUG: '1' },
      { swap: true, swap_limit: 1048576, swap_debug: true },
    ],
    [{ SWAP: 'off' }, {}],
    [
      { SWAP: 'auto', SWAP_TOLERANCE: '5' },
      { swap: true, swap_tolerance: 0.05 },
    ],
    [
      { SWAP: 'auto', SWAP_TOLERANCE: 'any' },
      { swap: true, swap_tolerance: null },
    ],
    [
      { LD_LIBRARY_PATH: '/a::/b', CUDA_PATH: '/cuda', CXX: 'c++' },
      { library_path: ['/a', '/b'], cuda_homes: ['/cuda'], cxx: 'c++' },
    ],
    [{ LOCAL_WORLD_SIZE: '8', OMPI_COMM_WORLD_LOCAL_SIZE: '4' }, { local_ranks: 8 }],
    [
      { OMPI_COMM_WORLD_LOCAL_SIZE: '4', SLURM_LOCALID: '3' },
      { local_ranks: 4, local_rank: 3 },
    ],
    [{ SLURM_STEP_TASKS_PER_NODE: '4(x2),6,1' }, { local_ranks: 6 }],
    [{ LOCAL_WORLD_SIZE: 'many', SLURM_STEP_TASKS_PER_NODE: 'x' }, {}],
  ])('%j', (variables, fields) => {
    expect(read(variables)).toEqual(fields);
  });

  test.each([
    [{ RING_ROWS: '-1' }, /^\w+_RING_ROWS must be a whole number, not '-1'$/],
    [{ SWAP: 'auto', SWAP_TOLERANCE: '-1' }, /^WEIR_SWAP_TOLERANCE must be a percentage, or any, not '-1'$/],
    [{ FAULTS: '1:x' }, /^WEIR_FAULTS must be RATE:SEED, not '1:x'$/],
  ])('%j is refused', (variables, sentence) => {
    expect(read(variables)).toMatchObject({ problem: expect.stringMatching(sentence) });
  });

  test('the entry point reads the same variables', () => {
    const script = `
import json
from weir_gpu import variables as entry
from weir_gpu.abi import ChildVariable, UserVariable
print(json.dumps([
    [entry.ALLOCATOR, entry.REQUIRED, entry.ENABLE, entry.ENABLE_REQUIRED],
    [ChildVariable.ALLOCATOR, ChildVariable.REQUIRED, UserVariable.ENABLE, UserVariable.REQUIRED],
]))`;
    const [entry, settings] = ask(script);
    expect(entry).toEqual(settings);
  });

  test('no other file reads the environment, and only generated ones name a variable', () => {
    const files = (readdirSync('python', { recursive: true }) as string[]).filter((name) => name.endsWith('.py'));
    const textOf = (name: string) => readFileSync(join('python', name), 'utf8');
    const readers = files.filter((name) => /environ\.get|environ\[[^\]]*\](?! =)|getenv/.test(textOf(name)));
    expect(readers).toEqual(['weir_gpu/entry.py']);
    const namers = files.filter((name) => /["'{ ]WEIR_[A-Z]/.test(textOf(name)));
    expect(namers.sort()).toEqual(['weir_gpu/abi.py', 'weir_gpu/variables.py']);
  });
});
