// What did not fit, as the page asks for it: the strip beside it serves the request, and holes name their pins.
import { describe, expect, it } from 'vitest';
import { reconstruct } from '../../src/replay/reconstruct.ts';
import { analyzeTrace } from '../../src/report/analysis.ts';
import type { Recording } from '../../src/trace/trace.ts';
import { besideChoice, besideChoices } from '../../src/view/fit-beside.ts';
import { HoleUse, largestUsable, RunKind, useOfRun } from '../../src/view/fit-strip.ts';
import { besideSentence, fitSentence, holeSentence } from '../../src/view/fit-words.ts';
import type { Calls, Question } from '../../src/view/protocol.ts';
import { Session } from '../../src/view/session.ts';
import { sampleTrace } from '../support/traces.ts';

function sessionOf(name: string) {
  const trace = sampleTrace(name);
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

it('has no allocator to show where demand alone is too much', () => {
  const trace = sampleTrace('gpt2xl-oom.pickle.gz');
  const analysis = analyzeTrace(trace, { capacity: 10 * 2 ** 30, findSmallest: false, withHistory: false });
  expect(besideChoice(analysis)).toBeUndefined();
});

it('serves the request of the peak, too', () => {
  const { ask, trace } = sessionOf('vgg16-b100.native.pickle.gz');
  const { peak } = ask({ method: 'misfits', gpu: 0 });
  const lane = ask({ method: 'besideStrip', gpu: 0, run: 'expandable', event: peak!.event, request: peak!.event, order: 'hole' });
  expect(lane.served[1]).toBeGreaterThanOrEqual(trace.events.size[peak!.event]!);
  const uses = [...lane.strip.holes].map((run) => useOfRun(lane.strip, run));
  expect(uses.every((use) => Object.values(HoleUse).includes(use))).toBe(true);
});
