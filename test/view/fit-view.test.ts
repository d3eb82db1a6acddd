// What did not fit, as the page asks for it: the strip beside it serves the request, and holes name their pins.
import { readFileSync } from 'node:fs';
import { gunzipSync } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import { MIB } from '../../src/base/bytes.ts';
import { reconstruct } from '../../src/replay/reconstruct.ts';
import { analyzeTrace } from '../../src/report/analysis.ts';
import { failureFile } from '../../src/run/failures/failure-file.ts';
import { readRecording } from '../../src/trace/detect.ts';
import { EventKind, type Recording } from '../../src/trace/trace.ts';
import { readWeir } from '../../src/trace/weir/reader.ts';
import { besideChoice, besideChoices } from '../../src/view/fit-beside.ts';
import { fitScale } from '../../src/view/fit-scale.ts';
import { HoleUse, largestUsable, RunKind, useOfRun } from '../../src/view/fit-strip.ts';
import { besideSentence, fitSentence, holeSentence } from '../../src/view/fit-words.ts';
import type { Calls, Question } from '../../src/view/protocol.ts';
import { Session } from '../../src/view/session.ts';
import { ROOT } from '../support/command.ts';
import { failedProcess } from '../support/failed-process.ts';
import { SPLIT_BLOCK, SPLIT_DEVICE_FREE, SPLIT_HOLE, SPLIT_REQUEST, SPLIT_SEGMENTS, splitSnapshot } from '../support/split-snapshot.ts';
import { sampleTrace } from '../support/traces.ts';

function sessionOf(name: string, trace = sampleTrace(name)) {
  const session = new Session({ format: 'pickle', traces: [trace] } satisfies Recording, name);
  const ask = <Name extends keyof Calls>(question: Question & { method: Name }) =>
    session.answer(question, () => {}) as Calls[Name]['answer'];
  return { trace, ask };
}

const FAILED = ['gpt2xl-oom.pickle.gz', 'exact/full.pkl.gz', 'exact/frac.pkl.gz'];

