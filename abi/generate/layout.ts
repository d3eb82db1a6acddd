// Offsets of fields as a C compiler for x86-64 or AArch64 lays them out.
import { GAUGES_BYTES } from '../ring.ts';
import type { Field, FieldType } from '../table.ts';

const SIZES: Readonly<Record<FieldType, number>> = {
  u8: 1,
  char: 1,
  u16: 2,
  u32: 4,
  i32: 4,
  u64: 8,
  f64: 8,
  pointer: 8,
  gauges: GAUGES_BYTES,
};

export interface Layout {
  readonly offsets: ReadonlyMap<string, number>;
  readonly bytes: number;
}

export function layoutOf(fields: readonly Field[]): Layout {
  const offsets = new Map<string, number>();
  let end = 0;
  let widest = 1;
  for (const { name, type, dims = [] } of fields) {
    const alignment = Math.min(8, SIZES[type]);
    widest = Math.max(widest, alignment);
    end = roundUp(end, alignment);
    offsets.set(name, end);
    end += dims.reduce((product, count) => product * count, SIZES[type]);
  }
  return { offsets, bytes: roundUp(end, widest) };
}

function roundUp(value: number, unit: number): number {
  return Math.ceil(value / unit) * unit;
}
