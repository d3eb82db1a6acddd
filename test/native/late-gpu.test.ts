// The runtime on a GPU that is far behind: no request waits for it unless it would fail otherwise, such a wait does not hold the
// lock, and nothing is unmapped that a stream still uses.
import { spawnSync } from 'node:child_process';
import { beforeAll, describe, expect, test } from 'vitest';
import { buildLateGpu, whyNoNative } from './build.ts';

interface Result {
  /** Bytes that a kernel touched and that were not mapped, or not what they had to be. */
  readonly corrupted: number;
  /** Waits of the host for the device. */
  readonly waits: number;
  readonly unmaps: number;
  readonly stitches: number;
}

const reason = whyNoNative();
describe.skipIf(reason !== undefined)(`a GPU that is far behind${reason ? ` (skipped: ${reason})` : ''}`, () => {
  let program = '';
  beforeAll(() => {
    program = buildLateGpu('none');
  });

  function run(scene: string): Result {
    const { status, signal, stdout, stderr } = spawnSync(program, [scene], { encoding: 'utf8' });
    expect([status, signal, stderr]).toEqual([0, null, '']);
    return JSON.parse(stdout) as Result;
  }

  test('a receive that ends only when the program goes on: varying lengths never wait', () => {
    const result = run('receive');
    expect(result).toMatchObject({ corrupted: 0, waits: 0 });
    // There were more stitches than are kept, so some were dropped.
    expect(result.stitches).toBeGreaterThan(400);
    expect(result.unmaps).toBeGreaterThan(0);
  });

  test('a shortage waits without the lock; what is freed meanwhile is not covered, and captures begin after it', () => {
    expect(run('shortage')).toMatchObject({ corrupted: 0, waits: 1 });
  });

  test('so does empty_cache()', () => {
    expect(run('empty')).toMatchObject({ corrupted: 0, waits: 1 });
  });

  test('a prefetch that finds no memory does not wait', () => {
    expect(run('attempt')).toMatchObject({ corrupted: 0, waits: 1 });
  });
});

const missing = whyNoNative('thread');
test.skipIf(missing !== undefined)(`no data race while a thread waits${missing ? ` (skipped: ${missing})` : ''}`, () => {
  const program = buildLateGpu('thread');
  for (const scene of ['shortage', 'empty']) {
    const { status, stderr } = spawnSync(program, [scene], { encoding: 'utf8' });
    expect([status, stderr]).toEqual([0, '']);
  }
});
