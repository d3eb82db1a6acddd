// Sentences about memory that did not fit: why, what a hole is, and who pins it.
import { formatBytes } from '../base/bytes.ts';
import { formatCount, formatTimes } from '../report/words/numbers.ts';
import type { Misfit } from './fit-misfits.ts';
import { HoleUse, largestUsable, RunKind } from './fit-strip.ts';
import type { FitLane, HoleInfo } from './fit-view.ts';

/** The request, in a few words. */
export function misfitTitle({ kind, bytes, event }: Misfit): string {
  return kind === 'failed'
    ? `The request for ${formatBytes(bytes)} that failed at event ${formatCount(event)}`
    : `The request for ${formatBytes(bytes)} at event ${formatCount(event)}, for which reserved memory rose towards its peak`;
}

/** Why the request does not fit into this memory, or that it does. */
export function fitSentence(misfit: Misfit, lane: FitLane): string {
  const { strip, limit, unplaced } = lane;
  const most = mostUsable(lane);
  const unreserved = limit === undefined ? undefined : Math.max(0, limit - strip.reserved - unplaced);
  if (lane.event !== misfit.at) {
    if (most >= misfit.bytes)
      return `At this moment it would fit: ${lane.isStitched ? 'the holes have' : 'the largest hole has'} ${formatBytes(most)}.`;
    if (unreserved !== undefined && unreserved >= misfit.bytes)
      return `At this moment it would fit: ${formatBytes(unreserved)} of ${formatBytes(limit!)} are not reserved.`;
  }
  return [
    freeSentence(lane, most, misfit.bytes),
    unreserved === undefined ? '' : `Not reserved: ${formatBytes(unreserved)} of ${formatBytes(limit!)}.`,
    demandSentence(misfit, lane),
  ]
    .filter((sentence) => sentence !== '')
    .join(' ');
}

/** What a request can get from holes: one of them, or all if they can be stitched together. */
function mostUsable({ strip, isStitched }: FitLane): number {
  const run = largestUsable(strip);
  if (run < 0) return 0;
  return isStitched ? strip.usable : strip.runSize[run]!;
}

function freeSentence({ strip, isStitched }: FitLane, most: number, wanted: number): string {
  const holes = strip.holes.length;
  if (holes === 0) return 'No reserved memory is free.';
  const free = `${formatBytes(strip.free)} of reserved memory is free, in ${formatTimes(holes, 'hole', 'holes')}.`;
  if (most === 0) return `${free} A request like this one may use none of them.`;
  const lacks = most < wanted ? `, ${formatBytes(wanted - most)} too little` : '';
  return `${free} ${isStitched ? 'Stitched together, those' : 'The largest'} that it may use ${isStitched ? 'have' : 'has'} ${formatBytes(most)}${lacks}.`;
}

function demandSentence(misfit: Misfit, { strip, limit }: FitLane): string {
  const over = limit === undefined ? 0 : strip.used + misfit.bytes - limit;
  return over > 0 ? `Memory in use and the request exceed the limit by ${formatBytes(over)}, whatever the layout.` : '';
}

/** What the same request finds under another allocator. */
export function besideSentence(misfit: Misfit, lane: FitLane): string {
  const { strip, served, failures } = lane;
  const state = `${formatBytes(strip.reserved)} reserved, ${formatBytes(strip.free)} free in ${formatTimes(strip.holes.length, 'hole', 'holes')}`;
  const others = failures > 0 ? ', but others fail' : '';
  if (served.length > 2) return `The request fits, stitched from ${served.length / 2} pieces${others}: ${state}.`;
  if (served.length > 0) return `The request fits${others}: ${state}.`;
  return lane.event === misfit.event ? `The request fails here too: ${state}.` : `At this moment: ${state}.`;
}

function useSentence({ use, segment }: HoleInfo): string {
  switch (use) {
    case HoleUse.Usable:
      return 'A request like this one may use it.';
    case HoleUse.OtherSize:
      return `Its segment serves only requests ${segment.isSmall ? 'up to' : 'above'} 1 MiB.`;
    case HoleUse.OtherStream:
      return 'It is kept for another stream.';
    case HoleUse.OtherPool:
      return 'It belongs to another memory pool.';
  }
}

/** Short, for the table of holes. */
export const USE_NAMES: Record<HoleUse, string> = {
  [HoleUse.Usable]: 'of the right kind',
  [HoleUse.OtherSize]: 'other size class',
  [HoleUse.OtherStream]: 'other stream',
  [HoleUse.OtherPool]: 'other pool',
};

/** What a hole is to a request. */
export function useWords(use: HoleUse, bytes: number, request: number): string {
  if (use !== HoleUse.Usable || request === 0) return USE_NAMES[use];
  return bytes >= request ? 'large enough' : 'too small';
}

export const KIND_NAMES: Record<(typeof RunKind)[keyof typeof RunKind], string> = {
  [RunKind.Used]: 'in use',
  [RunKind.Pending]: 'freed, still in use by other streams',
  [RunKind.Hole]: 'free',
};

export function holeSentence(hole: HoleInfo): string {
  const { bytes, segment, pinCount, pinBytes } = hole;
  const where = `A hole of ${formatBytes(bytes)} in ${segment.isMapped ? 'mapped memory' : 'a segment'} of ${formatBytes(segment.bytes)}.`;
  const pinned =
    pinCount === 0
      ? 'Nothing pins it: the whole segment is free.'
      : `${formatTimes(pinCount, 'block', 'blocks')} (${formatBytes(pinBytes)})${siteWords(hole)} ${pinCount === 1 ? 'pins' : 'pin'} ${formatBytes(segment.free)} of free memory there.`;
  return `${where} ${useSentence(hole)} ${pinned}`;
}

/** A call site that has less of the pinning memory than this is not named. */
const MOSTLY = 0.5;

/** The line to look at, if one has most of the blocks; labels in parentheses are no lines. */
function siteWords({ pins, pinBytes, pinCount }: HoleInfo): string {
  const sites = new Map<string, number>();
  for (const { site, size } of pins) sites.set(site, (sites.get(site) ?? 0) + size);
  const [most] = [...sites].sort((a, b) => b[1] - a[1]);
  if (!most || pinCount === 1 || most[0].startsWith('(') || most[1] < MOSTLY * pinBytes) return '';
  return `, ${most[1] === pinBytes ? 'all' : 'most'} of them from ${most[0]},`;
}
