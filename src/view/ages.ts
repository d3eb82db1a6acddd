// Ages and lifetimes for reading: three digits, and the largest unit that fits.

/** `new` below a microsecond; else `942 µs`, `1.47 ms`, `12.3 s`, `4.2 min`, `3.1 h`. */
export function formatAge(us: number): string {
  if (us < 1) return 'new';
  for (const [unit, name, next] of UNITS) {
    // 999.6 µs is 1.00 ms.
    const shown = Number((us / unit).toPrecision(3));
    if (shown < next) return `${unit === 1 ? Math.round(shown) : digits(us / unit)} ${name}`;
  }
  return `${digits(us / 3.6e9)} h`;
}

const UNITS = [
  [1, 'µs', 1000],
  [1e3, 'ms', 1000],
  [1e6, 's', 60],
  [6e7, 'min', 60],
] as const;

function digits(value: number): string {
  return value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2);
}
