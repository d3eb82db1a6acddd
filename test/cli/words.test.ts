// Small recordings through the real command: one of a thing is not called many, and unknown events are not called none.
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { crc32 } from '../../src/base/crc32.ts';
import { EVENT_BYTES, EventOffset, RecordType } from '../../src/trace/weir/format.ts';
import { recordsOf, viewOf } from '../../src/trace/weir/framing.ts';
import { weir } from '../support/command.ts';

const folder = mkdtempSync(join(tmpdir(), 'weir-words-'));
afterAll(() => rmSync(folder, { recursive: true }));

const entry = (action: string, addr = 0x7f00_0000_0000) => ({ action, addr, size: 512, stream: 0, time_us: 1, frames: [] });

function snapshot(name: string, entries: readonly object[], segments: readonly object[] = []): string {
  const path = join(folder, name);
  writeFileSync(path, JSON.stringify({ segments, device_traces: [entries], allocator_settings: {} }));
  return path;
}

/** `1 events`, `1 allocations`: a word behind a lone 1 that ends like a plural. */
const FALSE_PLURAL = /(?<![\d.,])1 (?!miss\b|process\b|pass\b)[a-z]{2,}s\b/g;

describe('one of each', () => {
  const ONE = snapshot('one.json', [entry('alloc')]);
  const FAILED = snapshot('failed.json', [
    entry('segment_alloc'),
    entry('alloc'),
    { ...entry('oom'), size: 2 ** 40, device_free: 2 ** 30, addr: undefined },
  ]);
  const FREED = snapshot('freed.json', [entry('alloc'), entry('alloc')]);
  const LATE = snapshot('late.json', [entry('free_requested'), entry('free_completed'), entry('alloc')]);
  const BUFFER = join(folder, 'one.csv');
  writeFileSync(BUFFER, 'id,lower,upper,size\na,0,4,4\n');

  it.each([
    ['analyze', ONE],
    ['analyze', FAILED],
    ['analyze', FREED],
    ['analyze', LATE],
    ['analyze', '--all', ONE],
    ['replay', ONE],
    ['replay', FREED, '--backend', 'sim'],
    ['plan', ONE],
    ['plan', BUFFER],
    ['convert', ONE, join(folder, 'one.weir')],
  ])('weir %s', async (...words) => {
    const { stdout, stderr, code } = await weir(words);
    expect([0, 1], stderr).toContain(code);
    expect(`${stdout}${stderr}`.match(FALSE_PLURAL)).toBeNull();
  });

  it('is found by its pattern', () => {
    expect('GPU 0, 1 events, 11 allocations, 0.1 seconds, 1 miss'.match(FALSE_PLURAL)).toEqual(['1 events']);
  });
});

describe('a rule whose figure is unknown', () => {
  it('is not taken for one that holds', async () => {
    // No segments, so nobody knows what was reserved.
    const file = snapshot('ruled.json', [entry('alloc')]);
    const words = 'weir: replay-error is unknown, so the rule replay-error>1% cannot be judged';
    const { code, stderr } = await weir([
      'analyze',
      file,
      '--no-smallest',
      '--quiet',
      '--fail-if',
      'replay-error>1%',
      '--fail-if',
      'live>0',
    ]);
    expect(code).toBe(3);
    expect(stderr).toContain(words);
    expect(stderr).toContain('(rule: live>0)');
    const ranks = await weir(['analyze', file, file, '--no-smallest', '--quiet', '--fail-if', 'replay-error>1%']);
    expect(ranks.code).toBe(3);
  });
});

describe('a recording of unknown actions only', () => {
  const UNKNOWN = snapshot('unknown.json', [
    ...Array.from({ length: 7 }, () => entry('teleport')),
    entry('warp\u001b[31m'),
    ...['a', 'b', 'c', 'd'].map((action) => entry(action)),
  ]);

  it.each(['analyze', 'replay', 'plan'])('weir %s says which', async (command) => {
    const { code, stdout, stderr } = await weir([command, UNKNOWN]);
    expect([code, stdout]).toEqual([3, '']);
    expect(stderr).toMatch(
      /: the snapshot holds only entries that weir does not know, 7 of the action 'teleport', 1 of the action 'warp.*\[31m', 1 of the action 'a', 1 of the action 'b', 2 of others: it is damaged, or a newer weir is needed\n$/,
    );
    expect(stderr).not.toContain('\u001b');
  });

  it('with cached segments beside them', async () => {
    const segment = {
      ...{ device: 0, address: 0x7f00_0000_0000, total_size: 2097152, allocated_size: 0, active_size: 0, requested_size: 0, stream: 0 },
      ...{ segment_type: 'large', segment_pool_id: [0, 0], is_expandable: false, frames: [] },
      blocks: [{ address: 0x7f00_0000_0000, size: 2097152, requested_size: 0, state: 'inactive', frames: [] }],
    };
    const { code, stderr } = await weir(['replay', snapshot('cached.json', [entry('teleport')], [segment])]);
    expect([code, stderr]).toEqual([
      3,
      expect.stringContaining("1 trace entry was ignored because weir does not know its action: 'teleport'"),
    ]);
  });
});

/** The same file, in which every event has a kind that nobody knows yet. */
function withUnknownKinds(file: Uint8Array): Uint8Array {
  const bytes = Uint8Array.from(file);
  const view = viewOf(bytes);
  for (const { offset, next, type, payload, length } of recordsOf(view, bytes.length)) {
    if (type !== RecordType.Events) continue;
    for (let at = payload; at < payload + length; at += EVENT_BYTES) bytes[at + EventOffset.kind] = 200;
    view.setUint32(offset, crc32(bytes, offset + 4, next), true);
  }
  return bytes;
}

describe('a .weir recording of unknown events only', () => {
  it('says so', async () => {
    const known = snapshot('known.json', [entry('segment_alloc'), entry('alloc')]);
    const path = join(folder, 'known.weir');
    expect((await weir(['convert', known, path, '--quiet'])).code).toBe(0);
    const bytes = withUnknownKinds(readFileSync(path));
    writeFileSync(path, bytes);
    const { code, stderr } = await weir(['replay', path]);
    expect([code, stderr]).toEqual([3, expect.stringContaining('2 events were ignored because this weir does not know their kinds')]);
  });
});
