// Recordings of the ranks of a job, made from samples: the same run a little later, cut before its end, or with larger requests.
import { writeFileSync } from 'node:fs';
import { assembleTrace } from '../../src/trace/assemble.ts';
import { readRecording } from '../../src/trace/detect.ts';
import { Symbols } from '../../src/trace/symbols.ts';
import { EventKind, type Recording, type Trace } from '../../src/trace/trace.ts';
import { writeWeir } from '../../src/trace/weir/writer.ts';
import { readSample } from './samples.ts';

export interface RankChange {
  /** Microseconds by which the rank is later. */
  readonly shiftUs?: number;
  /** Share of the events that are kept, from the beginning. */
  readonly share?: number;
  /** Whether the requests that failed are left out. */
  readonly succeeds?: boolean;
}

/** A file in samples/. */
export function sampleRecording(name: string): Recording {
  return readRecording(readSample(name));
}

/** Writes a rank as a .weir file. */
export function writeRank(recording: Recording, path: string, change: RankChange = {}): void {
  const chunks: Uint8Array[] = [];
  writeWeir({ format: 'weir', traces: recording.traces.map((trace) => changed(trace, change)) }, (chunk) => chunks.push(chunk.slice()));
  writeFileSync(path, Buffer.concat(chunks));
}

function changed(trace: Trace, { shiftUs = 0, share = 1, succeeds = false }: RankChange): Trace {
  const { events } = trace;
  const count = Math.floor(events.count * share);
  const kept = Array.from({ length: count }, (_, event) => event).filter((event) => !succeeds || events.kind[event] !== EventKind.Oom);
  const pick = <Column extends Float64Array | Int32Array | Uint8Array>(column: Column): Column => {
    const picked = new (column.constructor as new (length: number) => Column)(kept.length);
    for (const [to, from] of kept.entries()) picked[to] = column[from]!;
    return picked;
  };
  return assembleTrace({
    ...trace,
    events: {
      ...events,
      count: kept.length,
      kind: pick(events.kind),
      address: pick(events.address),
      size: pick(events.size),
      timeUs: pick(events.timeUs).map((time) => time + shiftUs),
      stream: pick(events.stream),
      pool: pick(events.pool),
      stack: pick(events.stack),
      metadata: pick(events.metadata),
      detail: events.detail && pick(events.detail),
      thread: events.thread && pick(events.thread),
      compileContext: events.compileContext && pick(events.compileContext),
    },
    startSegments: undefined,
    endSegments: share === 1 ? trace.endSegments : undefined,
    annotations: [],
    warnings: [],
  });
}

/** The recording as if its source files had been in this folder. */
export function atHome(recording: Recording, folder: string): Recording {
  const [{ symbols }] = recording.traces as [Recording['traces'][0]];
  const copy = new Symbols();
  const files = new Set(Array.from({ length: symbols.frames.count }, (_, frame) => symbols.frames.filename(frame)));
  Object.assign(copy, { frames: symbols.frames, stacks: symbols.stacks, addresses: symbols.addresses });
  for (let index = 1; index < symbols.strings.length; index++) {
    const text = symbols.strings[index]!;
    copy.strings.push(files.has(index) && text.includes('/') ? folder + text : text);
  }
  return { ...recording, traces: recording.traces.map((trace) => ({ ...trace, symbols: copy })) };
}
