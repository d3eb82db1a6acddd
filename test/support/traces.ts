// Recordings from samples/ as traces, read once per test file.
import { readRecording } from '../../src/trace/detect.ts';
import type { Trace } from '../../src/trace/trace.ts';
import { readSample } from './samples.ts';

const known = new Map<string, Trace>();

/** The first GPU of a sample such as `exact/def.pkl.gz`. */
export function sampleTrace(name: string): Trace {
  let trace = known.get(name);
  if (!trace) {
    trace = readRecording(readSample(name)).traces[0]!;
    known.set(name, trace);
  }
  return trace;
}
