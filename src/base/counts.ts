// Counts with their nouns, as output writes them: `1 event`, `2,000 events`.

export function formatCount(value: number): string {
  return value.toLocaleString('en-US');
}

/** `1 retry`, `3 retries`. */
export function formatTimes(value: number, one: string, many: string): string {
  return `${formatCount(value)} ${value === 1 ? one : many}`;
}
