// Which kind of memory the CUDA backend takes, for every combination of what a driver announces and what it refuses, on a stand-in
// for the driver: GPUDirect RDMA, fabric handles, files for other processes.
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { run as compile, compilerOf } from '../../scripts/native-rules.mjs';
import { buildCudaMemory, whyNoNative } from './build.ts';

const FILE = 1;
const FABRIC = 8;

function subsets(words: readonly string[]): string[][] {
  return Array.from({ length: 2 ** words.length }, (_, bits) => words.filter((_word, index) => (bits >> index) & 1));
}

interface Kind {
  readonly types: number;
  readonly rdma: number;
}

/** The best kind that this driver gives: files and fabric, files, fabric, neither; each with RDMA first. */
function best(has: readonly string[], refuses: readonly string[]): Kind {
  const given = ({ types, rdma }: Kind): boolean => {
    if ((types & FILE) !== 0 && (!has.includes('file') || refuses.includes('file'))) return false;
    if ((types & FABRIC) !== 0 && (!has.includes('fabric') || refuses.includes('fabric'))) return false;
    if (types === (FILE | FABRIC) && (refuses.includes('both') || refuses.includes('export'))) return false;
    return rdma === 0 || (has.includes('rdma') && !refuses.includes('rdma') && !refuses.includes('access'));
  };
  const kinds = [FILE | FABRIC, FILE, FABRIC, 0].flatMap((types) => [1, 0].map((rdma) => ({ types, rdma })));
  return kinds.find(given)!;
}

const reason = whyNoNative();
describe.skipIf(reason !== undefined)(`memory of the CUDA backend${reason ? ` (skipped: ${reason})` : ''}`, () => {
  let folder = '';
  let program = '';
  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), 'weir-cuda-'));
    program = buildCudaMemory();
    const library = ['-shared', '-fPIC', '-w', 'test/native/fake_cuda.c', '-o', join(folder, 'libcuda.so.1')];
    compile(compilerOf('c'), [...library, '-Wl,-soname,libcuda.so.1']);
  });
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  function take(has: readonly string[], refuses: readonly string[], later: readonly string[] = []) {
    const env = { ...process.env, LD_LIBRARY_PATH: folder, FAKE_CUDA_HAS: has.join(' '), FAKE_CUDA_REFUSES: refuses.join(' ') };
    const result = spawnSync(program, later.length > 0 ? [later.join(' ')] : [], { env, encoding: 'utf8' });
    expect(result, `${has}; ${refuses}: ${result.stdout}`).toMatchObject({ status: 0, stderr: '' });
    return JSON.parse(result.stdout);
  }

  test.each(subsets(['file', 'fabric', 'rdma']).map((has) => ({ has })))('announced: $has', ({ has }) => {
    for (const refuses of subsets(['file', 'fabric', 'both', 'rdma', 'access', 'export'])) {
      const expected = best(has, refuses);
      const { types, rdma, shared } = take(has, refuses);
      expect({ types, rdma, shared, refuses }).toEqual({ ...expected, shared: expected.types & FILE, refuses });
    }
  });

  test('what the driver no longer gives is given up', () => {
    const all = ['file', 'fabric', 'rdma'];
    expect(take(all, [], ['fabric'])).toMatchObject({ types: FILE, rdma: 1 });
    expect(take(all, [], ['file', 'fabric'])).toMatchObject({ types: 0, rdma: 1 });
    expect(take(all, ['rdma'], ['rdma', 'both'])).toMatchObject({ types: FILE, rdma: 0 });
  });

  test('memory of another process stays mapped as long as the driver refuses to wait for the GPU', () => {
    expect(take(['file'], [], ['import'])).toMatchObject({ shared: 1 });
  });

  test('another GPU can access it where the driver says so', () => {
    expect(take(['file', 'peer'], []).peer).toBe(1);
    expect(take(['file'], []).peer).toBe(0);
  });
});
