// Pinned host memory: what a process tells of it (python/weir_gpu/pinned.py), and what the supervisor makes of that.
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { pinnedWords } from '../../src/report/words/failure.ts';
import { PinnedMemory } from '../../src/run/failures/pinned-memory.ts';
import type { ProcessRecording } from '../../src/run/rings/process-recording.ts';

const found = spawnSync('python3', ['-c', 'import sys; sys.exit(sys.version_info < (3, 9))']);
const reason = found.status === 0 ? '' : ' (skipped: no Python 3.9 or newer)';
const folder = mkdtempSync(join(tmpdir(), 'weir-pinned-'));
afterAll(() => rmSync(folder, { recursive: true }));

test.skipIf(reason !== '')(`a process reports its pinned memory${reason}`, () => {
  const env = { PATH: process.env['PATH'], PYTHONPATH: resolve('dist/python') };
  const { status, stderr } = spawnSync('python3', ['test/python/pinned_memory.py'], { env, encoding: 'utf8' });
  expect([status, stderr.split('\n').at(-2)]).toEqual([0, 'OK']);
});

describe('the supervisor', () => {
  const recording = { owner: { pid: 7 } } as ProcessRecording;

  test('reads reports, and passes over what is none', () => {
    const pinned = new PinnedMemory(folder);
    const put = (text: string) => {
      writeFileSync(join(folder, '7.pinned.json'), text);
      pinned.see('7.pinned.json');
    };
    pinned.see('8.pinned.json');
    pinned.see('7.ring');
    put('{"version":1,"pid":7');
    expect(pinned.of(recording)).toBeUndefined();
    put(JSON.stringify({ version: 1, pid: 7, allocations: 5, held: 4096, peakHeld: 8192, used: 2048, peakUsed: 8192, rounding: 100 }));
    expect(pinned.of(recording)).toEqual({
      events: 5,
      peakHeld: 8192,
      usedAtPeak: 8192,
      heldAtEnd: 4096,
      usedAtEnd: 2048,
      roundingAtEnd: 100,
    });
    expect(pinnedWords(pinned.of(recording)!)).toBe(
      'pinned host memory: 4 KiB held, 2 KiB in use, 100 B of it rounding to powers of two; peak 8 KiB',
    );
  });
});