describe.each(FAILED)('%s', (name) => {
  const { trace, ask } = sessionOf(name);
  const analysis = analyzeTrace(trace, { findSmallest: false, withHistory: false });
  const { failed, peak } = ask({ method: 'misfits', gpu: 0 });
  const misfit = failed.at(-1)!;

  it('shows the recorded failure with the figures of the verdict', () => {
    const { strip, limit, served } = ask({
      method: 'strip',
      gpu: 0,
      run: 'recorded',
      event: misfit.at,
      request: misfit.event,
      order: 'hole',
    });
    const { breakdown } = analysis.oom!;
    expect(misfit).toMatchObject({ event: analysis.oom!.event, bytes: analysis.oom!.asked, site: analysis.oom!.site });
    expect(strip.reserved).toBe(breakdown.reserved);
    expect(strip.free).toBe(breakdown.fragmented + breakdown.smallSegments + breakdown.otherStreams + breakdown.otherPools);
    expect(strip.holes.length).toBe(breakdown.freePieces);
    const largest = largestUsable(strip);
    expect(largest < 0 ? 0 : strip.runSize[largest]).toBe(breakdown.largestFree);
    expect(limit).toBe(analysis.capacity);
    expect(served.length).toBe(0);
  });

  it('serves the request in the replay beside it, in memory that is free there', () => {
    const fitting = besideChoices(analysis).filter(({ verdict }) => verdict === 'fits');
    expect(fitting.length).toBeGreaterThan(0);
    for (const { run, limit, isGiven } of fitting) {
      for (const { event, bytes } of failed) {
        const lane = ask({ method: 'besideStrip', gpu: 0, run, limit, isGiven, event, request: event, order: 'hole' });
        const { strip, served } = lane;
        expect(strip.reserved).toBeLessThanOrEqual(limit!);
        expect(strip.used + strip.pending + strip.free).toBe(strip.reserved);
        let given = 0;
        for (let part = 0; part < served.length; part += 2) {
          given += served[part + 1]!;
          const hole = strip.runAt.findLastIndex((at) => at <= served[part]!);
          expect(strip.runKind[hole]).toBe(RunKind.Hole);
          expect(served[part]! + served[part + 1]!).toBeLessThanOrEqual(strip.runAt[hole]! + strip.runSize[hole]!);
        }
        expect(given).toBeGreaterThanOrEqual(bytes);
        expect(besideSentence({ ...misfit, event }, lane)).toContain('The request fits');
      }
    }
  });

  it('chooses what the advice names', () => {
    const advised = analysis.advice.find(({ kind }) => kind === 'setting' || kind === 'engine')!;
    const chosen = besideChoice(analysis)!;
    const row = analysis.whatIf.find(({ allocator }) => allocator === chosen.run)!;
    if (advised.kind === 'setting') expect(row.conf).toBe(advised.conf);
    else expect(row.kind).toBe('weir');
  });

  it('names for each hole the blocks of its segment', () => {
    const { event } = misfit;
    const { strip } = ask({ method: 'strip', gpu: 0, run: 'recorded', event, request: event, order: 'hole' });
    const { allocator } = reconstruct(trace, { stopBefore: event + 1 });
    const segments = allocator.layout!();
    for (const run of strip.holes) {
      const address = strip.runAddress[run]!;
      const hole = ask({ method: 'hole', gpu: 0, run: 'recorded', event, request: event, address })!;
      expect(hole.bytes).toBe(strip.runSize[run]);
      expect(hole.use).toBe(useOfRun(strip, run));
      const segment = segments.find((each) => each.address <= address && address < each.address + each.size)!;
      const taken = segment.blocks.filter(({ state }) => state !== 'free');
      if (!segment.expandable) {
        expect(hole.segment.bytes).toBe(segment.size);
        expect(hole.pinCount).toBe(taken.length);
        expect(hole.pinBytes).toBe(taken.reduce((sum, { size }) => sum + size, 0));
      }
      const before = segment.blocks.find((block) => block.address + block.size === address);
      expect(hole.pins.some(({ side }) => side === 'before')).toBe(before !== undefined && before.state !== 'free');
      for (const pin of hole.pins) expect(pin.ageUs).toBeGreaterThanOrEqual(0);
      expect(holeSentence(hole)).not.toMatch(/NaN|undefined/);
    }
    expect(ask({ method: 'hole', gpu: 0, run: 'recorded', event, address: 1 })).toBeUndefined();
  });

  it('says why in words, at any moment', () => {
    for (const event of [-1, 0, misfit.at, Math.floor(trace.events.count / 2), trace.events.count - 1, trace.events.count + 9]) {
      const lane = ask({ method: 'strip', gpu: 0, run: 'recorded', event, request: misfit.event, order: 'address' });
      expect(fitSentence(misfit, lane)).not.toMatch(/NaN|undefined|Infinity/);
    }
    expect(peak?.at).toBeGreaterThan(0);
  });
});

