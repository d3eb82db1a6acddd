// Small recordings made up for tests: rows of events become a trace.
import { assembleTrace } from '../../src/trace/assemble.ts';
import { EventStore } from '../../src/trace/event-store.ts';
import { Symbols } from '../../src/trace/symbols.ts';
import type { EventKind, Segment, SettingValue, Trace } from '../../src/trace/trace.ts';

export interface ForgedEvent {
  readonly kind: EventKind;
  readonly address: number;
  readonly size: number;
  readonly stream?: number;
}

export function forgeTrace(
  rows: readonly ForgedEvent[],
  options: {
    readonly settings?: ReadonlyMap<string, SettingValue>;
    readonly limits?: Trace['limits'];
    readonly startSegments?: readonly Segment[];
    readonly endSegments?: readonly Segment[];
    readonly streams?: number;
  } = {},
): Trace {
  const store = new EventStore();
  rows.forEach(({ kind, address, size, stream = 0 }, row) => {
    store.append(kind, address, size, 10 * row, stream, 0, -1, 0);
  });
  return assembleTrace({
    device: 0,
    events: store.view(),
    startSegments: options.startSegments,
    endSegments: options.endSegments,
    streams: Array.from({ length: options.streams ?? 1 }, (_, stream) => stream),
    pools: [[0, 0]],
    symbols: new Symbols(),
    settings: options.settings ?? new Map(),
    limits: options.limits ?? {},
    annotations: [],
    warnings: [],
  });
}
