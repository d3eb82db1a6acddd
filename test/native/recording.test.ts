// The recording of a process, read from its ring: whole, in order, and as far as it got when the process is killed.
import { spawn } from 'node:child_process';
import { closeSync, existsSync, mkdtempSync, openSync, readdirSync, rmSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Format } from '../../src/abi/formats.ts';
import { RING_STREAMS, RING_STRING_BYTES, RingOffset, RingState } from '../../src/abi/ring.ts';
import { buildStandin, runStandin, type Sanitizer, whyNoNative } from './build.ts';
import { follow, Ring } from './ring.ts';

const reason = whyNoNative();
describe.skipIf(reason !== undefined)(`rings${reason ? ` (skipped: ${reason})` : ''}`, () => {
  let standin = '';
  let folder = '';
  beforeAll(() => {
    standin = buildStandin('none');
    folder = mkdtempSync(join(tmpdir(), 'weir-ring-'));
  });
  afterAll(() => {
    rmSync(folder, { recursive: true, force: true });
  });

  /** A folder for one run, and the ring that run has left in it. */
  const place = (name: string) => mkdtempSync(join(folder, name));
  const ringIn = (directory: string) => {
    const files = readdirSync(directory);
    expect(files).toHaveLength(1);
    return join(directory, files[0]!);
  };

  test('everything that happened, in order', () => {
    for (const options of [{ seed: 1 }, { seed: 2, limit: 150 }, { seed: 3, rate: 20_000 }, { seed: 4, gmlake: 1 }]) {
      const directory = place('whole');
      const result = runStandin(standin, { ...options, ring: directory });
      const ring = new Ring(ringIn(directory));
      expect(ring.text('magic', 8)).toBe(Format.ring.magic);
      expect(ring.u32('version')).toBe(Format.ring.version);
      expect(ring.u32('state')).toBe(RingState.Closed);
      expect([ring.u32('rank'), ring.u32('local_rank'), ring.u32('world_size')]).toEqual([3, 1, 8]);
      expect([ring.text('allocator', 16), ring.text('torch_version', 32)]).toEqual(['weir', '0.0.0']);
      expect(ring.u32('bytes')).toBe(ring.fileBytes);
      expect(ring.u64('dropped')).toBe(0);
      expect(ring.streams()[0]).toBe(0);
      const told = follow(ring.rows(0, ring.u64('tail')));
      expect(told).toMatchObject({ live: 0, parked: 0, reserved: 0, allocations: result.allocations, ooms: result.shortages });
      expect(told.streamRecords).toBe(result.recorded);
      expect(told.late).toBeGreaterThan(0);
      expect([ring.gauge('allocations'), ring.gauge('peak_reserved')]).toEqual([result.allocations, result.peakReserved]);
    }
  });

  test('names of streams, pools and strings, until there is no more room', () => {
    const directory = place('names');
    expect(runStandin(standin, { conform: 1, ring: directory })).toEqual({});
    const ring = new Ring(ringIn(directory));
    expect(ring.u32('stream_count')).toBe(RING_STREAMS);
    expect(ring.u64('string_bytes')).toBeLessThanOrEqual(RING_STRING_BYTES);
    expect([ring.u64('stack_count'), ring.u32('stack_room'), ring.u32('frame_room')]).toEqual([1024, 1024, 1024]);
    expect(follow(ring.rows(0, ring.u64('tail')))).toMatchObject({ live: 0, parked: 0, reserved: 0 });
  });

  test('children of fork leave the recording of their parent alone', () => {
    const directory = place('fork');
    const result = runStandin(standin, { seed: 5, fork: 40, ring: directory });
    expect(result.corrupted).toBe(0);
    const ring = new Ring(ringIn(directory));
    expect(ring.gauge('live')).toBe(0);
    expect(ring.u64('string_bytes')).toBe(0);
    expect(ring.streams()).not.toContain(99);
    expect(follow(ring.rows(0, ring.u64('tail')))).toMatchObject({ live: 0, allocations: result.allocations });
  });

  test('what does not fit is dropped and counted, and the process does not wait', () => {
    const directory = place('full');
    const whole = runStandin(standin, { seed: 6, threads: 1, ring: place('reference') });
    const result = runStandin(standin, { seed: 6, threads: 1, rows: 1024, ring: directory });
    expect(result).toEqual(whole);
    const ring = new Ring(ringIn(directory));
    expect(ring.u32('capacity')).toBe(1024);
    expect(ring.u64('tail')).toBeGreaterThan(1000);
    expect(ring.u64('tail')).toBeLessThanOrEqual(1024);
    expect(ring.u64('dropped')).toBeGreaterThan(1000);
    expect(ring.u64('gaps')).toBeGreaterThan(0);
    follow(ring.rows(0, ring.u64('tail') - 2));
  });

  test('a process that is killed loses nothing that it had written', async () => {
    const directory = place('killed');
    const child = spawn(standin, ['endless=1', 'rows=4096', `ring=${directory}`], { stdio: ['ignore', 'pipe', 'inherit'] });
    await new Promise((resolve) => child.stdout.once('data', resolve));
    const path = join(directory, `${child.pid}.ring`);
    expect(existsSync(path)).toBe(true);
    // As the supervisor does: takes rows and says so, until the ring has gone round a few times.
    const file = openSync(path, 'r+');
    let head = 0;
    const rows: ReturnType<Ring['rows']> = [];
    for (let turn = 0; turn < 2000 && head < 4 * 4096; turn++) {
      const ring = new Ring(path);
      const tail = ring.u64('tail');
      rows.push(...ring.rows(head, tail));
      head = tail;
      const word = new BigUint64Array([BigInt(head)]);
      writeSync(file, word, 0, 8, RingOffset.head);
      await sleep(2);
    }
    expect(head).toBeGreaterThanOrEqual(4 * 4096);
    child.kill('SIGKILL');
    await new Promise((resolve) => child.once('exit', resolve));
    closeSync(file);
    const ring = new Ring(path);
    expect(ring.u32('state')).toBe(RingState.Active);
    expect(ring.u64('tail')).toBeGreaterThanOrEqual(head);
    rows.push(...ring.rows(head, ring.u64('tail')));
    if (ring.u64('dropped') === 0) follow(rows);
    else for (const row of rows) expect(row.kind).toBeGreaterThan(0);
  });

  test('a folder that is not there is an error at the start, not later', () => {
    expect(() => runStandin(standin, { ring: join(folder, 'nowhere') })).toThrow('status 66');
  });

  test.each(['address,undefined', 'thread'] as const)('sanitizer %s', (sanitizer: Sanitizer) => {
    if (whyNoNative(sanitizer) !== undefined) return;
    const watched = buildStandin(sanitizer);
    // A sanitizer's threads do not survive a fork of a process with threads; the children are tested above.
    const directory = place('sanitizer');
    const result = runStandin(watched, { seed: 8, rounds: 1000, ring: directory });
    const ring = new Ring(ringIn(directory));
    expect(follow(ring.rows(0, ring.u64('tail')))).toMatchObject({ live: 0, allocations: result.allocations });
  });
});
