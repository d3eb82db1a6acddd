// Sentences about what happened to a run: one fact, one sentence. The terminal and the page show the same ones.
import { formatBytes } from '../../base/bytes.ts';
import type { TraceSummary } from '../../trace/summary.ts';
import type { HostMemory } from '../../trace/trace.ts';
import type { Analysis, ReplayError } from '../analysis.ts';
import { lostBytes, type MemoryPart, type PartKind } from '../losses.ts';
import type { Breakdown, OomFinding } from '../moment.ts';
import { formatCount, formatShare, formatTimes } from './numbers.ts';

/** What failed; the finding is about the last of `failures`. */
export function oomHeadline(oom: OomFinding, failures: number): { readonly what: string; readonly details: string } {
  const which = failures > 1 ? ` (the last of ${formatCount(failures)} failures)` : '';
  return {
    what: 'Out of memory',
    details: `at event ${formatCount(oom.event)}${which}: a request for ${formatBytes(oom.asked)} failed.`,
  };
}

const CAUSES: Record<OomFinding['cause'], string> = {
  fragmentation: 'fragmentation. Enough memory was free, but not in one piece.',
  demand: 'demand. The request and the memory in use exceed the limit, whatever the layout.',
  'other-streams': "other streams' caches. Enough memory was free, but PyTorch keeps it for the stream that freed it.",
  'other-pools': 'memory pools. Enough memory was free, but in another pool than the request (CUDA graphs and MemPools have their own).',
  pending: 'pending frees. Other streams still used freed memory (record_stream).',
};

export function oomCause({ cause }: OomFinding): string {
  return `Cause: ${CAUSES[cause]}`;
}

/** Where the memory was when the request failed. */
export function oomState({ breakdown, limit, limitOrigin, deviceFree }: OomFinding): string {
  const free = breakdown.fragmented + breakdown.smallSegments + breakdown.otherStreams + breakdown.otherPools;
  const unreserved = limit === undefined ? deviceFree : Math.max(0, limit - breakdown.reserved);
  const of = limit === undefined ? '' : ` of ${limitOrigin === 'inferred' ? 'at most ' : ''}${formatBytes(limit)}`;
  return [
    `In use: ${formatBytes(breakdown.requested + breakdown.rounding)}.`,
    freeWords(free, breakdown),
    `Not reserved: ${formatBytes(unreserved)}${of}.`,
  ].join(' ');
}

function freeWords(free: number, { freePieces, largestFree }: Breakdown): string {
  if (free === 0) return 'Free inside reserved memory: none.';
  const largest = largestFree > 0 ? `the largest ${formatBytes(largestFree)}` : 'none of which this request can use';
  return `Free inside reserved memory: ${formatBytes(free)} in ${formatTimes(freePieces, 'piece', 'pieces')}, ${largest}.`;
}

/** Which live allocations keep free memory in pieces; undefined if that is not the cause. */
export function oomPinning({ cause, pinning }: OomFinding): string | undefined {
  if (cause !== 'fragmentation' || pinning.segments === 0) return undefined;
  return `${formatTimes(pinning.liveBlocks, 'live allocation', 'live allocations')} (${formatBytes(pinning.liveBytes)}) split ${formatBytes(pinning.freeBytes)} of free memory across ${formatTimes(pinning.segments, 'segment', 'segments')}.`;
}

export function peakHeadline(peak: Breakdown): { readonly what: string; readonly details: string } {
  const lost = lostBytes(peak);
  return {
    what: `Peak: ${formatBytes(peak.reserved)} reserved`,
    details: `${formatBytes(peak.requested)} in use, ${formatBytes(lost)} (${formatShare(lost, peak.reserved)}) lost`,
  };
}

/** Call sites named in one sentence, and the least share of live memory that is worth naming. */
const MOST_HOLDERS = 3;
const LEAST_HELD = 0.05;

/** Which lines hold the memory; undefined: no line is known. */
export function holdersSentence({ sites, liveAtSites, oom }: Pick<Analysis, 'sites' | 'liveAtSites' | 'oom'>): string | undefined {
  const named = sites.filter(({ label, bytes }) => !label.startsWith('(') && bytes >= LEAST_HELD * liveAtSites).slice(0, MOST_HOLDERS);
  if (named.length === 0) return undefined;
  const lines = named.map(({ label, bytes }) => `${label} (${formatBytes(bytes)}, ${formatShare(bytes, liveAtSites)})`);
  return `Lines that held most of the ${formatBytes(liveAtSites)} live ${oom ? 'when the request failed' : 'at the peak'}: ${lines.join(', ')}.`;
}

