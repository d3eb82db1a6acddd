// The ring's layout in TypeScript is the one that a C compiler makes of native/ring.h.
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import * as layout from '../../src/run/rings/ring-layout.ts';
import { EVENT_BYTES, EventOffset } from '../../src/trace/weir/format.ts';
import { ROOT } from '../support/command.ts';

describe('src/run/rings/ring-layout.ts', () => {
  it('is native/ring.h', (context) => {
    const folder = mkdtempSync(join(tmpdir(), 'weir-layout-'));
    try {
      const program = join(folder, 'ring_layout');
      try {
        execFileSync('cc', ['-Wall', '-Wextra', '-Werror', '-Inative', '-o', program, 'test/native/ring_layout.c'], {
          cwd: ROOT,
          stdio: 'pipe',
        });
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code === 'ENOENT') return context.skip();
        throw error;
      }
      const made = JSON.parse(execFileSync(program, { encoding: 'utf8' })) as Record<
        'constants' | 'header' | 'gauges' | 'event',
        Record<string, unknown>
      >;
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
    } finally {
      rmSync(folder, { recursive: true });
    }
  });
});
