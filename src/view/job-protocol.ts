// What the page asks about several recordings together: a summary of each, and the difference of two.
import { UsageError } from '../base/errors.ts';
import { ALIGNMENTS, type AlignmentKind } from '../report/alignment.ts';
import { type Diff, diffTraces } from '../report/diff.ts';
import type { Recording, Trace } from '../trace/trace.ts';
import type { RankSummary } from './job-rank.ts';

/** One recording of the server has been summarised, or cannot be. */
export type RankNote =
  | { readonly source: number; readonly ranks: readonly RankSummary[] }
  | { readonly source: number; readonly problem: string };

/** One GPU of one recording. */
export interface RankAddress {
  readonly source: number;
  readonly gpu: number;
}

export interface DifferenceAsk {
  readonly a: RankAddress;
  readonly b: RankAddress;
  /** The moments to compare; undefined: steps if both runs have them, else peaks. */
  readonly by: AlignmentKind | undefined;
}

export interface DifferenceView {
  /** With the call sites that changed most. */
  readonly diff: Diff;
  /** Call sites that are left out, and how much they changed together. */
  readonly others: { readonly count: number; readonly bytes: number };
}

/** Call sites in an answer: more than anybody reads. */
const MOST_SITES = 200;

export function differenceView(
  a: { readonly trace: Trace; readonly name: string },
  b: { readonly trace: Trace; readonly name: string },
  by: AlignmentKind | undefined,
): DifferenceView {
  const diff = diffTraces({ trace: a.trace, file: a.name }, { trace: b.trace, file: b.name }, { by });
  const others = diff.sites.slice(MOST_SITES);
  return {
    diff: { ...diff, sites: diff.sites.slice(0, MOST_SITES) },
    others: { count: others.length, bytes: others.reduce((sum, site) => sum + site.after - site.before, 0) },
  };
}

/** The GPU of a recording, or a sentence for people. */
export function traceOf({ traces }: Recording, gpu: number, name: string): Trace {
  const trace = traces.find(({ device }) => device === gpu);
  if (!trace) throw new UsageError(`${name} has no events of GPU ${gpu}`);
  return trace;
}

/** The same question with known fields only. Throws a UsageError that says which field is wrong. */
export function checkDifference(value: unknown, sources: number): DifferenceAsk {
  const { a, b, by } = (value ?? {}) as Record<string, unknown>;
  if (by !== undefined && by !== null && !ALIGNMENTS.some((kind) => kind === by))
    throw new UsageError(`by is one of ${ALIGNMENTS.join(', ')}`);
  return { a: checkAddress(a, 'a', sources), b: checkAddress(b, 'b', sources), by: (by ?? undefined) as AlignmentKind | undefined };
}

function checkAddress(value: unknown, name: string, sources: number): RankAddress {
  const { source, gpu } = (value ?? {}) as Record<string, unknown>;
  if (!Number.isInteger(source) || (source as number) < 0 || (source as number) >= sources)
    throw new UsageError(`${name}.source is the number of a recording; reload the page`);
  if (!Number.isInteger(gpu) || (gpu as number) < 0) throw new UsageError(`${name}.gpu is the number of a GPU`);
  return { source: source as number, gpu: gpu as number };
}
