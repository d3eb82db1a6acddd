// The rules of lending, one by one: what is lent to whom, when a wait is made, and when nothing may be lent.
import { expect, test } from 'vitest';
import { type EngineSettings, LENDING_RULES } from '../../src/abi/settings.ts';
import { OUT_OF_MEMORY } from '../../src/allocator/allocator.ts';
import { createWeir, type EngineAllocator } from '../../src/allocator/engine/allocator.ts';
import { SimulatedBackend } from '../../src/backend/simulated.ts';
import { Timeline } from '../../src/backend/timeline.ts';
import { MIB } from '../../src/base/bytes.ts';

interface Setup {
  readonly allocator: EngineAllocator;
  readonly timeline: Timeline;
}

/** A GPU that two blocks of 32 MiB fill, with an event for each release. */
function setUp(
  settings: Partial<EngineSettings> = {},
  lagUs: number | ((stream: number) => number) = 1000,
  capacity: number = 64 * MIB,
): Setup {
  const timeline = new Timeline({ lagUs });
  timeline.advanceTo(0);
  const backend = new SimulatedBackend({ capacity });
  const allocator = createWeir({ backend, streams: [0, 1], events: timeline }, { eventBytes: 1, ...settings });
  return { allocator, timeline };
}

function release(allocator: EngineAllocator, block: number): void {
  allocator.free(block);
  allocator.complete(block);
}

/** Stream 0 fills the GPU and frees half of it; stream 1 is known. Gives the address of the free half. */
function lendable({ allocator }: Setup): number {
  release(allocator, allocator.malloc(512, 1, 0));
  allocator.emptyCache();
  const block = allocator.malloc(32 * MIB, 0, 0);
  allocator.malloc(32 * MIB, 0, 0);
  const address = allocator.addressOf(block);
  release(allocator, block);
  return address;
}

test('what is over is lent without a wait', () => {
  const setup = setUp();
  const address = lendable(setup);
  setup.timeline.advanceTo(2000);
  const block = setup.allocator.malloc(32 * MIB, 1, 0);
  expect(setup.allocator.addressOf(block)).toBe(address);
  expect(setup.allocator.statistics).toMatchObject({ borrows: 1, borrowedBytes: 32 * MIB, waits: 0 });
  setup.allocator.check();
});

test('what is not over is lent with a wait on the GPU, and belongs to the borrower', () => {
  const setup = setUp();
  const { allocator, timeline } = setup;
  const address = lendable(setup);
  const block = allocator.malloc(32 * MIB, 1, 0);
  expect(allocator.addressOf(block)).toBe(address);
  expect(timeline.totals()).toMatchObject({ waits: 1, neededWaits: 1 });
  release(allocator, block);
  const again = allocator.malloc(32 * MIB, 1, 0);
  expect(allocator.addressOf(again)).toBe(address);
  expect(timeline.totals().waits).toBe(1);
  release(allocator, again);
  // And back, with a wait for the borrower.
  expect(allocator.addressOf(allocator.malloc(32 * MIB, 0, 0))).toBe(address);
  expect(timeline.totals().waits).toBe(2);
  allocator.check();
});

test('with lending off each stream keeps its own', () => {
  const setup = setUp(LENDING_RULES.off);
  lendable(setup);
  setup.allocator.malloc(32 * MIB, 1, 0);
  expect(setup.allocator.statistics.borrows).toBe(0);
});

test('where only the main stream lends, others do not', () => {
  const setup = setUp({ mainLendsOnly: 1 });
  const { allocator } = setup;
  lendable(setup);
  release(allocator, allocator.malloc(32 * MIB, 1, 0));
  expect(allocator.statistics.borrows).toBe(1);
  allocator.malloc(30 * MIB, 2, 0);
  expect(allocator.statistics.borrows).toBe(1);
});

test('a range much larger than the request is not lent where a limit says so', () => {
  const setup = setUp({ sizeDifferenceLimit: 65536 / 4, stitchBorrowed: 0 });
  lendable(setup);
  setup.allocator.malloc(4 * MIB, 1, 0);
  expect(setup.allocator.statistics.borrows).toBe(0);
});

test('a range that may not be split is given whole', () => {
  const setup = setUp({ splitBorrowed: 0 });
  lendable(setup);
  const block = setup.allocator.malloc(30 * MIB, 1, 0);
  expect(setup.allocator.sizeOf(block)).toBe(32 * MIB);
  setup.allocator.check();
});

test('nothing is lent across pools, nor while a stream is captured', () => {
  const setup = setUp();
  const { allocator, timeline } = setup;
  lendable(setup);
  timeline.advanceTo(5000);
  allocator.setCapturing(1, true);
  const { events, queries } = timeline.totals();
  // Memory has run out. The free memory of stream 0 is not lent and does not go back to the driver, since that unmaps.
  expect(allocator.malloc(16 * MIB, 1, 0)).toBe(OUT_OF_MEMORY);
  expect(allocator.statistics.borrows).toBe(0);
  expect(timeline.totals()).toMatchObject({ events, queries });
  allocator.setCapturing(1, false);
  expect(allocator.malloc(16 * MIB, 1, 7)).not.toBe(OUT_OF_MEMORY);
  expect(allocator.statistics.borrows).toBe(0);
  allocator.check();
});

