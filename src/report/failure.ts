// One out-of-memory error, from the recording that ends with it: what was asked for, who held the memory, what would have made it fit.

import { PhaseMark } from '../abi/events.ts';
import { MIB } from '../base/bytes.ts';
import { allowedByFraction } from '../replay/limits.ts';
import { type OtherParts, otherParts } from '../trace/other-memory.ts';
import { liveSize } from '../trace/summary.ts';
import { EventKind, type HostMemory, type Trace } from '../trace/trace.ts';
import { analyzeTrace } from './analysis.ts';
import type { Category } from './categories.ts';
import { type CallSite, topSites } from './sites.ts';
import { adviceLine } from './words/advice.ts';

export interface FailureFacts {
  readonly gpu: number;
  readonly timeUs: number;
  readonly asked: number;
  /** `file.py:123 function`; undefined: no stack was recorded. */
  readonly site: string | undefined;
  /** `forward`, `backward` or `optimizer`; undefined: not recorded. */
  readonly phase: string | undefined;
  readonly live: number;
  readonly reserved: number | undefined;
  readonly deviceFree: number;
  readonly deviceBytes: number | undefined;
  /** The limit of the process, if it is below the memory of the GPU. */
  readonly limit: number | undefined;
  readonly categories: Readonly<Record<Category, number>>;
  /** Largest first. */
  readonly sites: readonly CallSite[];
  readonly other: OtherParts | undefined;
  readonly hostMemory: HostMemory | undefined;
  readonly fit: Fit;
}

/** What would have made the request fit. */
export interface Fit {
  /** Live memory and the request exceed what the process could get by so much; 0: they do not. */
  readonly short: number;
  /** If `short` is 0: free memory that could not be used in one piece. */
  readonly scattered: number;
  /** The request alone is larger than the GPU. */
  readonly isOversized: boolean;
  /** A limit that would do, if the GPU has so much. */
  readonly limit: number | undefined;
  /** Memory of other processes, if that alone would be enough. */
  readonly others: number | undefined;
  /** The GPU had room, so a limit that is not known stood in the way. */
  readonly isLimited: boolean;
  /** A line to type that makes the run fit in replay. */
  readonly setting: string | undefined;
}

const MOST_SITES = 8;
/** PyTorch asks the driver for multiples of this where requests are large, and of less where they are small. */
const LARGEST_ROUNDING = 20 * MIB;

/** Undefined if the recording has no failure. */
export function explainFailure(trace: Trace): FailureFacts | undefined {
  const analysis = analyzeTrace(trace, { findSmallest: false, withHistory: false });
  const { oom } = analysis;
  if (!oom) return undefined;
  const { deviceBytes } = trace.limits;
  const live = Object.values(oom.categories).reduce((sum, bytes) => sum + bytes, 0);
  const reserved = trace.segmentsUnknown ? undefined : reservedAt(trace, oom.event);
  const limit = allowedByFraction(trace.limits);
  const other = trace.otherMemory ? otherParts(trace.otherMemory) : undefined;
  const onGpu = (reserved ?? live) + oom.deviceFree;
  const isCapped = limit !== undefined && limit < onGpu;
  const most = isCapped ? limit : onGpu;
  const needed = live + liveSize(oom.asked);
  const short = Math.max(0, needed - most);
  const room = (deviceBytes ?? 0) - (other?.total ?? 0);
  return {
    gpu: trace.device,
    timeUs: oom.timeUs,
    asked: oom.asked,
    site: oom.site,
    phase: phaseAt(trace, oom.event),
    live,
    reserved,
    deviceFree: oom.deviceFree,
    deviceBytes,
    limit,
    categories: oom.categories,
    sites: topSites(trace, oom.event, MOST_SITES),
    other,
    hostMemory: trace.hostMemory,
    fit: {
      short,
      scattered: short > 0 ? 0 : Math.max(0, most - live),
      isOversized: liveSize(oom.asked) > (deviceBytes ?? Number.POSITIVE_INFINITY),
      limit: short > 0 && limit !== undefined && room >= needed ? needed : undefined,
      others: short > 0 && !isCapped && other?.own !== undefined && other.others >= short ? other.others : undefined,
      isLimited: limit === undefined && oom.deviceFree >= liveSize(oom.asked) + LARGEST_ROUNDING,
      setting: short > 0 ? undefined : settingOf(analysis),
    },
  };
}

function settingOf({ advice }: ReturnType<typeof analyzeTrace>): string | undefined {
  const found = advice.find((each) => (each.kind === 'setting' || each.kind === 'engine') && each.effect.fit?.isSure);
  return found && adviceLine(found);
}

/** Memory held from the driver after the event. */
function reservedAt({ events, startSegments }: Trace, event: number): number {
  let reserved = startSegments.reduce((sum, segment) => sum + segment.size, 0);
  for (let at = 0; at <= event; at++) {
    const size = events.size[at]!;
    const kind = events.kind[at];
    if (kind === EventKind.Reserved) reserved = size;
    else if (kind === EventKind.SegmentAlloc || kind === EventKind.SegmentMap) reserved += size;
    else if (kind === EventKind.SegmentFree || kind === EventKind.SegmentUnmap) reserved -= size;
  }
  return reserved;
}

const PHASES: ReadonlyMap<string, string> = new Map([
  [PhaseMark.step, 'forward'],
  [PhaseMark.forward, 'forward'],
  [PhaseMark.backward, 'backward'],
  [PhaseMark.optimizer, 'optimizer'],
]);

function phaseAt({ events, symbols }: Trace, event: number): string | undefined {
  for (let at = event; at >= 0; at--) {
    if (events.kind[at] !== EventKind.Mark) continue;
    const phase = PHASES.get(symbols.strings[events.detail?.[at] ?? 0] ?? '');
    if (phase !== undefined) return phase;
  }
  return undefined;
}
