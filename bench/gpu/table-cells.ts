// Rows, cells and medians, for all tables of training runs.

export const row = (...cells: (string | number)[]): string => `| ${cells.join(' | ')} |\n`;
export const header = (...cells: string[]): string => row(...cells) + row(...cells.map(() => '---'));

export function byWorkload<T extends { readonly workload: string }>(results: readonly T[]): [string, T[]][] {
  return [...new Set(results.map((result) => result.workload))].map((workload) => [
    workload,
    results.filter((result) => result.workload === workload),
  ]);
}

export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  const upper = sorted[middle] ?? Number.NaN;
  return sorted.length % 2 === 1 ? upper : (sorted[middle - 1]! + upper) / 2;
}
