// The trace of a file of tuning/recorder.py: `+BYTES` for the next slot, `-SLOT` for a free. One stream; a microsecond per event.

import { assembleTrace } from '../src/trace/assemble.ts';
import { EventStore } from '../src/trace/event-store.ts';
import { Symbols } from '../src/trace/symbols.ts';
import { EventKind, type Trace } from '../src/trace/trace.ts';
import { plainBytes } from './traces.ts';

/** Each slot has an address of its own. Nothing looks at what lies between them. */
const SLOT_BYTES = 2 ** 20;

export function requestsTrace(path: string): Trace {
  const lines = plainBytes(path).toString().split('\n');
  const events = new EventStore(2 * lines.length);
  const sizes: number[] = [];
  for (const line of lines) {
    const isRequest = line.startsWith('+');
    const number = Number(line.slice(1));
    const slot = isRequest ? sizes.length : number;
    if (isRequest) sizes.push(number);
    const note = (kind: EventKind) => events.append(kind, (slot + 1) * SLOT_BYTES, sizes[slot]!, events.count, 0, 0, -1, 0);
    if (isRequest) note(EventKind.Alloc);
    else for (const kind of [EventKind.FreeRequested, EventKind.FreeCompleted]) note(kind);
  }
  return assembleTrace({
    device: 0,
    events: events.view(),
    startSegments: undefined,
    endSegments: undefined,
    streams: [0],
    pools: [[0, 0]],
    symbols: new Symbols(),
    settings: new Map(),
    limits: {},
    annotations: [],
    warnings: [],
  });
}
