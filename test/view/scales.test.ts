// Ticks, times and colours as people read them.
import { describe, expect, it } from 'vitest';
import { GIB } from '../../src/base/bytes.ts';
import { COLOUR_MODES, FADED, sizeStep, timeStep } from '../../src/view/block-classes.ts';
import { DARK_MAP, LIGHT_MAP, paletteOf, viridis } from '../../src/view/colours.ts';
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

describe('colours', () => {
  it('run from dark to light on a scale, so that grey tells them apart too', () => {
    const lightness = [0, 0.25, 0.5, 0.75, 1].map((share) => viridis(share)).map(([r, g, b]) => 0.2126 * r + 0.7152 * g + 0.0722 * b);
    expect([...lightness].sort((a, b) => a - b)).toEqual(lightness);
  });

  it('exist for every class in both themes', () => {
    for (const mode of COLOUR_MODES) {
      expect(paletteOf(mode, LIGHT_MAP)).toHaveLength(768);
      expect([...paletteOf(mode, DARK_MAP).subarray(FADED * 3)]).toEqual(DARK_MAP.faded);
    }
  });

  it('step with every doubling', () => {
    expect([sizeStep(1), sizeStep(512), sizeStep(1024), sizeStep(2 ** 60)]).toEqual([0, 0, 1, 31]);
    expect([timeStep(0), timeStep(1), timeStep(2)]).toEqual([0, 0, 1]);
  });
});
