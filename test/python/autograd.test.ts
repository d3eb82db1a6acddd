// The adapter reads which node of autograd runs in a thread, and which was made last, from PyTorch's memory. The real PyTorch of
// WEIR_TEST_PYTHON must agree, on the CPU: saved-tensor hooks run inside of operators and nodes, where requests of memory do too.
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { run as compile, compileParts, compilerOf, hasCompiler, pytorchStandard } from '../../scripts/native-rules.mjs';

import { ProcessRecording } from '../../src/run/rings/process-recording.ts';
import { Ring } from '../../src/run/rings/ring.ts';
import { TraceFile } from '../../src/run/rings/trace-file.ts';
import { readWeir } from '../../src/trace/weir/reader.ts';

/** Requests in operators and in their backward passes. The number of a saved tensor is the size of the request. */
const REQUESTS = `
import ctypes, sys
import torch
library = ctypes.CDLL(sys.argv[1])
library.start.argtypes, library.request.argtypes = [ctypes.c_char_p], [ctypes.c_uint64]
def prepare(): return begin()
def begin(): return library.start(sys.argv[2].encode())
assert prepare()
count = 0
def pack(tensor):
    global count
    count += 1
    library.request(count)
    return count, tensor
def unpack(packed):
    library.request(100 + packed[0])
    return packed[1]
def embed(x): return x.exp()
def square(x): return x.pow(2)
def loss(x): return (x * x.sin()).sum()
with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
    x = torch.randn(8, requires_grad=True)
    loss(square(embed(x))).backward()
`;

const PYTHON = process.env['WEIR_TEST_PYTHON'] ?? 'python3';

function python(script: string, ...words: string[]) {
  return spawnSync(PYTHON, ['-c', script, ...words], { cwd: tmpdir(), encoding: 'utf8' });
}

const PLACE = 'import os, torch; print(os.path.dirname(torch.__file__))';
const place = python(PLACE).stdout.trim();
const reason = place === '' ? `${PYTHON} has no torch; WEIR_TEST_PYTHON names one that has` : hasCompiler('cpp') ? '' : 'no C++ compiler';

const SCRIPT = `
import ctypes, json, sys, threading
import torch
class State(ctypes.Structure):
    _fields_ = [("node_class", ctypes.c_void_p), ("class_name", ctypes.c_char_p), ("node_number", ctypes.c_uint64),
                ("node_thread", ctypes.c_uint64), ("made_nodes", ctypes.c_int), ("last_number", ctypes.c_uint64), ("thread", ctypes.c_uint64)]
library = ctypes.CDLL(sys.argv[1])
def probe():
    state = State()
    library.probe(ctypes.byref(state))
    return {name: getattr(state, name) for name, _ in State._fields_}
found = {"forward": [], "backward": []}
def pack(tensor):
    state = probe()
    found["forward"].append([state["class_name"] is None, state["made_nodes"], state["last_number"], state["thread"]])
    return len(found["forward"]) - 1, tensor
def unpack(packed):
    index, tensor = packed
    state = probe()
    found["backward"].append([index, state["class_name"].decode(), state["node_number"], state["node_thread"]])
    return tensor
class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): ctx.save_for_backward(x); return x * 2
    @staticmethod
    def backward(ctx, gradient): ctx.saved_tensors; return gradient * 2
def train():
    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        x = torch.randn(8, 8, requires_grad=True)
        y = (torch.nn.functional.linear(x, torch.randn(8, 8)).exp() * x.sin())
        y = Doubled.apply(y).pow(3)
        nodes = y.grad_fn  # Python has an object for this node
        y.sum().backward()
thread = threading.Thread(target=train)
thread.start(); thread.join()
train()
untouched = threading.Thread(target=lambda: found.update(without=probe()["made_nodes"]))
untouched.start(); untouched.join()
found["end"] = probe()["class_name"]
import gc
gc.collect()
print(json.dumps(found))
`;

describe.skipIf(reason !== '')(`autograd${reason && ` (skipped: ${reason})`}`, () => {
  let folder = '';
  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), 'weir-autograd-'));
    const include = join(place, 'include');
    compile(compilerOf('cpp'), [
      ...[pytorchStandard(include), '-O2', '-shared', '-fPIC', '-w', '-Inative', '-Inative/engine', '-Ibuild/native', '-isystem', include],
      ...[
        'test/python/adapter/autograd_probe.cpp',
        ...compileParts(['engine', 'backend', 'runtime'], 'release', folder),
        '-o',
        join(folder, 'probe.so'),
        `-L${join(place, 'lib')}`,
        '-lc10',
        '-ldl',
      ],
    ]);
  });
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  test('the running node and the last one made are those of PyTorch', () => {
    const result = python(SCRIPT, join(folder, 'probe.so'));
    expect(result.stderr).toBe('');
    const { forward, backward, without, end } = JSON.parse(result.stdout);
    expect(forward.length).toBeGreaterThan(8);
    expect(new Set(backward.map(([index]: [number]) => index)).size).toBe(forward.length);
    for (const [isForward, made] of forward) expect([isForward, made]).toEqual([true, 1]);
    // A tensor that an operator has saved comes back in the node that the operator has made, and no other.
    for (const [index, , number, thread] of backward) expect([number, thread]).toEqual(forward[index].slice(2));
    const names = backward.map(([, name]: [number, string]) => name).join(' ');
    for (const name of ['ExpBackward0', 'MulBackward0', 'SinBackward0', 'PowBackward0', 'PyNode']) expect(names).toContain(name);
    expect([without, end]).toEqual([0, null]);
  });

  test('a request in a backward pass is shown on top of the line that made the node', () => {
    const rings = mkdtempSync(join(folder, 'rings-'));
    const result = python(REQUESTS, join(folder, 'probe.so'), rings);
    expect([result.stderr, result.status]).toEqual(['', 0]);
    const ring = Ring.open(join(rings, readdirSync(rings)[0]!))!;
    const file = join(rings, 'run.weir');
    const recording = new ProcessRecording(ring, new TraceFile(file, true), {
      ...{ meta: {}, settings: new Map(), mostEvents: 1e6, whatIfEvents: 1e6 },
    });
    while (recording.drain());
    recording.finish();
    const { events, symbols } = readWeir(readFileSync(file)).traces[0]!;
    const stacks = new Map<number, string[]>();
    for (let event = 0; event < events.count; event++)
      stacks.set(events.size[event]!, [...symbols.framesOf(events.stack[event]!)].map(({ name }) => name).reverse());
    // Of the two tensors that * saves, the first finds the node; both come back in it.
    const forward = (index: number) => stacks.get(index)!.slice(0, -1);
    expect([1, 2, 3, 4].map(forward).map((names) => names.join(' '))).toEqual([
      '<module> embed',
      '<module> square',
      '<module> loss',
      '<module> loss',
    ]);
    for (const [index, node] of [
      [1, 'ExpBackward0'],
      [2, 'PowBackward0'],
      [3, 'SinBackward0'],
      [4, 'MulBackward0'],
      [5, 'MulBackward0'],
    ] as const)
      expect(stacks.get(100 + index)!.join(' ')).toMatch(new RegExp(`^${forward(index).join(' ')} pack backward of ${node} unpack$`));
  });
});
