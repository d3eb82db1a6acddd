// What is seen of the allocator on the way is what a reconstruction that stops there finds.
import { describe, expect, it } from 'vitest';
import { likelyMoments, stateOf } from '../../src/replay/moments.ts';
import { reconstruct } from '../../src/replay/reconstruct.ts';
import { readRecording } from '../../src/trace/detect.ts';
import { EventKind, type Trace } from '../../src/trace/trace.ts';
import { readSample } from '../support/samples.ts';

const SAMPLES = ['async', 'gc', 'gc-split', 'full', 'full-exp', 'pools', 'pools-exp', 'late', 'split-exp', 'frac'];

function traceOf(name: string): Trace {
  return readRecording(readSample(name)).traces[0]!;
}

describe.each(SAMPLES)('%s', (name) => {
  const trace = traceOf(`exact/${name}.pkl.gz`);
  const { events } = trace;

  it('the allocator is the same as if the reconstruction had stopped', () => {
    const requests = Array.from({ length: events.count }, (_, event) => event).filter(
      (event) => events.kind[event] === EventKind.Oom || (events.kind[event] === EventKind.Alloc && event % 97 === 0),
    );
    const whole = reconstruct(trace, { lookAt: requests });
    expect([...whole.states.keys()]).toEqual(requests);
    const { settings, limits, rules } = whole;
    for (const [event, state] of whole.states) {
      const { allocator } = reconstruct(trace, { settings, limits, rules, stopBefore: event + 1 });
      expect({ event, ...state }).toEqual({ event, ...stateOf(allocator, events.kind[event] === EventKind.Oom) });
    }
  });

  it('the peak and the last failure are among the guesses', () => {
    const guesses = likelyMoments(trace);
    const whole = reconstruct(trace, { lookAt: guesses });
    const failure = events.kind.lastIndexOf(EventKind.Oom);
    expect(guesses).toContain(whole.peakReservedEvent);
    if (failure >= 0) expect(whole.states.get(failure)!.segments.length).toBeGreaterThan(0);
    expect(guesses).toEqual([...guesses].sort((a, b) => a - b));
  });
});

it('nothing is kept of a run that showed its limit only on the way', () => {
  const trace = traceOf('gpt2xl-oom.pickle.gz');
  const guesses = likelyMoments(trace);
  const whole = reconstruct(trace, { lookAt: guesses });
  expect(guesses).toContain(whole.peakReservedEvent);
  expect(whole.limits.origin).toBe('inferred');
  expect(whole.states.size).toBe(0);
  // The limit is known from the start now.
  expect(reconstruct(trace, { lookAt: guesses, limits: whole.limits }).states.size).toBe(guesses.length);
});

it('events inside a call of the allocator are not seen', () => {
  const trace = traceOf('exact/async.pkl.gz');
  const inside = trace.events.kind.indexOf(EventKind.SegmentAlloc);
  expect(reconstruct(trace, { lookAt: [inside] }).states.size).toBe(0);
});
