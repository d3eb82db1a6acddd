// Which allocator to show beside the recorded run: the one that would have served the request, as the what-if table says.
import type { Analysis } from '../report/analysis.ts';
import { fitOf, recordedRow, type WhatIfRow } from '../report/what-if.ts';

export interface Beside {
  /** The allocator as the command line writes it. */
  readonly run: string;
  /** The most that it may reserve; undefined: no limit is known. */
  readonly limit: number | undefined;
  /** The limit is the size of a GPU that the user gave. */
  readonly isGiven: boolean;
  /** Whether every request of the run is served within the limit. `unknown`: there is no limit. */
  readonly verdict: 'fits' | 'may-fit' | 'fails' | 'unknown';
  readonly peakReserved: number;
}

/** All allocators that were tried, the best one first: what the advice names, then what fits, then what needs least. */
export function besideChoices({ whatIf, advice, capacity, capacityAtLeast, capacityOrigin }: Analysis): Beside[] {
  const advised = advice.find((each) => each.kind === 'setting' || each.kind === 'engine');
  const isAdvised = (row: WhatIfRow) => (advised?.kind === 'setting' ? row.conf === advised.conf : advised?.kind === row.kind);
  return whatIf
    .filter((row) => !row.isRecorded)
    .map((row) => {
      const verdict: Beside['verdict'] = fitOf(row)?.kind ?? 'unknown';
      // A run that surely fits does so in the least that the limit can be.
      const limit = verdict === 'fits' ? (capacityAtLeast ?? capacity) : capacity;
      return { row, verdict, limit };
    })
    .sort(
      (a, b) =>
        RANKS[a.verdict] - RANKS[b.verdict] ||
        Number(isAdvised(b.row)) - Number(isAdvised(a.row)) ||
        a.row.unlimited.peakReserved - b.row.unlimited.peakReserved,
    )
    .map(({ row, verdict, limit }) => ({
      run: row.allocator,
      limit,
      isGiven: capacityOrigin === 'given',
      verdict,
      peakReserved: row.unlimited.peakReserved,
    }));
}

const RANKS = { fits: 0, unknown: 0, 'may-fit': 1, fails: 2 } as const;

/** The first choice, if it is of use: it serves what failed, or needs less than the recorded allocator. */
export function besideChoice(analysis: Analysis): Beside | undefined {
  const [first] = besideChoices(analysis);
  if (!first || first.verdict === 'fails') return undefined;
  if (analysis.oom && first.verdict !== 'unknown') return first;
  const recorded = recordedRow(analysis.whatIf);
  return recorded && first.peakReserved < recorded.unlimited.peakReserved ? first : undefined;
}
