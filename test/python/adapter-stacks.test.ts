// Call stacks through the adapter: PyTorch's real c10 libraries, called by a real Python, without a GPU. Needs what adapter.test.ts needs.
import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import {
  run as compile,
  compileParts,
  compilerOf,
  GENERATED,
  hasCompiler,
  linksOf,
  partFlags,
  pytorchMinor,
  pytorchStandard,
} from '../../scripts/native-rules.mjs';
import { ChildVariable } from '../../src/abi/environment.ts';
import { ProcessRecording } from '../../src/run/rings/process-recording.ts';
import { Ring } from '../../src/run/rings/ring.ts';
import { TraceFile } from '../../src/run/rings/trace-file.ts';
import { readRecording } from '../../src/trace/detect.ts';
import { EventKind } from '../../src/trace/trace.ts';

const NAMED = [...(process.env['WEIR_TORCH_LIBRARIES'] ?? '').split(':'), process.env['WEIR_TORCH_211'] ?? ''].filter(Boolean);
const TORCH = NAMED.map((folder) => resolve(folder)).find((folder) => existsSync(join(folder, 'lib/libc10_cuda.so')));
/** Not a script that starts Python: the library is loaded into it. */
const PYTHON = spawnSync(process.env['WEIR_TEST_PYTHON'] ?? 'python3', ['-c', 'import sys; print(sys.executable)'], {
  encoding: 'utf8',
}).stdout?.trim();
const SOURCES = resolve('test/python/adapter');

function whyNot(): string {
  if (TORCH === undefined) return 'WEIR_TORCH_LIBRARIES names no PyTorch';
  if (!existsSync(join(GENERATED, 'engine.c'))) return 'the engine was not built';
  return hasCompiler('c') && hasCompiler('cpp') ? '' : 'no C and C++ compiler';
}
const reason = whyNot();

const PROGRAM = `
import ctypes, sys
library = ctypes.CDLL(None)
library.start.argtypes = [ctypes.c_uint64, ctypes.c_uint64]
library.take.restype, library.take.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
library.give.argtypes = [ctypes.c_void_p]
def begin(): return library.start(64 << 20, int(sys.argv[1]))
def setup(): return begin()
assert setup()
def layer(size):
    block = library.take(size)
    assert block
    library.give(block)
def fails(size):
    assert not library.take(size)
for _ in range(3):
    layer(3 << 20); layer(700)
fails(900 << 20)
held = []
def fill():
    while True:
        block = library.take(500 << 10)
        if not block: return
        held.append(block)
fill()
`;

const NAME = reason ? ` (skipped: ${reason})` : ` of 2.${pytorchMinor(TORCH!)}`;
describe.skipIf(reason !== '')(`call stacks through the adapter${NAME}`, () => {
  let folder = '';
  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), 'weir-adapter-stacks-'));
    const shared = (path: string, library: string, ...more: string[]) =>
      compile(compilerOf('c'), [...['-shared', '-fPIC', '-w', path, '-o', join(folder, library)], ...[`-Wl,-soname,${library}`, ...more]]);
    shared(join(SOURCES, 'fake_cudart.c'), 'libcudart.so.13', `-Wl,--version-script=${join(SOURCES, 'fake_cudart.map')}`);
    const headers = [pytorchStandard(TORCH!), '-isystem', TORCH!, '-isystem', join(TORCH!, 'cuda')];
    const objects = [
      ...compileParts(['engine', 'backend', 'runtime', 'testing'], 'release', folder),
      ...compileParts(['torch'], 'release', folder, [...headers, '-Dweir_cuda_backend=test_backend']),
    ];
    compile(compilerOf('cpp'), [
      ...['-shared', '-fPIC', '-O1', '-w', '-pthread', ...headers, '-Inative', '-Inative/engine', '-Ibuild/native', ...partFlags('torch')],
      ...[join(SOURCES, 'python_library.cpp'), ...objects, '-o', join(folder, 'adapter.so')],
      ...[
        `-L${join(TORCH!, 'lib')}`,
        ...linksOf('libweir.so'),
        join(folder, 'libcudart.so.13'),
        `-Wl,-rpath,${join(TORCH!, 'lib')}:${folder}`,
      ],
    ]);
  });
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  /** The events of a run: kind, size, names of the functions, innermost first. */
  function record(allocator: string, from: number) {
    const rings = mkdtempSync(join(folder, 'rings-'));
    // Loaded by Python itself, all functions of CUDA would have to be there.
    const env = {
      ...process.env,
      LD_PRELOAD: join(folder, 'adapter.so'),
      [ChildVariable.allocator]: allocator,
      [ChildVariable.runDir]: rings,
    };
    const result = spawnSync(PYTHON, ['-c', PROGRAM, String(from)], { env, encoding: 'utf8' });
    expect(result).toMatchObject({ stdout: '', stderr: '', status: 0 });
    const ring = Ring.open(join(rings, readdirSync(rings)[0]!))!;
    const file = join(rings, 'run.weir');
    const options = { meta: {}, settings: new Map(), mostEvents: 1e6, whatIfEvents: 1e6 };
    const recording = new ProcessRecording(ring, new TraceFile(file, true), options);
    while (recording.drain());
    recording.finish();
    const { events, symbols } = readRecording(readFileSync(file)).traces[0]!;
    return Array.from({ length: events.count }, (_, event) => ({
      kind: events.kind[event]!,
      size: events.size[event]!,
      names: [...symbols.framesOf(events.stack[event]!)].map(({ name }) => name),
    }));
  }

  test.each(['weir', 'pytorch'])('of requests and failures on the allocator %s', (allocator) => {
    const events = record(allocator, 0);
    const allocations = events.filter(({ kind }) => kind === EventKind.Alloc);
    expect(allocations.length).toBeGreaterThan(60);
    for (const { size, names } of allocations) expect(names).toEqual([size === 500 << 10 ? 'fill' : 'layer', '<module>']);
    const failures = events.filter(({ kind }) => kind === EventKind.Oom).map(({ names }) => names);
    expect(failures).toEqual([
      ['fails', '<module>'],
      ['fill', '<module>'],
    ]);
    for (const { kind, names } of events) if (kind === EventKind.FreeRequested) expect(names).toEqual([]);
  });

  test.each(['weir', 'pytorch'])('of large requests on the allocator %s; a small one that fails has one too', (allocator) => {
    const events = record(allocator, 1 << 20);
    for (const { size, names, kind } of events) {
      if (kind === EventKind.Alloc) expect(names).toEqual(size >= 1 << 20 ? ['layer', '<module>'] : []);
    }
    expect(events.filter(({ kind }) => kind === EventKind.Oom).map(({ names }) => names[0])).toEqual(['fails', 'fill']);
  });
});
