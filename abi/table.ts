// The shapes of the tables, and the few units they are written in.

export const KIB = 1024;
export const MIB: number = 1024 * KIB;
export const GIB: number = 1024 * MIB;

/** A name with a line of documentation. */
export interface Entry {
  readonly name: string;
  readonly doc: string;
}

/** An entry with a number of its own: for numbers that files or other builds have seen, and must never change. */
export interface Numbered extends Entry {
  readonly number: number;
}

/** Types of fields in memory that two languages share. */
export type FieldType = 'u8' | 'u16' | 'u32' | 'u64' | 'i32' | 'f64' | 'char' | 'gauges' | 'pointer';

/** A field of a C structure. Offsets follow from order and types, as a C compiler lays them out. */
export interface Field extends Entry {
  readonly type: FieldType;
  /** Dimensions of an array, outermost first. */
  readonly dims?: readonly number[];
}

/** `peakReserved` -> `peak_reserved`. */
export function snake(name: string): string {
  return name.replace(/([A-Z])/g, '_$1').toLowerCase();
}

/** `peakReserved` -> `PEAK_RESERVED`. */
export function screaming(name: string): string {
  return snake(name).toUpperCase();
}

/** `peakReserved` or `peak_reserved` -> `PeakReserved`. */
export function pascal(name: string): string {
  return name.replace(/(^|_)([a-z])/g, (_, _gap, letter: string) => letter.toUpperCase());
}
