// Two recordings of real Pythons, made through Weir's recorder on the stand-in GPU: a line that was added and a leak are named.
import { mkdtempSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { ROOT, weir } from '../support/command.ts';
import { Standin, whyNoStandin } from '../support/standin.ts';

const hasStacks = readFileSync(new URL('python/weir_gpu/options.py', ROOT), 'utf8').includes('stacks');
const reason = whyNoStandin() ?? (hasStacks ? undefined : 'weir_gpu.enable() records no stacks');

const START = `
import ctypes
import weir_gpu
weir_gpu.enable(record="run.weir", quiet=True, allocator="weir", stacks="python")
import torch
import standin_gpu
from weir_gpu import adapter
standin_gpu.start()
gpu = adapter.library()
gpu.standin_allocate.restype = ctypes.c_uint64
gpu.standin_allocate.argtypes = gpu.standin_free.argtypes = [ctypes.c_uint64]
`;

/** Lines behind an added one have other numbers in the second run. */
function program(added: string, leak: string): string {
  return `
leaked = []
class Model:
    def forward(self, held):
        held.append(gpu.standin_allocate(1 << 20))
${added}        held.append(gpu.standin_allocate(3 << 20))
        held.append(gpu.standin_allocate(2 << 20))
        for size in (4, 5, 6, 7, 8, 9): held.append(gpu.standin_allocate(size << 18))
def main():
    model = Model()
    for step in range(12):
        held = []
        model.forward(held)
${leak}        for address in held[::-1]: gpu.standin_free(address)
main()
`;
}

describe.skipIf(reason !== undefined)(`weir diff of real recordings${reason ? ` (skipped: ${reason})` : ''}`, () => {
  const standin = new Standin();

  async function record(source: string): Promise<string> {
    const folder = mkdtempSync(join(standin.folder, 'diff-'));
    const run = `exec(compile(${JSON.stringify(source)}, "/home/me/proj/train.py", "exec"))`;
    const { code, stderr } = await standin.python(`import os\nos.chdir(${JSON.stringify(folder)})\n${START}\n${run}\n`);
    expect([code, stderr.replace(/^weir: .*\n/gm, '')]).toEqual([0, '']);
    return join(folder, readdirSync(folder).find((name) => /^run\..*\.weir$/.test(name))!);
  }

  test('names the added line and the leak', async () => {
    const before = await record(program('', ''));
    const added = '        held.append(gpu.standin_allocate(5 << 20))\n';
    const after = await record(program(added, '        leaked.append(gpu.standin_allocate(1 << 20))\n'));
    const { stdout } = await weir(['diff', before, after, '--json']);
    const { sites, newLeaks } = JSON.parse(stdout) as { sites: { label: string; after: number }[]; newLeaks: { line: number }[] };
    expect(sites.map(({ label, after: bytes }) => [label.replace('Model.', ''), bytes / 2 ** 20])).toEqual([
      ['proj/train.py:15 main', 12],
      ['proj/train.py:6 forward', 5],
    ]);
    expect(newLeaks.map(({ line }) => line)).toEqual([15]);
  });
});
