// The rows of the what-if table: what is known, what is known for another GPU size only, and what is still to come.
// Every row has its place from the start, so that nothing moves while results come in.
import { computed, effect, type ReadonlySignal, signal } from '@preact/signals';
import type { Analysis } from '../../src/report/analysis.ts';
import { isHistory, type WhatIfRow } from '../../src/report/what-if.ts';
import type { AnalysisView } from '../../src/view/analysis-view.ts';
import { analysis, capacity, guarded, main } from '../app/state.ts';
import { newest } from '../data/latest.ts';

export interface Line {
  readonly allocator: string;
  readonly isRecorded: boolean;
  /** Undefined: still to come. */
  readonly row: WhatIfRow | undefined;
  /** The row is that of another GPU size: the new one is still to come. */
  readonly isStale: boolean;
}

/** Whether allocators that nobody runs today are listed too, as `weir analyze --all` does. */
export const isAllShown = signal(false);
const history = signal<{ readonly key: string; readonly view: AnalysisView } | undefined>(undefined);
const complete = signal<AnalysisView | undefined>(undefined);

effect(() => {
  if (analysis.value?.isComplete) complete.value = analysis.value;
});

/** The last whole analysis of the same GPU, if the present one is not whole yet. */
const before: ReadonlySignal<Analysis | undefined> = computed(() => {
  const [now, last] = [analysis.value, complete.value];
  return now && !now.isComplete && last?.file === now.file && last.analysis.device === now.analysis.device ? last.analysis : undefined;
});

/** The facts whose advice is shown: those of the last GPU size while the new ones are worked out. */
export const advised: ReadonlySignal<{ readonly facts: Analysis; readonly state: 'final' | 'stale' | 'so-far' } | undefined> = computed(
  () => {
    const now = analysis.value;
    if (!now) return undefined;
    if (now.isComplete) return { facts: now.analysis, state: 'final' };
    return before.value ? { facts: before.value, state: 'stale' } : { facts: now.analysis, state: 'so-far' };
  },
);

export const lines: ReadonlySignal<readonly Line[]> = computed(() => {
  const rows = analysis.value?.analysis.whatIf ?? [];
  const old = before.value?.whatIf ?? [];
  const extra =
    isAllShown.value && history.value?.key === keyNow() ? history.value.view.analysis.whatIf.filter((row) => !row.isRecorded) : [];
  const known = new Map([...rows, ...extra].map((row) => [row.allocator, row]));
  const stale = new Map(old.map((row) => [row.allocator, row]));
  const expected = analysis.value && rows.length === 0 && analysis.value.isComplete ? [] : (main.value?.run.choices ?? []);
  const recorded = rows.find((row) => row.isRecorded)?.allocator ?? main.value?.run.choices[0];
  return [...new Set([...expected, ...known.keys(), ...stale.keys()])]
    .filter((allocator) => isAllShown.value || allocator === recorded || !isHistory(allocator))
    .map((allocator) => ({
      allocator,
      isRecorded: allocator === recorded,
      row: known.get(allocator) ?? stale.get(allocator),
      isStale: !known.has(allocator) && stale.has(allocator),
    }));
});

function keyNow(): string {
  return `${main.value?.source.name} ${main.value?.gpu.device} ${capacity.value}`;
}

const newHistory = newest();

/** Asks for the rows of historical interest once somebody wants to see them, after the others. */
effect(() => {
  const lane = main.value;
  const key = keyNow();
  if (!lane || !isAllShown.value || !analysis.value?.isComplete || history.peek()?.key === key) return;
  const signal = newHistory();
  void guarded(async () => {
    const ask = { capacity: capacity.value, isHistory: true };
    const view = await lane.source.connection.ask('analyze', lane.gpu.device, ask, undefined, signal);
    history.value = { key, view };
  });
});
