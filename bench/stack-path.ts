// What a request costs on its way through the recorder, with call stacks and without: processor time in a Python under `weir record`,
// on the stand-in GPU. node build/bench/stack-path.js
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { makeStandin, standinEnvironment } from '../test/support/standin-folder.ts';

/** Requests from 64 lines below 15 frames, every other one large. The fastest of many short rounds, so that others disturb little. */
const PROGRAM = `import ctypes, time
import torch, standin_gpu
from weir_gpu import adapter
standin_gpu.start()
library = adapter.library()
library.standin_allocate.restype = ctypes.c_uint64
library.standin_allocate.argtypes = library.standin_free.argtypes = [ctypes.c_uint64]
def layer(index):
    source = f"def layer{index}(path, size):\\n" + "\\n" * index
    source += "    return path[0](path[1:], size) if path else take(size)"
    scope = {"take": library.standin_allocate}
    exec(compile(source, f"/home/someone/project/layer_{index}.py", "exec"), scope)
    return scope[f"layer{index}"]
functions = [layer(index) for index in range(8)]
paths = [[*[functions[0]] * 12, *(functions[(number >> 3 * depth) % 8] for depth in range(3))] for number in range(64)]
best = float("inf")
for _ in range(60):
    began = time.process_time()
    for number in range(1000):
        path = paths[number % 64]
        library.standin_free(path[0](path[1:], 2 << 20 if number % 2 else 4096))
    best = min(best, (time.process_time() - began) / 1000)
    time.sleep(0.01)
print(best * 1e6)
`;
const TIMES = 5;

const folder = mkdtempSync(join(tmpdir(), 'weir-path-'));
try {
  makeStandin(folder);
  writeFileSync(join(folder, 'job.py'), PROGRAM);
  const found = new Map(['off', 'large', 'python', 'all'].map((stacks) => [stacks, Number.POSITIVE_INFINITY]));
  for (let time = 0; time < TIMES; time++) {
    for (const [stacks, before] of found) found.set(stacks, Math.min(before, measure(stacks)));
  }
  const off = found.get('off')!;
  console.log('| --stacks | us per request and free, Python included | more than without |\n|---|---|---|');
  for (const [stacks, least] of found) console.log(`| ${stacks} | ${least.toFixed(2)} | ${(least - off).toFixed(2)} |`);
} finally {
  rmSync(folder, { recursive: true, force: true });
}

function measure(stacks: string): number {
  const words = [
    'record',
    '-q',
    '--no-what-if',
    `--stacks=${stacks}`,
    '-f',
    '-o',
    join(folder, 'run.weir'),
    '--',
    'python3',
    join(folder, 'job.py'),
  ];
  const job = spawnSync(process.execPath, [resolve('dist/cli/main.js'), ...words], { env: standinEnvironment(folder), encoding: 'utf8' });
  if (job.status !== 0) throw new Error(`the job ended with ${job.status}: ${job.stderr}`);
  return Number(job.stdout);
}