export const NOTHING_RESERVED = 'No memory was reserved.';

/** Short names, for the bar of the page. */
export const PART_NAMES: Record<PartKind, string> = {
  used: 'in use',
  fragmented: 'fragmented',
  'other-streams': 'cached for other streams',
  'other-pools': 'in other pools',
  'small-segments': 'in small segments',
  pending: 'waiting for streams',
  rounding: 'rounding',
};

/** What a lost part was lost to. */
export function lossCause({ kind }: MemoryPart, { largestFree }: Breakdown): string {
  switch (kind) {
    case 'fragmented':
      return `external fragmentation: free pieces of at most ${formatBytes(largestFree)}`;
    case 'other-streams':
      return 'free, but cached for other streams';
    case 'other-pools':
      return "free, but in other pools than the request's (CUDA graphs, MemPool)";
    case 'small-segments':
      return 'free, but in segments for requests up to 1 MiB';
    case 'pending':
      return 'freed, but other streams still use it';
    case 'rounding':
      return 'rounding of requests';
    case 'used':
      return 'in use';
  }
}

export const HELD_SINCE_START = 'in use since before the recording began (not lost)';

/** How much of the peak private pools hold; undefined: nothing. */
export function privatePoolsSentence({ privateReserved, privateRequested }: Breakdown): string | undefined {
  if (privateReserved === 0) return undefined;
  return `Private pools (CUDA graphs, MemPool) held ${formatBytes(privateReserved)} of it, ${formatBytes(privateRequested)} in use.`;
}

/** What the process took from host memory; undefined: not recorded. */
export function hostMemorySentence(host: HostMemory | undefined): string | undefined {
  if (!host) return undefined;
  const rounding =
    host.roundingAtEnd === undefined
      ? 'These are sizes after rounding up; the requests are not recorded.'
      : `Rounding at the end: ${formatBytes(host.roundingAtEnd)}.`;
  const level = (held: number, used: number | undefined) =>
    used === undefined ? formatBytes(held) : `${formatBytes(held)} (${formatBytes(used)} in use)`;
  return `Pinned host memory: peak ${level(host.peakHeld, host.usedAtPeak)}, at the end ${level(host.heldAtEnd, host.usedAtEnd)}. ${rounding}`;
}

/** The least that any allocator needs for this run. */
export function floorSentence({ peakLive, peakDemand }: TraceSummary): string {
  const reason =
    peakDemand > peakLive
      ? `peak live memory, failed requests included (${formatBytes(peakLive)} without them)`
      : 'the peak of live memory';
  return `No allocator needs less than ${formatBytes(peakDemand)} without swapping: ${reason}.`;
}

/** How far the model of the recorded allocator is from the recording. */
export function replayErrorSentence(error: ReplayError): string {
  const modelled = formatBytes(error.modelledPeakReserved);
  if (error.recordedPeakReserved === undefined)
    return `Replay error unknown: the recording does not show all segments. The model reserves ${modelled} at its peak.`;
  const recorded = formatBytes(error.recordedPeakReserved);
  if (error.incomplete && error.differing > 0)
    return `Replay error unknown: the recording leaves out events. Peak reserved: ${recorded} recorded, ${modelled} modelled.`;
  const apart = formatShare(Math.abs(error.modelledPeakReserved - error.recordedPeakReserved), error.recordedPeakReserved);
  if (error.engine)
    return `The job ran on ${error.engine} and reserved ${recorded} at its peak. The replay reserves ${modelled} (${apart} apart): in a replay, streams finish at other moments.`;
  const version =
    error.pytorch.origin === 'matched'
      ? ` The recording does not name its version of PyTorch; the model that repeats it best is that of ${error.pytorch.versions}.`
      : '';
  const inferred = error.emptyCaches > 0 ? ` Calls of empty_cache() inferred: ${formatCount(error.emptyCaches)}.` : '';
  if (isExact(error))
    return `Replay error 0: the model repeats all ${formatCount(error.compared)} recorded addresses, segments and failures; peak reserved ${modelled} in both.${inferred}${version}`;
  return `Replay error ${apart}: peak reserved ${recorded} recorded, ${modelled} modelled. ${formatCount(error.differing)} of ${formatCount(error.compared)} events differ, the first at event ${formatCount(error.firstEvent)}.${inferred}${version}`;
}

/** Whether the model did exactly what the recorded allocator did. */
export function isExact({ differing, recordedPeakReserved, engine }: ReplayError): boolean {
  return differing === 0 && recordedPeakReserved !== undefined && !engine;
}
