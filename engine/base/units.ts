// Sizes and a few functions that all files use. All sizes are bytes in u64.

export const MIB: u64 = 1024 * 1024;
export const GIB: u64 = 1024 * MIB;

/** `unit` is a power of two. */
export function roundUp(bytes: u64, unit: u64): u64 {
  return (bytes + unit - 1) & ~(unit - 1);
}

export function smaller(a: u64, b: u64): u64 {
  return a < b ? a : b;
}

export function larger(a: u64, b: u64): u64 {
  return a > b ? a : b;
}

/** Position of the highest set bit; `value` is not 0. */
export function log2(value: u64): u32 {
  return 63 - <u32>clz<u64>(value);
}
