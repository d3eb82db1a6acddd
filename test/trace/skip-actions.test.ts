// `skip_actions` of PyTorch 2.11 and later leaves out kinds of events: the figures that need them are unknown, not wrong.
import { describe, expect, it } from 'vitest';
import { analyzeTrace } from '../../src/report/analysis.ts';
import { formatAnalysis } from '../../src/report/terminal/analysis.ts';
import { readRecording } from '../../src/trace/detect.ts';
import { writeSnapshotJson } from '../../src/trace/snapshot-json.ts';
import { summarizeTrace } from '../../src/trace/summary.ts';
import type { Trace } from '../../src/trace/trace.ts';
import { sampleTrace } from '../support/traces.ts';

/** The sample as PyTorch would have recorded it without these kinds of events. */
function withoutActions(sample: string, skipped: readonly string[]): Trace {
  let text = '';
  writeSnapshotJson({ format: 'pickle', traces: [sampleTrace(sample)] }, (part) => {
    text += part;
  });
  const snapshot = JSON.parse(text) as { device_traces: { action: string }[][] };
  const device_traces = snapshot.device_traces.map((trace) => trace.filter(({ action }) => !skipped.includes(action)));
  return readRecording(new TextEncoder().encode(JSON.stringify({ ...snapshot, device_traces }))).traces[0]!;
}

const SEGMENTS = ['segment_alloc', 'segment_free', 'segment_map', 'segment_unmap'];
const BLOCKS = ['alloc', 'free_requested', 'free_completed'];

/** Recordings of one job: with plain and with expandable segments. */
const PLAIN = 'exact/async.pkl.gz';
const EXPANDABLE = 'exact/exp.pkl.gz';

describe('skip_actions', () => {
  it.each([
    [PLAIN, ['alloc'], 'allocs-skipped'],
    [PLAIN, BLOCKS, 'allocs-skipped'],
    [PLAIN, ['free_requested'], 'free-requests-skipped'],
    [PLAIN, ['free_completed'], 'completions-skipped'],
    [PLAIN, ['free_requested', 'free_completed'], 'frees-skipped'],
    [PLAIN, ['segment_alloc'], 'segments-skipped'],
    [PLAIN, ['segment_free'], 'segments-skipped'],
    [PLAIN, SEGMENTS, 'segments-skipped'],
    [EXPANDABLE, ['segment_map'], 'segments-skipped'],
    [EXPANDABLE, ['segment_unmap'], 'segments-skipped'],
    [EXPANDABLE, SEGMENTS, 'segments-skipped'],
    [PLAIN, ['snapshot'], undefined],
    [PLAIN, ['oom'], undefined],
  ])('%s without %j: %s', (sample, skipped, code) => {
    const trace = withoutActions(sample, skipped);
    expect(trace.warnings.map((warning) => warning.code)).toEqual(code ? [code] : []);
    if (code) expect(trace.warnings[0]!.message).toContain('skip_actions');
    const text = formatAnalysis(analyzeTrace(trace, { allocators: [], findSmallest: false }), 'x');
    expect(text).not.toMatch(/damaged|contradict|[1-9][\d,]* of [\d,]+ events differ/);
  });

  it.each([PLAIN, EXPANDABLE])('%s without some segment events: live memory stays exact, reserved memory is unknown', (sample) => {
    const { peakLive } = summarizeTrace(sampleTrace(sample));
    for (const action of sample === PLAIN ? ['segment_alloc', 'segment_free'] : ['segment_map', 'segment_unmap']) {
      const trace = withoutActions(sample, [action]);
      expect(summarizeTrace(trace)).toMatchObject({ peakLive, recordedPeakReserved: undefined });
      const { peak } = analyzeTrace(trace, { allocators: [], findSmallest: false });
      // The model needs about what the whole recording shows, and not what half of its events add up to.
      expect(peak.reserved / summarizeTrace(sampleTrace(sample)).recordedPeakReserved!).toBeCloseTo(1, 1);
    }
  });

  it('without all segment events, the limit of a job that ran out of memory is unknown', () => {
    const full = 'exact/full.pkl.gz';
    const origin = (trace: Trace) => analyzeTrace(trace, { allocators: [], findSmallest: false }).capacityOrigin;
    expect(origin(sampleTrace(full))).toBe('inferred');
    for (const action of ['segment_alloc', 'segment_free']) expect(origin(withoutActions(full, [action])), action).toBe('unknown');
  });

  it('without allocations, only what is live at the end counts', () => {
    const atEnd = sampleTrace(PLAIN).endSegments!.flatMap(({ blocks }) => blocks.filter(({ state }) => state !== 'free'));
    const bytes = atEnd.reduce((sum, { requested }) => sum + requested, 0);
    for (const skipped of [['alloc'], BLOCKS]) expect(summarizeTrace(withoutActions(PLAIN, skipped)).peakRequested).toBe(bytes);
  });

  it('whatever is left out, nothing is said about a complete recording', () => {
    for (const sample of [PLAIN, EXPANDABLE]) expect(withoutActions(sample, []).warnings).toEqual([]);
  });
});
