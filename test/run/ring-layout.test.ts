// The ring's layout in TypeScript is the one that a C compiler makes of native/runtime/ring.h.
import { describe, expect, it } from 'vitest';
import * as layout from '../../src/run/rings/ring-layout.ts';
import { EVENT_BYTES, EventOffset } from '../../src/trace/weir/format.ts';
import { ringLayout, whyNoNative } from '../native/build.ts';

describe('src/run/rings/ring-layout.ts', () => {
  it('is native/runtime/ring.h', (context) => {
    if (whyNoNative()) return context.skip();
    const made = ringLayout();
    expect(made.constants).toEqual({
      magic: layout.RING_MAGIC,
      version: layout.RING_VERSION,
      devices: layout.RING_DEVICES,
      streams: layout.RING_STREAMS,
      pools: layout.RING_POOLS,
      stringBytes: layout.RING_STRING_BYTES,
      active: layout.RingState.Active,
      closed: layout.RingState.Closed,
    });
    expect(made.header).toEqual({ ...layout.RingOffset, sizeof: layout.RING_HEADER_BYTES });
    const gauges = Object.fromEntries(layout.GAUGE_NAMES.map((name, index) => [name, index * 8]));
    expect(made.gauges).toMatchObject({ ...gauges, sizeof: layout.GAUGES_BYTES });
    const { time, compileContext, ...same } = EventOffset;
    expect(made.event).toEqual({ ...same, time_us: time, compile_context: compileContext, sizeof: EVENT_BYTES });
  });
});