test('a block that another stream uses is free only after that, without the host waiting', () => {
  const { allocator, timeline } = setUp({}, (stream) => (stream === 1 ? 9000 : 100));
  const first = allocator.malloc(32 * MIB, 0, 0);
  allocator.malloc(32 * MIB, 0, 0);
  const address = allocator.addressOf(first);
  allocator.recordStream(first, 1);
  release(allocator, first);
  expect(allocator.statistics.parked).toBe(1);
  // Nothing else is left, so the stream waits on the GPU for the other one.
  const second = allocator.malloc(32 * MIB, 0, 0);
  expect(allocator.addressOf(second)).toBe(address);
  expect(allocator.statistics).toMatchObject({ parked: 0, waits: 1 });
  expect(timeline.totals()).toMatchObject({ neededWaits: 1, stalls: 1, stallUs: 8900 });
  allocator.recordStream(second, 1);
  release(allocator, second);
  timeline.advanceTo(50_000);
  expect(allocator.addressOf(allocator.malloc(32 * MIB, 0, 0))).toBe(address);
  expect(allocator.statistics).toMatchObject({ parked: 0, waits: 1 });
});

test('a single stream needs no events', () => {
  const { allocator, timeline } = setUp();
  for (let round = 0; round < 20; round++) release(allocator, allocator.malloc((8 + round) * MIB, 0, 0));
  expect(timeline.totals()).toMatchObject({ events: 0, queries: 0, waits: 0 });
});

test('nothing is recorded, asked for or waited for while a stream is captured, whatever is freed meanwhile', () => {
  const setup = setUp({}, 0);
  const { allocator, timeline } = setup;
  lendable(setup);
  const [mine, used] = [allocator.malloc(2 * MIB, 0, 0), allocator.malloc(2 * MIB, 0, 0)];
  const before = timeline.totals();
  allocator.setCapturing(1, true);
  // A release, and a block that another stream uses: both would record an event.
  release(allocator, mine);
  allocator.recordStream(used, 1);
  release(allocator, used);
  expect(allocator.malloc(4 * MIB, 1, 0)).toBe(OUT_OF_MEMORY);
  allocator.malloc(512, 0, 0);
  expect(timeline.totals()).toEqual(before);
  allocator.setCapturing(1, false);
  release(allocator, allocator.malloc(4 * MIB, 0, 0));
  expect(timeline.totals().events).toBeGreaterThan(before.events);
});

test('a stream with more releases than its ring of events lends what is over, without a wait', () => {
  const setup = setUp();
  const { allocator, timeline } = setup;
  release(allocator, allocator.malloc(512, 1, 0));
  allocator.emptyCache();
  const block = allocator.malloc(32 * MIB, 0, 0);
  allocator.malloc(26 * MIB, 0, 0);
  const address = allocator.addressOf(block);
  release(allocator, block);
  const { events } = timeline.totals();
  // 32 events fit. Of those, which are over by 1000 us, 17 stay, before nine that are not over before 1500 us.
  for (let round = 0; round < 31; round++) release(allocator, allocator.malloc(512, 0, 0));
  timeline.advanceTo(500);
  for (let round = 0; round < 9; round++) release(allocator, allocator.malloc(512, 0, 0));
  expect(timeline.totals()).toMatchObject({ events: events + 40, queries: 0 });
  timeline.advanceTo(1200);
  expect(allocator.addressOf(allocator.malloc(32 * MIB, 1, 0))).toBe(address);
  // One more is asked for that is not over.
  expect(timeline.totals()).toMatchObject({ waits: 0, queries: 18 });
  allocator.check();
});

test('a stream waits for another only if growing would hold 2 % more than is needed', () => {
  const growth = (mib: number, settings: Partial<EngineSettings> = {}) => {
    const timeline = new Timeline({ lagUs: 1000 });
    timeline.advanceTo(0);
    const allocator = createWeir({ backend: new SimulatedBackend(), streams: [0, 1], events: timeline }, { eventBytes: 1, ...settings });
    release(allocator, allocator.malloc(512, 1, 0));
    allocator.emptyCache();
    allocator.malloc(1000 * MIB, 0, 0);
    release(allocator, allocator.malloc(mib * MIB, 0, 0));
    const before = allocator.statistics.reserved;
    allocator.malloc(mib * MIB, 1, 0);
    return { grown: allocator.statistics.reserved > before, waits: timeline.totals().waits };
  };
  expect(growth(18)).toEqual({ grown: true, waits: 0 });
  expect(growth(24)).toEqual({ grown: false, waits: 1 });
  expect(growth(40)).toEqual({ grown: false, waits: 1 });
  expect(growth(60)).toEqual({ grown: false, waits: 1 });
  expect(growth(60, { waitShare: 6000 })).toEqual({ grown: true, waits: 0 });
  expect(growth(20, { waitShare: 0 })).toEqual({ grown: false, waits: 1 });
});

