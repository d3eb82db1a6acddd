// The adapter under PyTorch's real c10 libraries, without a GPU: see adapter/adapter_test.cpp. Needs headers and libraries of a
// PyTorch with CUDA in each of the folders that WEIR_TORCH_LIBRARIES names, with colons between them (include folders flat, lib/,
// cuda/), or in that of WEIR_TORCH_211; skipped where there are none.
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import {
  run as compile,
  compileParts,
  compileProgram,
  compilerOf,
  GENERATED,
  hasCompiler,
  linksOf,
  partFlags,
  pytorchMinor,
  pytorchStandard,
} from '../../scripts/native-rules.mjs';
import { RingState } from '../../src/abi/ring.ts';
import { EventKind } from '../../src/trace/trace.ts';
import { Ring } from '../native/ring.ts';

const NAMED = [...(process.env['WEIR_TORCH_LIBRARIES'] ?? '').split(':'), process.env['WEIR_TORCH_211'] ?? ''].filter(Boolean);
const FOLDERS = [...new Set(NAMED.map((folder) => resolve(folder)))];
const SOURCES = resolve('test/python/adapter');
function whyNot(torch: string | undefined): string | undefined {
  if (torch === undefined) return 'WEIR_TORCH_LIBRARIES names no PyTorch';
  if (!existsSync(join(torch, 'lib/libc10_cuda.so'))) return `${torch} holds no libc10_cuda.so`;
  if (!existsSync(join(GENERATED, 'engine.c'))) return 'the engine was not built';
  return hasCompiler('c') && hasCompiler('cpp') ? undefined : 'no C and C++ compiler';
}

const GROUPS = (FOLDERS.length === 0 ? [undefined] : FOLDERS).map((torch) => {
  const reason = whyNot(torch);
  return { torch: torch ?? '', reason, name: reason ? ` (skipped: ${reason})` : ` of 2.${pytorchMinor(torch!)}` };
});