describe('a plain snapshot with holes that are too small', () => {
  const { trace, ask } = sessionOf('split.json', readRecording(Buffer.from(splitSnapshot())).traces[0]!);
  const [misfit] = ask({ method: 'misfits', gpu: 0 }).failed;
  const at = { gpu: 0, event: misfit!.at, request: misfit!.event };

  it('is drawn as it was, to the byte', () => {
    const { strip, limit } = ask({ method: 'strip', ...at, run: 'recorded', order: 'hole' });
    expect(strip).toMatchObject({ used: SPLIT_SEGMENTS * SPLIT_BLOCK, free: SPLIT_SEGMENTS * SPLIT_HOLE, pending: 0 });
    expect([...strip.holes].map((run) => strip.runSize[run])).toEqual(Array(SPLIT_SEGMENTS).fill(SPLIT_HOLE));
    expect(limit).toBe(strip.reserved + SPLIT_DEVICE_FREE);
    const sentence = '270 MiB of reserved memory is free, in 6 holes. The largest that it may use has 45 MiB, 105 MiB too little.';
    expect(fitSentence(misfit!, ask({ method: 'strip', ...at, run: 'recorded', order: 'hole' }))).toContain(sentence);
  });

  it('shows the stack of the failed request', () => {
    expect(misfit!.site).toBe('job/train.py:30 loss');
    expect(misfit!.frames).toEqual(['loss  /home/me/job/train.py:30', 'main  /home/me/job/train.py:3']);
  });

  it('names size, age and line of the block that pins a hole', () => {
    const { strip } = ask({ method: 'strip', ...at, run: 'recorded', order: 'address' });
    for (const run of strip.holes) {
      const hole = ask({ method: 'hole', ...at, run: 'recorded', address: strip.runAddress[run]! })!;
      const allocation = Array.from(trace.allocations.address).findLastIndex((address) => address === strip.runAddress[run]! - SPLIT_BLOCK);
      const ageUs = trace.events.timeUs[misfit!.at]! - trace.events.timeUs[trace.allocations.allocEvent[allocation]!]!;
      expect(hole.pins).toMatchObject([
        {
          allocation,
          side: 'before',
          size: SPLIT_BLOCK,
          ageUs,
          site: 'job/train.py:20 forward',
          isPending: false,
          freedAfterUs: undefined,
        },
      ]);
      expect(ageUs).toBeGreaterThan(0);
    }
  });

  it('fits beside, within what the job had', () => {
    const analysis = analyzeTrace(trace, { findSmallest: false });
    const { run, limit, isGiven } = besideChoice(analysis)!;
    expect(run).toBe('expandable');
    const lane = ask({ method: 'besideStrip', ...at, run, limit, isGiven, order: 'hole' });
    expect(lane.strip.reserved).toBeLessThanOrEqual(limit!);
    expect(lane.served[1]).toBe(SPLIT_REQUEST);
    const same = ask({ method: 'besideStrip', ...at, run: 'pytorch', limit, isGiven, order: 'hole' });
    expect(same.served).toHaveLength(0);
    expect(besideSentence(misfit!, same)).toContain('The request fails here too');
  });
});

describe('a file about a failure', () => {
  it("on Weir's engine has all reserved memory, as a replay lays it out", () => {
    const { process, failure } = failedProcess('weir');
    const trace = readWeir(failureFile(failure, failure.state!, process)).traces[0]!;
    const { ask } = sessionOf('oom.weir', trace);
    const misfit = ask({ method: 'misfits', gpu: 0 }).failed.at(-1)!;
    const { strip, unplaced, isModelled } = ask({
      method: 'strip',
      gpu: 0,
      run: 'recorded',
      event: misfit.at,
      request: misfit.event,
      order: 'hole',
    });
    expect(isModelled).toBe(true);
    expect(strip.used).toBe(200 * MIB);
    expect(strip.reserved + unplaced).toBe(320 * MIB);
    expect(misfit).toMatchObject({ bytes: 250 * MIB, site: 'job/train.py:30 loss' });
  });

  it("on PyTorch's allocator has its segments and holes", () => {
    const { process, failure } = failedProcess('pytorch');
    const trace = readWeir(failureFile(failure, failure.state!, process)).traces[0]!;
    const { ask } = sessionOf('oom.weir', trace);
    const misfit = ask({ method: 'misfits', gpu: 0 }).failed.at(-1)!;
    const lane = ask({ method: 'strip', gpu: 0, run: 'recorded', event: misfit.at, request: misfit.event, order: 'hole' });
    expect(lane).toMatchObject({ isModelled: false, unplaced: 0, strip: { reserved: 320 * MIB, used: 200 * MIB, free: 120 * MIB } });
    expect([...lane.strip.holes].map((run) => lane.strip.runSize[run])).toEqual(Array(4).fill(30 * MIB));
    expect(misfit.frames[0]).toContain('train.py:30');
  });
});

it('has no allocator to show where demand alone is too much', () => {
  const trace = sampleTrace('gpt2xl-oom.pickle.gz');
  const analysis = analyzeTrace(trace, { capacity: 10 * 2 ** 30, findSmallest: false, withHistory: false });
  expect(besideChoice(analysis)).toBeUndefined();
});

