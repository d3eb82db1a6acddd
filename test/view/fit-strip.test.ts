// The strip of memory at a moment, against the allocator model itself: segments, holes and their sums, to the byte.
import { beforeAll, describe, expect, it } from 'vitest';
import { chooseAllocators } from '../../src/allocator/registry.ts';
import { MIB } from '../../src/base/bytes.ts';
import { reconstruct } from '../../src/replay/reconstruct.ts';
import { breakDown } from '../../src/report/moment.ts';
import { EventKind, type Segment, type Trace } from '../../src/trace/trace.ts';
import { heldMemory } from '../../src/view/fit-layout.ts';
import { askerOf, findMisfits } from '../../src/view/fit-misfits.ts';
import { HoleUse, largestUsable, RunKind, runAt, type Strip, stripOf, useOfRun } from '../../src/view/fit-strip.ts';
import { type History, watchChoice, watchRecorded } from '../../src/view/history.ts';
import { Lifetimes } from '../../src/view/lifetimes.ts';
import { PieceLog } from '../../src/view/pieces.ts';
import { sampleTrace } from '../support/traces.ts';

const SAMPLES = [
  'gpt2xl-oom.pickle.gz',
  'vgg16-b100.expandable.pickle.gz',
  ...['async', 'def', 'exp', 'frac', 'full', 'full-exp', 'late', 'late-exp', 'large-segment-exp', 'pools', 'pools-exp', 'newest'].map(
    (name) => `exact/${name}.pkl.gz`,
  ),
];
const CHOICES = ['pytorch', 'expandable', 'pytorch[max_split_size_mb:128]', 'cnmem', 'gmlake', 'weir'];

const sum = (values: Iterable<number>) => [...values].reduce((total, value) => total + value, 0);

/** Some moments of a run, every failure among them. */
function momentsOf({ events }: Trace): number[] {
  const spread = [0.1, 0.3, 0.5, 0.7, 0.9, 1].map((share) => Math.floor((events.count - 1) * share));
  // Between the events of one call the model has no state of its own.
  const whole = spread.map((event) => {
    let at = event;
    while (at > 0 && events.kind[at] !== EventKind.Alloc) at--;
    return at;
  });
  const failed = Array.from({ length: events.count }, (_, event) => event).filter((event) => events.kind[event] === EventKind.Oom);
  return [...new Set([...whole, ...failed.slice(-4)])];
}

function holesOf(strip: Strip): string[] {
  return [...strip.holes].map((run) => `${strip.runAddress[run]} ${strip.runSize[run]}`).sort();
}

/** Free blocks of the model. Neighbours that it keeps apart (pages not joined) are one hole. */
function freeOf(segments: readonly Segment[]): string[] {
  const holes: { address: number; size: number }[] = [];
  for (const { blocks } of [...segments].sort((a, b) => a.address - b.address))
    for (const { address, size, state } of blocks) if (state === 'free') holes.push({ address, size });
  return holes.map(({ address, size }) => `${address} ${size}`).sort();
}

