// Every question of the page, and the way of an answer over the wire.
import { describe, expect, it } from 'vitest';
import { analyzeTrace } from '../../src/report/analysis.ts';
import { analysisJson } from '../../src/report/json.ts';
import { readRecording } from '../../src/trace/detect.ts';
import type { Calls, ProgressNote, Question } from '../../src/view/protocol.ts';
import { Session } from '../../src/view/session.ts';
import { decodeAnswer, encodeAnswer } from '../../src/view/wire.ts';
import { readSample } from '../support/samples.ts';

const NAME = 'vgg16-b100.native.pickle.gz';
const recording = readRecording(readSample(NAME));
const session = new Session(recording, NAME);
const ask = <Name extends keyof Calls>(question: Question & { method: Name }, notes: ProgressNote[] = []) =>
  session.answer(question, (note) => notes.push(note)) as Calls[Name]['answer'];

describe('a session', () => {
  it('says what the recording is', () => {
    const { gpus } = ask({ method: 'describe', gpu: 0 });
    expect(gpus).toHaveLength(1);
    expect(gpus[0]).toMatchObject({ device: 0, events: recording.traces[0]!.events.count });
  });

  it('reduces the timeline without losing the peak', () => {
    const info = ask({ method: 'run', gpu: 0, run: 'expandable' });
    const { durationUs } = ask({ method: 'describe', gpu: 0 }).gpus[0]!;
    for (const columns of [1, 7, 500]) {
      const timeline = ask({ method: 'timeline', gpu: 0, run: 'expandable', axis: 'time', from: 0, to: durationUs + 1, columns });
      expect(Math.max(...timeline.high.reserved)).toBe(info.peakReserved);
      for (let column = 0; column < columns; column++) {
        expect(timeline.low.allocated[column]!).toBeLessThanOrEqual(timeline.high.allocated[column]!);
        expect(timeline.high.allocated[column]!).toBeLessThanOrEqual(timeline.high.reserved[column]!);
      }
    }
  });

  it('finds at a place of the map the block that is drawn there', () => {
    const run = 'recorded';
    const state = ask({ method: 'moment', gpu: 0, run, axis: 'event', position: 3000 });
    for (const row of state.rows.slice(0, 20)) {
      const block = ask({ method: 'block', gpu: 0, run, allocation: row.allocation })!;
      const found = ask({ method: 'blockAt', gpu: 0, run, axis: 'event', position: 3000, offset: block.parts[0]! + block.parts[1]! / 2 });
      expect(found?.allocation).toBe(row.allocation);
    }
  });

  it('adds up at the cursor', () => {
    const state = ask({ method: 'moment', gpu: 0, run: 'recorded', axis: 'event', position: 3000 });
    expect(state.sites.reduce((sum, site) => sum + site.bytes, 0)).toBe(state.live);
    expect(ask({ method: 'flame', gpu: 0, event: 3000 }).total).toBe(state.live);
    expect(state.liveCount).toBe(state.sites.reduce((sum, site) => sum + site.count, 0));
    const [first] = state.rows;
    expect(Math.max(...state.rows.map((row) => row.requested))).toBe(first!.requested);
  });

  it('analyses as `weir analyze` does, the verdict first', () => {
    const notes: ProgressNote[] = [];
    const { file, analysis, isComplete } = ask({ method: 'analyze', gpu: 0 }, notes);
    const expected = analysisJson(analyzeTrace(recording.traces[0]!, { source: NAME, withHistory: false }), NAME);
    expect(isComplete).toBe(true);
    // The page gets the facts of --json, whole: also over HTTP.
    const received = decodeAnswer(encodeAnswer(analysis).buffer) as typeof analysis;
    expect(withoutTimes(analysisJson(received, file))).toBe(withoutTimes(expected));
    const partials = notes.map((note) => note.partial).filter((partial) => partial !== undefined);
    expect(partials[0]!.analysis.whatIf).toHaveLength(0);
    expect(partials[0]!.analysis.peak).toEqual(analysis.peak);
  });

  it('compares allocators of historical interest if it is asked for them', () => {
    const { analysis } = ask({ method: 'analyze', gpu: 0, isHistory: true });
    expect(analysis.whatIf.map((row) => row.allocator)).toEqual(['pytorch', 'cnmem', 'gmlake']);
  });

  it('refuses what it does not know in words', () => {
    expect(() => ask({ method: 'run', gpu: 0, run: 'nonsense' })).toThrow("there is no allocator 'nonsense'");
    expect(() => ask({ method: 'run', gpu: 7, run: 'recorded' })).toThrow('no events of GPU 7');
    expect(() => ask({ method: 'steal', gpu: 0 } as never)).toThrow("no question 'steal'");
  });
});

describe('the wire', () => {
  it('brings answers over unchanged', () => {
    const value = {
      words: 'a "quote" and ü',
      list: [1, null, true],
      bytes: Uint8Array.of(1, 2, 3),
      inner: { numbers: Float64Array.of(1.5, Number.NaN), counts: Int32Array.of(-1, 7) },
    };
    expect(decodeAnswer(encodeAnswer(value).buffer)).toEqual(value);
    expect(decodeAnswer(encodeAnswer(undefined).buffer)).toBeUndefined();
  });
});

/** How long things took differs from run to run; nothing else may. */
function withoutTimes(json: unknown): string {
  return JSON.stringify(json, (key, value: unknown) => (key === 'wallMs' ? undefined : value));
}
