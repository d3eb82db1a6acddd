// Sizes as people type them into the page. The memory of a GPU comes in GiB, so a number without a unit means GiB.
import { parseBytes } from '../base/bytes.ts';

/** Reads `24`, `24GiB` or `512 MB`. Throws a UsageError if it is not a size. */
export function parseSize(text: string): number {
  return parseBytes(isBare(text) ? `${text.trim()}GiB` : text);
}

/** Whether the text is a number without a unit. */
export function isBare(text: string): boolean {
  return /^\s*\d+(?:\.\d+)?\s*$/.test(text);
}
