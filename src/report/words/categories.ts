// Categories of memory in words: what each holds, and how that was found.
import { formatBytes } from '../../base/bytes.ts';
import type { Category, CategoryBytes, CategoryWay } from '../categories.ts';
import { formatShare } from './numbers.ts';

/** With an explanation, for tables. */
export const CATEGORY_WORDS: Readonly<Record<Category, string>> = {
  parameter: 'parameters',
  gradient: 'gradients',
  optimizerState: 'optimizer state',
  activation: 'activations, kept for the backward pass',
  temporary: 'temporary, within one phase of a step',
  buffer: 'buffers of modules',
  kvCache: 'keys and values of attention (KV cache)',
  graph: 'private pools (CUDA graphs, MemPool)',
  unknown: 'unknown',
};

/** In a word or two, for lists. */
export const CATEGORY_TITLES: Readonly<Record<Category, string>> = {
  unknown: 'unknown',
  parameter: 'parameters',
  gradient: 'gradients',
  optimizerState: 'optimizer state',
  activation: 'activations',
  temporary: 'temporaries',
  buffer: 'buffers',
  kvCache: 'KV cache',
  graph: 'graphs and MemPools',
};

const WAY_WORDS: Readonly<Record<CategoryWay, string>> = {
  told: 'what the process told',
  pools: 'its pool',
  phases: 'phases of the steps',
  stacks: 'call stacks',
  lifetimes: 'lifetimes (a guess)',
  none: 'not found',
};

/** Largest first, `unknown` last: bytes, share, what it is. Empty if nothing is known. */
export function categoryRows({ bytes, live }: CategoryBytes): string[][] {
  if (bytes.unknown === live) return [];
  return (Object.entries(bytes) as [Category, number][])
    .filter(([, size]) => size > 0)
    .sort(([a, some], [b, more]) => Number(a === 'unknown') - Number(b === 'unknown') || more - some)
    .map(([category, size]) => [formatBytes(size), formatShare(size, live), CATEGORY_WORDS[category]]);
}

/** `Found by call stacks: 99 %, not found: 1 %.` */
export function waysSentence({ ways, live }: Pick<CategoryBytes, 'ways' | 'live'>): string {
  const found = (Object.entries(ways) as [CategoryWay, number][])
    .filter(([, size]) => size > 0)
    .sort(([a, some], [b, more]) => Number(a === 'none') - Number(b === 'none') || more - some)
    .map(([way, size]) => `${WAY_WORDS[way]}: ${formatShare(size, live)}`);
  return `Found by ${found.join(', ')}.`;
}