describe.each(SAMPLES)('%s', (name) => {
  let trace: Trace;
  let lifetimes: Lifetimes;
  let history: History;
  let whole: ReturnType<typeof reconstruct>;
  beforeAll(() => {
    trace = sampleTrace(name);
    lifetimes = new Lifetimes(trace);
    history = watchRecorded(trace).history;
    whole = reconstruct(trace);
  });

  it('holds the segments and holes of the model, at any moment', () => {
    for (const event of momentsOf(trace)) {
      const { settings, limits, rules } = whole;
      const { allocator } = reconstruct(trace, { settings, limits, rules, stopBefore: event + 1 });
      const memory = heldMemory(trace, lifetimes, history, event);
      const strip = stripOf(memory, askerOf(trace, event, false), 'hole');
      expect(memory.strayBytes).toBe(0);
      expect(strip.reserved).toBe(history.reserved[event]);
      expect(strip.reserved).toBe(allocator.reservedBytes);
      expect(strip.used + strip.pending + strip.free).toBe(strip.reserved);
      expect(holesOf(strip)).toEqual(freeOf(allocator.layout!()));
      const expected = breakDown(trace, allocator.census(), event);
      expect(strip.pending).toBe(expected.pending);
      expect(strip.used).toBe(expected.requested + expected.rounding);
      const bytes = (use: HoleUse) => sum([...strip.holes].filter((run) => useOfRun(strip, run) === use).map((run) => strip.runSize[run]!));
      expect(bytes(HoleUse.OtherStream)).toBe(expected.otherStreams);
      expect(bytes(HoleUse.OtherPool)).toBe(expected.otherPools);
      if (askerOf(trace, event, false).isSmall) expect(bytes(HoleUse.Usable)).toBe(expected.smallSegments);
      else {
        expect(strip.usable).toBe(expected.fragmented);
        const largest = largestUsable(strip);
        expect(largest < 0 ? 0 : strip.runSize[largest]).toBe(expected.largestFree);
      }
    }
  });

  it('puts segments side by side without a gap, in both orders', () => {
    const event = momentsOf(trace).at(-1)!;
    const memory = heldMemory(trace, lifetimes, history, event);
    for (const order of ['hole', 'address'] as const) {
      const strip = stripOf(memory, askerOf(trace, event, false), order);
      let at = 0;
      for (let run = 0; run < strip.runAt.length; run++) {
        expect(strip.runAt[run]).toBe(at);
        expect(runAt(strip, at)).toBe(run);
        expect(runAt(strip, at + strip.runSize[run]! - 1)).toBe(run);
        const segment = strip.runSegment[run]!;
        expect(at).toBeGreaterThanOrEqual(strip.segmentAt[segment]!);
        at += strip.runSize[run]!;
        expect(at).toBeLessThanOrEqual(strip.segmentAt[segment]! + strip.segmentSize[segment]!);
      }
      expect(at).toBe(strip.reserved);
      expect(runAt(strip, at)).toBe(-1);
      expect(sum(strip.segmentSize)).toBe(strip.reserved);
      const kinds = [...strip.holes].map((run) => strip.runKind[run]);
      expect(kinds.every((kind) => kind === RunKind.Hole)).toBe(true);
    }
  });

  it.each(CHOICES)('adds up under %s too', (text) => {
    const other = watchChoice(trace, chooseAllocators(text)[0]!, false, { emptyCacheBefore: whole.emptyCacheBefore, rules: whole.rules });
    for (const event of momentsOf(trace)) {
      const memory = heldMemory(trace, lifetimes, other, event);
      const strip = stripOf(memory, askerOf(trace, event, text === 'weir' || text === 'gmlake'), 'hole');
      expect(strip.reserved).toBe(other.reserved[event]);
      expect(strip.used + strip.pending + strip.free).toBe(strip.reserved);
      expect(memory.strayBytes).toBe(0);
    }
  });

  it('finds what did not fit', () => {
    const { failed, failures, peak } = findMisfits(trace, history);
    const ooms = Array.from(trace.events.kind.subarray(0, trace.events.count)).filter((kind) => kind === EventKind.Oom).length;
    expect(failures).toBe(ooms);
    expect(failed.every(({ event }) => trace.events.kind[event] === EventKind.Oom)).toBe(true);
    if (!peak) return;
    expect(peak.event).toBeGreaterThan(peak.at);
    expect(history.reserved[peak.event]).toBeGreaterThan(history.reserved[peak.at]!);
    const strip = stripOf(heldMemory(trace, lifetimes, history, peak.at), askerOf(trace, peak.event, false), 'hole');
    const largest = largestUsable(strip);
    // If a hole had been large enough, no more memory would have been taken.
    expect(largest < 0 ? 0 : strip.runSize[largest]!).toBeLessThan(peak.bytes);
  });
});

it('takes mapped pages without a gap for one segment, which serves small requests only if all of its pages do', () => {
  const trace = sampleTrace('exact/exp.pkl.gz');
  const { history } = watchRecorded(trace);
  const pieces = new PieceLog();
  const address = 0x7e00_0000_0000;
  pieces.take(address, 2 * MIB, true);
  pieces.take(address + 2 * MIB, 20 * MIB, true);
  pieces.take(address + 64 * MIB, 2 * MIB, true);
  pieces.finish(trace.events.count);
  const nothing = new Float64Array(history.size.length).fill(Number.NaN);
  const changed = { ...history, pieces, pieceOffset: Float64Array.of(0, 2 * MIB, 22 * MIB), size: nothing };
  const { segments } = heldMemory(trace, new Lifetimes(trace), changed, 5);
  expect(segments.map(({ size, isSmall }) => [size, isSmall])).toEqual([
    [22 * MIB, false],
    [2 * MIB, true],
  ]);
});
