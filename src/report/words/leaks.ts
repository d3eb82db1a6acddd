// Sentences about memory that grows from step to step.
import { formatBytes } from '../../base/bytes.ts';
import type { LeakingSite, LeakReport } from '../leaks.ts';
import type { RunSteps } from '../run-steps.ts';
import { formatTimes } from './numbers.ts';

export function leakHeadline({ steps, sites }: LeakReport): { readonly what: string; readonly details: string } {
  const total = sites.reduce((sum, site) => sum + site.bytesPerStep, 0);
  const where = sites.length === 1 ? ' at one call site' : ` at ${formatTimes(sites.length, 'call site', 'call sites')}`;
  return { what: 'Memory grows from step to step', details: `by ${formatBytes(Math.round(total))} per step${where}, over ${steps} steps` };
}

export function leakRow({ label, callers, bytesPerStep, first, last }: LeakingSite): string[] {
  return [
    `+${formatBytes(Math.round(bytesPerStep))} per step`,
    `${formatBytes(first)} -> ${formatBytes(last)}`,
    label + callersWords(callers),
  ];
}

/** ` (called from train.py:40 main)`; empty if there are none. */
export function callersWords(callers: readonly string[]): string {
  return callers.length === 0 ? '' : ` (called from ${callers.join(' < ')})`;
}

/** How steps were told apart. */
export function stepsWords({ by, name }: Pick<RunSteps, 'by' | 'name'>): string {
  switch (by) {
    case 'marks':
      return `marks "${name}"`;
    case 'annotations':
      return `annotations "${name}"`;
    case 'metadata':
      return `user metadata "${name}"`;
    case 'repetition':
      return 'repeating requests';
  }
}
