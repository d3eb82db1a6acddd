// Ticks at round numbers along an axis, and their labels.

import { formatBytes, GIB, KIB, MIB, TIB } from '../base/bytes.ts';
import { formatCount } from '../report/words/numbers.ts';
import type { AxisKind } from './clock.ts';

export interface Tick {
  readonly at: number;
  readonly label: string;
}

const STEPS = [1, 2, 5, 10] as const;

export function axisTicks(axis: AxisKind, from: number, to: number, most: number): Tick[] {
  const step = roundStep((to - from) / Math.max(1, most));
  const wanted = axis === 'event' ? Math.max(1, step) : step;
  return ticksOf(from, to, wanted).map((at) => ({ at, label: axis === 'event' ? formatCount(at) : formatTime(at, wanted) }));
}

/** Ticks of a scale in bytes, at powers of two and their halves. */
export function byteTicks(from: number, to: number, most: number): Tick[] {
  const wanted = (to - from) / Math.max(1, most);
  const unit = [TIB, GIB, MIB, KIB, 1].find((candidate) => candidate <= wanted) ?? 1;
  let step = unit;
  while (step < wanted) step *= 2;
  return ticksOf(from, to, step).map((at) => ({ at, label: tickBytes(at) }));
}

function tickBytes(bytes: number): string {
  return formatBytes(bytes)
    .replace(/\.00 /, ' ')
    .replace(/(\.\d)0 /, '$1 ');
}

function ticksOf(from: number, to: number, step: number): number[] {
  const ticks: number[] = [];
  for (let index = Math.ceil(from / step); index * step <= to && ticks.length < 100; index++) ticks.push(index * step);
  return ticks;
}

function roundStep(wanted: number): number {
  const magnitude = 10 ** Math.floor(Math.log10(Math.max(wanted, 1e-9)));
  return magnitude * STEPS.find((step) => step * magnitude >= wanted * 0.999)!;
}

/** A time for reading, precise enough to tell values `step` apart. */
export function formatTime(us: number, step?: number): string {
  const finest = step ?? Math.abs(us) / 1000;
  const [unit, name] = Math.abs(us) >= 1e6 || finest >= 1e5 ? [1e6, 's'] : Math.abs(us) >= 1e3 || finest >= 100 ? [1e3, 'ms'] : [1, 'µs'];
  const digits = Math.max(0, Math.min(6, Math.ceil(-Math.log10(Math.max(finest, 1e-6) / unit) - 1e-9)));
  return `${(us / unit).toFixed(unit === 1 ? Math.min(1, digits) : digits)} ${name}`;
}
