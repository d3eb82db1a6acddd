// Ticks, times and scales as people read them.
import { describe, expect, it } from 'vitest';
import { GIB } from '../../src/base/bytes.ts';
import { boundsOf, stepOn } from '../../src/view/block-classes.ts';
import { axisTicks, byteTicks, formatTime } from '../../src/view/ticks.ts';

describe('ticks', () => {
  it('are round and evenly written', () => {
    expect(axisTicks('time', 0, 3.7e6, 8).map((tick) => tick.label)).toEqual([
      '0.0 s',
      '0.5 s',
      '1.0 s',
      '1.5 s',
      '2.0 s',
      '2.5 s',
      '3.0 s',
      '3.5 s',
    ]);
    expect(axisTicks('time', 1e6, 1.0004e6, 4).map((tick) => tick.label)).toEqual([
      '1.0000 s',
      '1.0001 s',
      '1.0002 s',
      '1.0003 s',
      '1.0004 s',
    ]);
    expect(axisTicks('event', 10, 14, 8).map((tick) => tick.label)).toEqual(['10', '11', '12', '13', '14']);
    expect(byteTicks(0, 23 * GIB, 4).map((tick) => tick.label)).toEqual(['0 B', '8 GiB', '16 GiB']);
  });

  it('write times at their size', () => {
    expect([12, 1234, 1_234_567].map((us) => formatTime(us))).toEqual(['12.0 µs', '1.234 ms', '1.235 s']);
  });
});

describe('a scale', () => {
  it('reaches from the least to the most of what there is, in equal ratios', () => {
    const { least, most } = boundsOf([0, 4096, 512, 32768, Number.POSITIVE_INFINITY]);
    expect([least, most]).toEqual([512, 32768]);
    expect([512, 4096, 32768].map((size) => stepOn(size, least, most))).toEqual([0, 16, 31]);
    expect([stepOn(0, least, most), stepOn(2 ** 40, least, most)]).toEqual([0, 31]);
  });

  it('of one value has one step', () => {
    const { least, most } = boundsOf([2048, 2048]);
    expect(stepOn(2048, least, most)).toBe(31);
    expect(boundsOf([])).toEqual({ least: 1, most: 1 });
  });
});