describe.each(GROUPS.map((group) => [group.name, group] as const))('the PyTorch adapter%s', (_, { torch: TORCH, reason }) => {
  if (reason !== undefined) {
    test.skip('behaves as an allocator of PyTorch', () => {});
    return;
  }
  let folder: string;

  function run(word: string[], variables: Record<string, string> = {}, program = 'adapter_test') {
    const result = spawnSync(join(folder, program), word, { env: { ...process.env, ...variables }, encoding: 'utf8' });
    // PyTorch's own warnings of failures that it then mends, since 2.12.
    return { ...result, stderr: result.stderr.replace(/^\[W\d+ .*\n/gm, '') };
  }

  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), 'weir-adapter-'));
    const cudart = join(folder, 'libcudart.so.13');
    const shared = (path: string, library: string, ...more: string[]) =>
      compile(compilerOf('c'), [...['-shared', '-fPIC', '-w', path, '-o', join(folder, library)], ...[`-Wl,-soname,${library}`, ...more]]);
    shared(join(SOURCES, 'fake_cudart.c'), 'libcudart.so.13', `-Wl,--version-script=${join(SOURCES, 'fake_cudart.map')}`);
    shared('test/native/fake_cuda.c', 'libcuda.so.1');
    const headers = [pytorchStandard(TORCH), '-isystem', TORCH, '-isystem', join(TORCH, 'cuda')];
    const objects = [
      ...compileParts(['engine', 'backend', 'runtime', 'testing'], 'test', folder),
      ...compileParts(['torch'], 'test', folder, [...headers, '-Dweir_cuda_backend=test_backend']),
    ];
    for (const name of ['adapter_test', 'company_test', 'versions_test']) {
      compileProgram([join(SOURCES, `${name}.cpp`)], 'test', join(folder, name), [
        ...[...partFlags('torch'), ...headers, ...objects],
        ...[`-L${join(TORCH, 'lib')}`, ...linksOf('libweir.so'), cudart],
        ...[`-Wl,-rpath,${join(TORCH, 'lib')}:${folder}`, '-Wl,--unresolved-symbols=ignore-in-shared-libs'],
      ]);
    }
  });
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  test.each(['weir', 'gmlake'])('%s behaves as an allocator of PyTorch', (allocator) => {
    const result = run([], { WEIR_CHILD_ALLOCATOR: allocator });
    expect(result.stdout).toMatch(/\n0 failures\n$/);
    expect(result).toMatchObject({ status: 0, stderr: '' });
  });

  test('also while it is recorded', () => {
    const rings = join(folder, 'rings');
    mkdirSync(rings);
    const result = run([], { WEIR_CHILD_RUN_DIR: rings });
    expect(result).toMatchObject({ status: 0, stderr: '' });
    // The process and the children it forked; it alone has come to its end by itself.
    const all = readdirSync(rings).filter((name) => name.endsWith('.ring'));
    expect(all).toHaveLength(6);
    const closed = all.map((name) => new Ring(join(rings, name))).filter((ring) => ring.u32('state') === RingState.Closed);
    expect(closed).toHaveLength(1);
    // Private pools count as reserved by the engine's rows, so their segments are not there to be counted again.
    const rows = closed[0]!.rows(0, closed[0]!.u64('tail'));
    const segments: readonly number[] = [EventKind.SegmentAlloc, EventKind.SegmentFree, EventKind.SegmentMap, EventKind.SegmentUnmap];
    expect(rows.filter((row) => segments.includes(row.kind))).toEqual([]);
    const ofPool = rows.findIndex((row) => row.kind === EventKind.Alloc && row.pool > 0);
    const reserved = rows.slice(ofPool).find((row) => row.kind === EventKind.Reserved);
    expect(rows[ofPool]!.size).toBe(200 * 2 ** 20);
    expect(reserved!.size).toBe(200 * 2 ** 20);
  });

  test.each([{}, { FAKE_CUDA_REFUSES: 'file' }, { FAKE_CUDA_HAS: 'file fabric rdma peer' }])(
    'also through the CUDA driver %o',
    (variables) => {
      const result = run([], { TEST_CUDA: '1', LD_LIBRARY_PATH: folder, ...variables });
      expect(result.stdout).toMatch(/\n0 failures\n$/);
      expect(result).toMatchObject({ status: 0, stderr: '' });
    },
  );

  test.each<Record<string, string>>([
    {},
    { WEIR_CHILD_ALLOCATOR: 'gmlake' },
    { TEST_CUDA: '1' },
    { TEST_CUDA: '1', FAKE_CUDA_HAS: 'file' },
    { TEST_CUDA: '1', FAKE_CUDA_REFUSES: 'peer' },
  ])('in company: streams of others, several GPUs, captures, no cache %o', (variables) => {
    const result = run([], { LD_LIBRARY_PATH: folder, ...variables }, 'company_test');
    expect(result.stdout).toBe('0 failures\n');
    // ProcessGroupNCCL ends the process when its hook is refused, so the reason is printed, too.
    expect(result.stderr).toMatch(/^weir: TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK is set: [^\n]+\n$/);
    expect(result.status).toBe(0);
  });

  test.each(['weir', 'gmlake', 'pytorch'])('%s has what newer versions of PyTorch ask for', (allocator) => {
    for (const word of [[], ['limit']]) {
      const rings = mkdtempSync(join(folder, 'rings-'));
      const result = run(word, { WEIR_CHILD_ALLOCATOR: allocator, WEIR_CHILD_RUN_DIR: rings }, 'versions_test');
      expect(result.stdout).toBe('0 failures\n');
      expect(result).toMatchObject({ status: 0, stderr: '' });
      // Events that the format does not know, such as notes on blocks, are left out.
      const ring = new Ring(join(rings, readdirSync(rings).find((name) => name.endsWith('.ring'))!));
      const kinds: readonly number[] = Object.values(EventKind);
      expect(ring.rows(0, ring.u64('tail')).filter((row) => !kinds.includes(row.kind))).toEqual([]);
    }
  });

  test.each([
    ['TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK', '1'],
    ['NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK', 'Yes'],
  ])('NCCL may not register all memory: %s=%s', (name, value) => {
    const sentence = 'FAIL not installed: TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK is set: NCCL would register memory that';
    const advice = 'unset it, or run with --allocator expandable';
    const refused = run([], { [name]: value }, 'company_test');
    expect(refused.status).toBe(1);
    expect(refused.stdout).toContain(sentence);
    expect(refused.stdout).toContain(advice);
    // PyTorch itself leaves the hook off with expandable segments, and its own allocator may have it.
    const conf = { [name]: value, PYTORCH_CUDA_ALLOC_CONF: 'expandable_segments:True' };
    expect(run([], conf, 'company_test').stdout).not.toContain(sentence);
    const plain = { [name]: value, WEIR_CHILD_ALLOCATOR: 'pytorch', WEIR_CHILD_RUN_DIR: mkdtempSync(join(folder, 'rings-')) };
    expect(run(['passthrough'], plain)).toMatchObject({ status: 0, stdout: '' });
  });

  test("PyTorch's own allocator is recorded", () => {
    const rings = mkdtempSync(join(folder, 'rings-'));
    expect(run(['passthrough'], { WEIR_CHILD_ALLOCATOR: 'pytorch', WEIR_CHILD_RUN_DIR: rings })).toMatchObject({
      status: 0,
      stdout: '',
      stderr: '',
    });
    const ring = new Ring(join(rings, readdirSync(rings).find((name) => name.endsWith('.ring'))!));
    const rows = ring.rows(0, ring.u64('tail'));
    // The end of a MemPool is no call of empty_cache().
    const kinds: number[] = rows.map((row) => row.kind).filter((kind) => kind === EventKind.EmptyCache || kind === EventKind.Mark);
    expect(kinds).toEqual([EventKind.Mark, EventKind.EmptyCache, EventKind.Mark]);
    const of = (kind: number) => rows.filter((row) => row.kind === kind);
    const [last] = of(EventKind.Alloc).slice(-1);
    expect(of(EventKind.Category)).toHaveLength(300);
    expect(of(EventKind.Category).every((row) => row.address === last!.address && row.detail === 3 && row.device === 0)).toBe(true);
    const [share, whole] = of(EventKind.Limit).map((row) => row.size);
    expect([of(EventKind.Limit).length, share! * 4]).toEqual([2, whole]);
    expect([of(EventKind.Operator).length, of(EventKind.Read).length, of(EventKind.Write).length]).toEqual([1, 299, 1]);
    const operator = rows.findIndex((row) => row.kind === EventKind.Operator);
    expect(rows[operator]!.time).toBeLessThan(rows[operator - 1]!.time);
  });

  test('a ring that cannot be made is told of, and nothing stops', () => {
    const result = run(['passthrough'], { WEIR_CHILD_ALLOCATOR: 'weir', WEIR_CHILD_RUN_DIR: join(folder, 'nowhere') });
    expect(result.stderr).toMatch(/^weir: process \d+ is not recorded, planned or counted: its ring cannot be made in .*nowhere/);
  });
});
