// How much larger a recording is with call stacks: a million events of a Python under `weir record`, on the stand-in GPU.
// Weir's own recorder takes the stacks and fills the ring, and the real command writes the file. node build/bench/recording-size.js
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { NO_STACK } from '../src/trace/symbols.ts';
import { EventKind } from '../src/trace/trace.ts';
import { readWeir } from '../src/trace/weir/reader.ts';
import { makeStandin, standinEnvironment } from '../test/support/standin-folder.ts';
import { provenanceOf } from './provenance.ts';

const EVENTS = 1_000_000;
/** The most that stacks may add. */
const MOST = 1.5;

/** Layers of layers, each a function in a file of its own, so that a request has one of LAYERS ** DEPTH stacks. */
const PROGRAM = `import ctypes, sys, time
import torch, standin_gpu
from weir_gpu import adapter
events, layers, depth = map(int, sys.argv[1:])
standin_gpu.start()
library = adapter.library()
library.standin_allocate.restype = ctypes.c_uint64
library.standin_allocate.argtypes = [ctypes.c_uint64]
library.standin_free.argtypes = [ctypes.c_uint64]
def layer(index):
    source = f"def layer{index}(path, size):\\n" + "\\n" * index
    source += "    return path[0](path[1:], size) if path else take(size)"
    scope = {"take": library.standin_allocate}
    exec(compile(source, f"/home/someone/project/models/transformer/layer_{index}.py", "exec"), scope)
    return scope[f"layer{index}"]
functions = [layer(index) for index in range(layers)]
number = written = 0
while written < events:
    path, rest = [], number
    for _ in range(depth):
        path.append(functions[rest % layers])
        rest //= layers
    address = path[0](path[1:], 512 * (1 + number % 4000))
    library.standin_free(address)
    number += 1
    written += 3
    # The stand-in has no kernels to wait for: without a pause, events come faster than on any GPU.
    if number % 2000 == 0: time.sleep(0.02)
`;

const PROGRAMS: readonly (readonly [string, number, number])[] = [
  ['125 stacks, as GPT-2 XL', 5, 3],
  ['20,736 stacks', 12, 4],
  ['more stacks than there is room for', 90, 3],
];

const folder = mkdtempSync(join(tmpdir(), 'weir-size-'));
try {
  makeStandin(folder);
  writeFileSync(join(folder, 'job.py'), PROGRAM);
  const { date, command, hardware, commit } = provenanceOf('node build/bench/recording-size.js');
  console.log(`# Recordings with and without call stacks\n\n${date}, ${command}, ${hardware}, commit ${commit}\n`);
  console.log('| program | stacks | events | with a stack | different stacks | bytes | per event, against none |');
  console.log('|---|---|---|---|---|---|---|');
  let worst = 0;
  for (const [name, layers, depth] of PROGRAMS) {
    let plain = 0;
    for (const stacks of ['off', 'python', 'all']) {
      const found = record(stacks, layers, depth);
      if (stacks === 'off') plain = found.bytes / found.events;
      const ratio = found.bytes / found.events / plain;
      worst = Math.max(worst, ratio);
      const cells = [name, stacks, found.events, found.withStack, found.stacks, found.bytes, ratio.toFixed(3)];
      console.log(`| ${cells.map((cell) => cell.toLocaleString('en-US')).join(' | ')} |`);
    }
  }
  if (worst > MOST) throw new Error(`stacks made a recording ${worst.toFixed(3)} times as large, more than ${MOST}`);
} finally {
  rmSync(folder, { recursive: true, force: true });
}

function record(stacks: string, layers: number, depth: number) {
  const name = `${stacks}-${layers}`;
  const job = ['python3', join(folder, 'job.py'), String(EVENTS), String(layers), String(depth)];
  const { status, stderr } = spawnSync(
    process.execPath,
    [resolve('dist/cli/main.js'), 'record', '-q', '--no-what-if', `--stacks=${stacks}`, '-o', join(folder, `${name}.weir`), '--', ...job],
    { env: standinEnvironment(folder), encoding: 'utf8' },
  );
  if (status !== 0) throw new Error(`the job ended with ${status}: ${stderr}`);
  const path = join(folder, readdirSync(folder).find((file) => file.startsWith(`${name}.`))!);
  const [trace] = readWeir(readFileSync(path)).traces;
  const { events, symbols } = trace!;
  const used = new Set<number>();
  let withStack = 0;
  for (let event = 0; event < events.count; event++) {
    if (events.kind[event] !== EventKind.Alloc || events.stack[event] === NO_STACK) continue;
    withStack++;
    used.add(events.stack[event]!);
  }
  if (events.count < EVENTS * 0.99) throw new Error(`the recording has ${events.count} events only`);
  if ((symbols.stacks.count === 0) !== (stacks === 'off')) throw new Error(`--stacks=${stacks} wrote ${symbols.stacks.count} stacks`);
  return { events: events.count, withStack, stacks: used.size, bytes: statSync(path).size };
}