it("finds the peak of a run on Weir's engine, which stitches", () => {
  const bytes = gunzipSync(readFileSync(new URL('test/run/h200-weir.weir.gz', ROOT)));
  const { ask, trace } = sessionOf('h200-weir.weir', readRecording(bytes).traces[0]!);
  const { peak } = ask({ method: 'misfits', gpu: 0 });
  expect(trace.events.kind[peak!.event]).toBe(EventKind.Alloc);
  const lane = ask({ method: 'strip', gpu: 0, run: 'recorded', event: peak!.at, request: peak!.event, order: 'hole' });
  expect(lane).toMatchObject({ isStitched: true, isModelled: true });
  expect(fitSentence(peak!, lane)).toContain('Stitched together, those that it may use have');
});

it('names the line that most pins come from', () => {
  const { ask } = sessionOf('gpt2xl-oom.pickle.gz');
  const { at, event } = ask({ method: 'misfits', gpu: 0 }).failed.at(-1)!;
  const { strip } = ask({ method: 'strip', gpu: 0, run: 'recorded', event: at, request: event, order: 'hole' });
  const hole = ask({ method: 'hole', gpu: 0, run: 'recorded', event: at, request: event, address: strip.runAddress[strip.holes[0]!]! })!;
  const bytes = hole.pins.filter(({ site }) => site === 'gpt2/modeling_gpt2.py:307 forward').reduce((sum, { size }) => sum + size, 0);
  expect(bytes).toBeGreaterThan(hole.pinBytes / 2);
  expect(holeSentence(hole)).toContain('13 blocks (584 MiB), most of them from gpt2/modeling_gpt2.py:307 forward, pin 668 MiB');
  expect(holeSentence({ ...hole, pinBytes: bytes })).toContain('all of them from');
  expect(holeSentence({ ...hole, pinBytes: bytes * 3 })).not.toContain('of them from');
});

it('refuses an allocator that does not exist in words', () => {
  const { ask } = sessionOf('exact/def.pkl.gz');
  for (const run of ['', 'nonsense'])
    expect(() => ask({ method: 'besideStrip', gpu: 0, run, limit: 2 ** 34, event: 1, order: 'hole' })).toThrow('there is no allocator');
});

it('serves the request of the peak, too', () => {
  const { ask, trace } = sessionOf('vgg16-b100.native.pickle.gz');
  const { peak } = ask({ method: 'misfits', gpu: 0 });
  const lane = ask({ method: 'besideStrip', gpu: 0, run: 'expandable', event: peak!.event, request: peak!.event, order: 'hole' });
  expect(lane.served[1]).toBeGreaterThanOrEqual(trace.events.size[peak!.event]!);
  const uses = [...lane.strip.holes].map((run) => useOfRun(lane.strip, run));
  expect(uses.every((use) => Object.values(HoleUse).includes(use))).toBe(true);
});

describe('the scale of the strips', () => {
  const { ask } = sessionOf('exact/def.pkl.gz');
  const lane = ask({ method: 'strip', gpu: 0, run: 'recorded', event: 3000, order: 'hole' });
  const held = lane.strip.reserved;
  const near = (bytes: number, expected: number) => expect(bytes / expected).toBeCloseTo(1.01, 6);

  it('ends at what is held, or at a limit that is not far away', () => {
    near(fitScale([{ ...lane, limit: undefined }], 0, 0).bytes, held);
    near(fitScale([{ ...lane, limit: held * 1.5 }], 0, 0).bytes, held * 1.5);
    expect(fitScale([{ ...lane, limit: held * 1.5 }], 0, 0).isLimitBeyond).toBe(false);
    const far = fitScale([{ ...lane, limit: held * 10 }], 0, 0);
    near(far.bytes, held);
    expect(far.isLimitBeyond).toBe(true);
  });

  it('has room for the request, unless that dwarfs all memory', () => {
    near(fitScale([{ ...lane, limit: undefined }], held * 1.2, 0).bytes, held * 1.2);
    expect(fitScale([{ ...lane, limit: undefined }], held * 100, 0).bytes).toBeLessThan(held * 2);
    near(fitScale([], 0, 5).bytes, 5);
  });
});
