// A watched run has the figures of the unwatched one, and the map's cells add up to what the timeline says.
import { beforeAll, describe, expect, it } from 'vitest';
import { chooseAllocators } from '../../src/allocator/registry.ts';
import { SimulatedBackend } from '../../src/backend/simulated.ts';
import { reconstruct } from '../../src/replay/reconstruct.ts';
import { replay } from '../../src/replay/replay.ts';
import { readRecording } from '../../src/trace/detect.ts';
import { summarizeTrace } from '../../src/trace/summary.ts';
import { EventKind, type Trace } from '../../src/trace/trace.ts';
import { Clock } from '../../src/view/clock.ts';
import { type History, watchChoice, watchRecorded } from '../../src/view/history.ts';
import { Lifetimes } from '../../src/view/lifetimes.ts';
import { mapCells } from '../../src/view/map-cells.ts';
import { liveBytes } from '../../src/view/timeline.ts';
import { readSample } from '../support/samples.ts';

const SAMPLES = ['vgg16-b100.native.pickle.gz', 'gpt2xl-oom.pickle.gz', 'exact/late-exp.pkl.gz', 'exact/full.pkl.gz'];
const CHOICES = ['pytorch', 'expandable', 'cnmem', 'gmlake', 'weir'];

describe.each(SAMPLES)('%s, watched', (name) => {
  let trace: Trace;
  let recorded: History;
  let emptyCaches: readonly number[];
  beforeAll(() => {
    trace = readRecording(readSample(name)).traces[0]!;
    const watched = watchRecorded(trace);
    recorded = watched.history;
    emptyCaches = watched.reconstruction.emptyCacheBefore;
  });

  it('reaches the peak of the reconstruction at the same event', () => {
    const { peakReserved, peakReservedEvent } = reconstruct(trace);
    expect(Math.max(recorded.peakReserved, ...recorded.reserved)).toBe(peakReserved);
    expect(recorded.peakReservedEvent).toBeGreaterThanOrEqual(peakReservedEvent);
  });

  it('puts recorded allocations where they were', () => {
    for (let index = trace.allocations.liveAtStart; index < trace.allocations.count; index++) {
      expect(recorded.address[index]).toBe(trace.allocations.address[index]);
    }
  });

  it('holds after every event what the recording says', () => {
    const { events } = trace;
    const sign: Record<number, number> = {
      [EventKind.SegmentAlloc]: 1,
      [EventKind.SegmentMap]: 1,
      [EventKind.SegmentFree]: -1,
      [EventKind.SegmentUnmap]: -1,
    };
    let held = trace.startSegments.reduce((sum, segment) => sum + segment.size, 0);
    const expected = Float64Array.from({ length: events.count }, (_, event) => {
      held += (sign[events.kind[event]!] ?? 0) * events.size[event]!;
      return held;
    });
    expect(recorded.reserved).toEqual(expected);
    const { pieces } = recorded;
    for (const event of [0, Math.floor(events.count / 2), events.count - 1]) {
      const drawn = pieces.size.filter((_, row) => pieces.from[row]! <= event && pieces.to[row]! > event);
      expect(drawn.reduce((sum, size) => sum + size, 0)).toBe(expected[event]);
    }
  });

  it.each(CHOICES)('needs under %s what an unwatched replay needs', (text) => {
    const [choice] = chooseAllocators(text);
    const history = watchChoice(trace, choice!, false, { emptyCacheBefore: emptyCaches });
    const plain = replay(trace, choice!.create, { backend: new SimulatedBackend(), emptyCacheBefore: emptyCaches });
    expect(history.peakReserved).toBe(plain.peakReserved);
    expect(history.reserved.at(-1)).toBe(plain.finalReserved);
    expect(history.layout.height).toBeGreaterThanOrEqual(plain.peakReserved);
  });

  it.each(CHOICES)('draws under %s as much as is held and in use', (text) => {
    const [choice] = chooseAllocators(text);
    const history = watchChoice(trace, choice!, false, { emptyCacheBefore: emptyCaches });
    const { count } = trace.events;
    const clock = new Clock(trace);
    const window = { axis: 'event', from: 0, to: count, columns: 1, low: 0, high: history.layout.height, rows: 1 } as const;
    const cells = mapCells(clock, new Lifetimes(trace), history, window, () => 3, false);
    const area = count * history.layout.height;
    const sum = (values: Float64Array) => values.reduce((total, value) => total + value, 0);
    expect(cells.held[0]! / 255).toBeCloseTo(sum(history.reserved) / area, 1);
    expect(cells.used[0]!).toBeLessThanOrEqual(cells.held[0]! + 1);
    expect(cells.kind[0]).toBe(3);
  });

  it('counts live memory as the summary does', () => {
    const live = liveBytes(trace);
    const summary = summarizeTrace(trace);
    expect(Math.max(summary.liveAtStart, ...live)).toBe(summary.peakLive);
  });

  it('finds what is live after any event by its index', () => {
    const lifetimes = new Lifetimes(trace);
    for (const event of [0, Math.floor(trace.events.count / 2), trace.events.count - 1]) {
      const plain = Array.from({ length: lifetimes.count }, (_, index) => index).filter(
        (index) => lifetimes.start[index]! <= event && lifetimes.released[index]! > event,
      );
      expect(lifetimes.liveAfter(event)).toEqual(plain);
    }
  });
});
