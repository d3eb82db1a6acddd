// Call stacks of requests: real Pythons with Weir's recorder and rings on the stand-in GPU, compared with what Python itself says.
import { mkdtempSync, readdirSync, readFileSync, statSync } from 'node:fs';
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
    // While Python ends, requests have none.
    if (frames.length > 0 || !found.has(events.size[event]!)) found.set(events.size[event]!, frames.reverse());
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
      .map((name) => join(folder, name))
      .sort((a, b) => statSync(b).size - statSync(a).size);
    return { expected, files, stderr: result.stderr, found: stacksOf(readWeir(readFileSync(files[0]!))) };
  }

  /** Python's own traceback has names without the classes and functions around them. */
  function plain(frames: string[][] | undefined): string[][] {
    return (frames ?? []).map(([name, ...rest]) => [name!.split('.').at(-1)!, ...rest]);
  }

  test.each([
    ['read from memory', {}],
    ["read by Python's functions", { STANDIN_FRAMES: 'functions' }],
  ])('are those that Python shows, from all kinds of callers: %s', async (_, variables) => {
    const { expected, found } = await run(
      `
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
`,
      'stacks="python"',
      variables,
    );
    expect(expected.size).toBeGreaterThan(15);
    for (const [size, frames] of expected) expect(plain(found.get(size)), String(size)).toEqual(plain(frames));
    expect(found.get(1000)!.at(-2)![0]).toMatch(/forward$/);
  });

  test('that are known cost no GIL', async () => {
    const { found } = await run(`
import time
free.standin_repeat.argtypes = [ctypes.c_uint64, ctypes.c_int]
held.standin_hold.argtypes = [ctypes.c_int]
thread = threading.Thread(target=lambda: free.standin_repeat(1000, 500))
thread.start()
while not free.standin_has_begun(): time.sleep(0.001)
# From here to the end of the call, this thread has the GIL.
assert held.standin_hold(20000) == 1, "the requests of the other thread have waited for the GIL"
thread.join()
`);
    expect(found.get(1000)!.at(-1)![0]).toMatch(/<lambda>$/);
  });

  test.each([{}, { STANDIN_FRAMES: 'functions' }])('of many threads at once, with and without the GIL %o', async (variables) => {
    const { expected, found } = await run(
      `
import gc, sys
sys.setswitchinterval(1e-5)
gc.set_threshold(50)
class Cycle:
    def __init__(self): self.me = self
    def __del__(self): held.standin_free(held.standin_allocate(100))
def work(number):
    for turn in range(150):
        size = 10000 + number * 1000 + turn
        exec(compile("\\n" * (turn % 40) + "take(size, library)", f"file{number}.{turn % 7}", "exec"),
             {"take": take, "size": size, "library": held if turn % 3 == 0 else free})
        Cycle()
threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join(60)
assert not any(thread.is_alive() for thread in threads)
`,
      'stacks="python"',
      variables,
    );
    expect(expected.size).toBe(8 * 150);
    for (const [size, frames] of expected) expect(plain(found.get(size)), String(size)).toEqual(plain(frames));
  });

  test('of large requests only, if that is asked for', async () => {
    for (const [stacks, least] of [
      ['stacks="large"', 1 << 20],
      ['stacks="large:4KiB"', 4096],
    ] as const) {
      const { found } = await run('for size in (512, 4095, 4096, 1 << 20): take(size)', stacks);
      for (const size of [512, 4095, 4096, 1 << 20]) expect(found.get(size)!.length > 0, `${stacks} ${size}`).toBe(size >= least);
    }
    const { found } = await run('take(1 << 21)', 'stacks=False');
    expect(found.get(1 << 21)).toEqual([]);
  });

  test('of ever new code keep nothing alive, and what finds no room is counted', async () => {
    const { found, files } = await run(`
import gc, weakref
seen = []
for index in range(70000):
    code = compile("free.standin_free(free.standin_allocate(1000 + index))", f"file{index}", "exec")
    if index % 1000 == 0: seen.append(weakref.ref(code))
    exec(code)
del code
gc.collect()
alive = sum(reference() is not None for reference in seen)
assert alive < 40, alive
take(500)
`);
    expect(found.get(1000 + 100)!.at(-1)).toEqual(['<module>', 'file100', '1']);
    expect(found.get(1000 + 69_999)).toEqual([]);
    const { traces } = readWeir(readFileSync(files[0]!));
    const warnings = traces[0]!.warnings.map(({ code, message }) => `${code}: ${message}`);
    expect(warnings.join('\n')).toMatch(/lost-stacks: [\d,]+ requests have no call stack, because there was no room for more/);
  }, 60_000);

  test('survive forks, deep recursion, and a process that ends while threads allocate', async () => {
    const { found, files } = await run(`
import os, time
sys.setrecursionlimit(5000)
def deep(depth):
    return deep(depth - 1) if depth else free.standin_free(free.standin_allocate(2000))
deep(1500)
stop = False
def busy():
    while not stop: free.standin_free(free.standin_allocate(3000))
threads = [threading.Thread(target=busy, daemon=True) for _ in range(4)]
for thread in threads: thread.start()
for _ in range(10):
    child = os.fork()
    if child == 0:
        exec(compile("free.standin_free(free.standin_allocate(3000))", "child", "exec"))
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
`);
    const deep = found.get(2000)!;
    expect(deep).toHaveLength(251);
    expect(deep[0]![0]).toBe('(outer frames are left out)');
    expect(found.get(3000)!.at(-1)![0]).toBe('busy');
    expect(files).toHaveLength(11);
    for (const child of files.slice(1))
      expect(
        stacksOf(readWeir(readFileSync(child)))
          .get(3000)!
          .at(-1)![1],
      ).toBe('child');
  });

  test('all: frames of C lie on top of those of Python', async () => {
    const { found } = await run('take(1000)', 'stacks="all"');
    const frames = found.get(1000)!;
    const take = frames.findIndex(([name]) => name === 'take');
    expect(take).toBeGreaterThan(0);
    expect(frames.slice(take + 1).some(([, filename]) => filename!.includes('ffi'))).toBe(true);
    expect(frames.some(([, filename]) => filename!.includes('libstandin'))).toBe(false);
  });
});