test('by the rules of GLake, no range that is much larger than the request is split', () => {
  for (const [rules, left] of [
    [LENDING_RULES.weir, 48],
    [LENDING_RULES.glake, 64],
    [{ sizeDifferenceLimit: 16_384, stitchBorrowed: 0 }, 64],
  ] as const) {
    const { allocator, timeline } = setUp({ ...rules, sharedSlackShare: 0, slackBytes: 0 }, 1000, 1024 * MIB);
    release(allocator, allocator.malloc(8 * MIB, 1, 0));
    const block = allocator.malloc(64 * MIB, 0, 0);
    allocator.malloc(8 * MIB, 0, 0);
    release(allocator, block);
    timeline.advanceTo(5000);
    for (let request = 0; request < 2; request++) allocator.malloc(8 * MIB, 1, 0);
    const free = allocator.snapshot().filter(({ state, stream }) => state === 'free' && stream === 0);
    expect(free.map(({ size }) => size)).toEqual([left * MIB]);
  }
});

test.each([0, 1] as const)('if ranges may be split (%i), handles of one that are over are lent', (splitBorrowed) => {
  const settings: Partial<EngineSettings> = {
    splitBorrowed,
    stitchBorrowed: 0,
    waitAllowed: 0,
    fixedHandle: 4 * MIB,
    slackBytes: 0,
    sharedSlackShare: 0,
  };
  const { allocator, timeline } = setUp(settings);
  release(allocator, allocator.malloc(4 * MIB, 1, 0));
  allocator.emptyCache();
  const early = allocator.malloc(8 * MIB, 0, 0);
  const late = allocator.malloc(8 * MIB, 0, 0);
  release(allocator, early);
  timeline.advanceTo(5000);
  release(allocator, late);
  allocator.malloc(8 * MIB, 1, 0);
  const free = allocator.snapshot().filter(({ state, stream }) => state === 'free' && stream === 0);
  expect(free.map(({ size }) => size)).toEqual([splitBorrowed ? 8 * MIB : 16 * MIB]);
});

test('a release from before many others still counts', () => {
  const { allocator, timeline } = setUp({ fixedHandle: 4 * MIB, slackBytes: 0, sharedSlackShare: 0, waitShare: 0 });
  release(allocator, allocator.malloc(4 * MIB, 1, 0));
  const block = allocator.malloc(8 * MIB, 0, 0);
  allocator.malloc(4 * MIB, 0, 0);
  const other = allocator.malloc(4 * MIB, 0, 0);
  allocator.malloc(4 * MIB, 0, 0);
  release(allocator, block);
  release(allocator, other);
  // Each takes the best fit, which is the memory of the other block. The engine keeps the last 1024 releases.
  for (let round = 0; round < 1100; round++) release(allocator, allocator.malloc(4 * MIB, 0, 0));
  const { waits } = timeline.totals();
  allocator.malloc(8 * MIB, 1, 0);
  expect(timeline.totals().waits).toBe(waits + 1);
  allocator.check();
});

test('many free ranges that are not over do not hold up a request for handles that are', () => {
  const ranges = 16_000;
  const { allocator, timeline } = setUp({ fixedHandle: 2 * MIB }, 1000, 1024 * 1024 * MIB);
  release(allocator, allocator.malloc(2 * MIB, 1, 0));
  const late: number[] = [];
  const early: number[] = [];
  for (let index = 0; index < ranges; index++) {
    late.push(allocator.malloc(6 * MIB, 0, 0));
    allocator.malloc(2 * MIB, 0, 0);
    early.push(allocator.malloc(4 * MIB, 0, 0));
    allocator.malloc(2 * MIB, 0, 0);
  }
  for (const block of early) release(allocator, block);
  timeline.advanceTo(5000);
  allocator.malloc(4 * MIB, 1, 0);
  for (const block of late) release(allocator, block);
  const { reserved, waits } = allocator.statistics;
  expect(allocator.malloc(ranges * MIB, 1, 0)).toBeGreaterThan(0);
  expect(allocator.statistics).toMatchObject({ reserved, waits });
});

test('no stream waits for a parked block while a stream is captured', () => {
  const { allocator, timeline } = setUp({}, (stream) => (stream === 1 ? 9000 : 100));
  const first = allocator.malloc(32 * MIB, 0, 0);
  allocator.malloc(32 * MIB, 0, 0);
  allocator.recordStream(first, 1);
  release(allocator, first);
  expect(allocator.statistics.parked).toBe(1);
  const before = timeline.totals();
  allocator.setCapturing(0, true);
  // The host may wait for all streams; the GPU may not.
  allocator.malloc(32 * MIB, 0, 0);
  expect(timeline.totals()).toEqual(before);
});
