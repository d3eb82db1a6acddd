// Call stacks of requests: real Pythons with Weir's recorder and rings on the stand-in GPU, compared with what Python itself says.
import { mkdtempSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { EventKind, type Recording } from '../../src/trace/trace.ts';
import { readWeir } from '../../src/trace/weir/reader.ts';
import { Standin, whyNoStandin } from '../support/standin.ts';

const reason = whyNoStandin();

/** Takes memory as PyTorch's operators do, without the GIL, and as few others do, with it. Every request has its size as a name. */
const PROGRAM = `
import ctypes, json, sys, threading, traceback
import weir_gpu
weir_gpu.enable(record="run.weir", quiet=True, allocator="weir", STACKS)
import torch
import standin_gpu
from weir_gpu import adapter
standin_gpu.start()
free = adapter.library()
held = ctypes.PyDLL(free._name)
for library in (free, held):
    library.standin_allocate.restype = ctypes.c_uint64
    library.standin_allocate.argtypes = [ctypes.c_uint64]
    library.standin_free.argtypes = [ctypes.c_uint64]
expected = {}
guard = threading.Lock()
def take(size, library=free):
    address = library.standin_allocate(size); stack = traceback.extract_stack()
    assert address
    library.standin_free(address)
    with guard: expected[size] = [[frame.name, frame.filename, frame.lineno] for frame in stack]
`;

function stacksOf(recording: Recording): Map<number, string[][]> {
  const found = new Map<number, string[][]>();
  const { events, symbols } = recording.traces[0]!;
  for (let event = 0; event < events.count; event++) {
    if (events.kind[event] !== EventKind.Alloc) continue;
    const frames = [...symbols.framesOf(events.stack[event]!)].map(({ name, filename, line }) => [name, filename, String(line)]);
    found.set(events.size[event]!, frames.reverse());
  }
  return found;
}

describe.skipIf(reason !== undefined)(`call stacks${reason ? ` (skipped: ${reason})` : ''}`, () => {
  const standin = new Standin();

  async function run(script: string, stacks = 'stacks="python"', variables: Record<string, string> = {}) {
    const folder = mkdtempSync(join(standin.folder, 'stacks-'));
    const program = `import os\nos.chdir(${JSON.stringify(folder)})\n${PROGRAM.replace('STACKS', stacks)}\n${script}\nprint(json.dumps(expected), flush=True)\n`;
    const result = await standin.python(program, variables);
    expect(result.stderr.replace(/^weir: .*\n/gm, '')).toBe('');
    expect(result.code).toBe(0);
    const expected = new Map<number, string[][]>(
      Object.entries(JSON.parse(result.stdout.trim().split('\n').at(-1)!) as Record<string, [string, string, number][]>).map(
        ([size, frames]) => [Number(size), frames.map((frame) => frame.map(String))],
      ),
    );
    const files = readdirSync(folder)
      .filter((name) => /^run\..*\.weir$/.test(name))
      .map((name) => join(folder, name));
    return { expected, files, stderr: result.stderr, found: files.length === 1 ? stacksOf(readWeir(readFileSync(files[0]!))) : new Map() };
  }

  /** Python's own traceback has names without the classes and functions around them. */
  function plain(frames: string[][] | undefined): string[][] {
    return (frames ?? []).map(([name, ...rest]) => [name!.split('.').at(-1)!, ...rest]);
  }

  test('are those that Python shows, from all kinds of callers', async () => {
    const { expected, found } = await run(`
class Layer:
    def forward(self, size, library=free):
        return take(size, library)
    def __getattr__(self, name):
        return take(3000)
def generator():
    take(4000)
    yield 1
    take(4100)
def deep(depth, size):
    return deep(depth - 1, size) if depth else take(size)
layer = Layer()
layer.forward(1000)
layer.forward(1100, held)
for size in (1200, 1300):
    layer.forward(size); layer.forward(size + 1, held)
layer.missing
list(generator())
[take(size) for size in (5000, 5100)]
sorted([2, 1], key=lambda value: take(5200 + value) or value)
deep(30, 6000)
exec(compile("take(7000)\\n\\n\\ntake(7100)", "written here", "exec"))
try:
    raise ValueError("seen")
except ValueError:
    take(8000)
`);
    expect(expected.size).toBeGreaterThan(15);
    for (const [size, frames] of expected) expect(plain(found.get(size)), String(size)).toEqual(plain(frames));
    expect(found.get(1000)!.at(-2)![0]).toMatch(/forward$/);
  });
});
