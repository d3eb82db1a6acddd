// An out-of-memory error of a real Python on the stand-in GPU: the file and the ten lines name the lines of the program.
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { OptionVariable } from '../../src/abi/environment.ts';
import { MAIN } from '../support/command.ts';
import { Standin, whyNoStandin } from '../support/standin.ts';

const reason = whyNoStandin() ?? ('stacks' in OptionVariable ? undefined : 'no stacks are recorded');

const PROGRAM = `import ctypes, weir_gpu
weir_gpu.enable(limit="400MiB", stacks="python")
import torch, standin_gpu
standin_gpu.start()
library = weir_gpu.adapter.library()
library.standin_allocate.restype = ctypes.c_uint64
library.standin_allocate.argtypes = [ctypes.c_uint64]
def build(count):
    for _ in range(count): library.standin_allocate(20 << 20)
def forward():
    return library.standin_allocate(500 << 20)
build(10)
for _ in range(2):
    print("given" if forward() else "failed")
`;

describe.skipIf(reason !== undefined)(`the lines of an out-of-memory error${reason ? ` (skipped: ${reason})` : ''}`, () => {
  const standin = new Standin();

  test('are named, of the request and of the holders', async () => {
    const folder = mkdtempSync(join(standin.folder, 'failure-'));
    const script = join(folder, 'train.py');
    writeFileSync(script, PROGRAM);
    const run = spawnSync('python3', [script], { cwd: folder, env: standin.environment(), encoding: 'utf8' });
    expect([run.status, run.stdout]).toEqual([0, 'failed\nfailed\n']);
    expect(run.stderr).toMatch(/weir: {3}requested at: \S*train\.py:11 forward\n/);
    expect(run.stderr).toMatch(/weir: {3}by call site: 200 MiB in 10 allocations: \S*train\.py:9 build/);
    const files = readdirSync(folder).filter((name) => name.startsWith('oom.'));
    expect(files).toHaveLength(2);
    for (const name of files) {
      const { stdout } = spawnSync(process.execPath, [MAIN, 'analyze', '--json', name], { cwd: folder, encoding: 'utf8' });
      const { oom, sites } = JSON.parse(stdout);
      expect(oom.site).toMatch(/train\.py:11 forward$/);
      expect(oom.stack.map(({ line }: { line: number }) => line)).toEqual(expect.arrayContaining([11, 14]));
      expect(sites[0]).toMatchObject({ bytes: 200 * 2 ** 20, allocations: 10 });
    }
  });
});
