// Reads and writes sizes such as `24GiB`. In memory and in JSON a size is a plain number of bytes.
import { UsageError } from './errors.ts';

export const KIB = 1024;
export const MIB: number = 1024 * KIB;
export const GIB: number = 1024 * MIB;
export const TIB: number = 1024 * GIB;

const UNITS: ReadonlyMap<string, number> = new Map([
  ['', 1],
  ['b', 1],
  ['k', KIB],
  ['kib', KIB],
  ['kb', 1e3],
  ['m', MIB],
  ['mib', MIB],
  ['mb', 1e6],
  ['g', GIB],
  ['gib', GIB],
  ['gb', 1e9],
  ['t', TIB],
  ['tib', TIB],
  ['tb', 1e12],
]);

/** Reads `24GiB`, `512 MiB`, `80GB`, `1.5g` or a plain number of bytes. Decimal units (GB) are powers of ten. */
export function parseBytes(text: string): number {
  const match = /^\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*$/i.exec(text);
  const unit = match ? UNITS.get(match[2]!.toLowerCase()) : undefined;
  if (!match || unit === undefined) throw new UsageError(`'${text}' is not a size; write it like 24GiB, 512MiB or 80GB`);
  const bytes = Math.round(Number(match[1]) * unit);
  if (!Number.isSafeInteger(bytes)) throw new UsageError(`'${text}' is too large for a size; write it like 24GiB, 512MiB or 80GB`);
  return bytes;
}

/** Formats a size for people, in binary units with at least three significant digits (`15.72 GiB`, `512 B`). */
export function formatBytes(bytes: number): string {
  const magnitude = Math.abs(bytes);
  if (magnitude < KIB) return `${bytes} B`;
  if (magnitude < MIB) return `${trim(bytes / KIB, 1)} KiB`;
  if (magnitude < GIB) return `${trim(bytes / MIB, 1)} MiB`;
  if (magnitude < 1000 * GIB) return `${(bytes / GIB).toFixed(2)} GiB`;
  return `${(bytes / TIB).toFixed(2)} TiB`;
}

function trim(value: number, digits: number): string {
  return value.toFixed(digits).replace(/\.0+$/, '');
}

export function roundUp(bytes: number, unit: number): number {
  return Math.ceil(bytes / unit) * unit;
}

export function roundDown(bytes: number, unit: number): number {
  return Math.floor(bytes / unit) * unit;
}
