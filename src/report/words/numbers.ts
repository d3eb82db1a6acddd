// Numbers as the terminal and the page both write them. Sizes are in base/bytes.ts.
import { formatBytes } from '../../base/bytes.ts';

export { formatCount, formatTimes } from '../../base/counts.ts';

/** A part of a whole, as `13.5 %`. */
export function formatShare(part: number, whole: number): string {
  return whole === 0 ? '0 %' : `${((100 * part) / whole).toFixed(1)} %`;
}

/** The change from `before` to `after`, as `-35.4 %`. */
export function formatChange(after: number, before: number): string {
  if (before === 0) return '';
  const percent = (100 * (after - before)) / before;
  return `${percent > 0 ? '+' : ''}${percent.toFixed(1)} %`;
}

/** Microseconds as `13.2 ms`. */
export function formatMs(microseconds: number): string {
  return `${(microseconds / 1e3).toFixed(1)} ms`;
}

/** A size, or the range in which it lies. */
export function formatSizeRange(mostBytes: number, leastBytes: number | undefined): string {
  const most = formatBytes(mostBytes);
  if (leastBytes === undefined) return most;
  const [number, unit] = formatBytes(leastBytes).split(' ');
  return most.endsWith(` ${unit}`) ? `${number} to ${most}` : `${number} ${unit} to ${most}`;
}

/** Two sizes with an arrow, the unit once if it is the same: `33.42 -> 21.58 GiB`. */
export function formatSizes(before: number, after: number): string {
  const [number, unit] = formatBytes(before).split(' ');
  const last = formatBytes(after);
  return last.endsWith(` ${unit}`) ? `${number} -> ${last}` : `${number} ${unit} -> ${last}`;
}
