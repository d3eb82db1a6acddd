// The difference of two ranks or runs: which two, what was found, and the verdict of each.
import { computed, effect, type ReadonlySignal, signal } from '@preact/signals';
import type { AlignmentKind } from '../../src/report/alignment.ts';
import type { Analysis } from '../../src/report/analysis.ts';
import type { DifferenceView } from '../../src/view/job-protocol.ts';
import { analysis, main, type OpenSource, other, wordsOf } from '../app/state.ts';
import { compare } from '../data/comparing.ts';
import { Cancelled } from '../data/connection.ts';
import { newest } from '../data/latest.ts';
import { type JobRank, jobRanks } from './job-state.ts';

/** A rank by the name of its recording and its GPU, as the page's address holds it. */
export function keyOf({ source, summary }: Pick<JobRank, 'source' | 'summary'>): string {
  return `${source.name}#${summary?.gpu ?? 0}`;
}

export interface DifferenceChoice {
  readonly left: string;
  readonly right: string;
  readonly by: AlignmentKind | undefined;
}

/** Ranks whose recordings are here. */
export const comparable: ReadonlySignal<readonly JobRank[]> = computed(() =>
  jobRanks.value.filter(({ summary, source }) => summary !== undefined && source.isKept !== false),
);
export const canCompare: ReadonlySignal<boolean> = computed(() => comparable.value.length > 1);

/** Its panel lies below the open rank. */
export function goToDifference(): void {
  const panel = document.getElementById('difference');
  panel?.scrollIntoView({ block: 'start' });
  panel?.querySelector('select')?.focus({ preventScroll: true });
}

/** What is compared now; undefined: nothing. */
export const comparing = signal<DifferenceChoice | undefined>(undefined);
export const difference = signal<DifferenceView | undefined>(undefined);
export const isComparing = signal(false);
export const differenceProblem = signal<string | undefined>(undefined);
/** The verdicts of both, as far as they are known. */
export const leftVerdict = signal<Analysis | undefined>(undefined);
export const rightVerdict = signal<Analysis | undefined>(undefined);

const newDifference = newest();

export async function showDifference(choice: DifferenceChoice): Promise<void> {
  const [left, right] = [rankOf(choice.left), rankOf(choice.right)];
  const signal = newDifference();
  comparing.value = choice;
  for (const target of [difference, differenceProblem, leftVerdict, rightVerdict]) target.value = undefined;
  if (!left || !right) {
    differenceProblem.value = `${left ? choice.right : choice.left} is not open here`;
    return;
  }
  isComparing.value = true;
  try {
    const sides = [left, right].map(({ source, gpu }) => ({ connection: source.connection, gpu })) as [Side, Side];
    difference.value = await compare(sides[0], sides[1], choice.by, signal);
    await Promise.all([judge(left, leftVerdict, signal), judge(right, rightVerdict, signal)]);
  } catch (error) {
    if (!(error instanceof Cancelled)) differenceProblem.value = wordsOf(error);
  } finally {
    if (!signal.aborted) isComparing.value = false;
  }
}

export function closeDifference(): void {
  newDifference();
  isComparing.value = false;
  for (const target of [comparing, difference, differenceProblem]) target.value = undefined;
}

type Side = Parameters<typeof compare>[0];

function rankOf(key: string): { readonly source: OpenSource; readonly gpu: number } | undefined {
  const rank = jobRanks.value.find((candidate) => keyOf(candidate) === key);
  return rank && { source: rank.source, gpu: rank.summary?.gpu ?? 0 };
}

/** The verdict alone: the allocators that follow it take seconds and are not shown here. */
async function judge(
  { source, gpu }: { readonly source: OpenSource; readonly gpu: number },
  into: typeof leftVerdict,
  whole: AbortSignal,
): Promise<void> {
  const known = source.analyses?.get(gpu) ?? (isOpen(source, gpu) ? analysis.value : undefined);
  if (known?.file === source.name) {
    into.value = known.analysis;
    return;
  }
  const enough = new AbortController();
  const stop = () => enough.abort();
  whole.addEventListener('abort', stop, { once: true });
  try {
    const found = await source.connection.ask(
      'analyze',
      gpu,
      {},
      ({ partial }) => {
        if (!partial || whole.aborted) return;
        into.value = partial.analysis;
        stop();
      },
      enough.signal,
    );
    into.value = found.analysis;
  } catch (error) {
    if (!(error instanceof Cancelled)) throw error;
  } finally {
    whole.removeEventListener('abort', stop);
  }
}

function isOpen(source: OpenSource, gpu: number): boolean {
  return main.value?.source === source && main.value.gpu.device === gpu;
}

/** Whoever puts another recording beside the open one wants to know the difference too. */
effect(() => {
  const [left, right] = [main.value, other.value];
  if (!left || !right || left.source === right.source) return;
  const keys = [left, right].map(({ source, gpu }) => `${source.name}#${gpu.device}`);
  const now = comparing.peek();
  if (now?.left === keys[0] && now?.right === keys[1]) return;
  void showDifference({ left: keys[0]!, right: keys[1]!, by: undefined });
});
