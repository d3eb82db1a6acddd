// One out-of-memory error, from the recording that ends with it: what was asked for, who held the memory, what would have made it fit.

import { PhaseMark } from '../abi/events.ts';
import { MIB } from '../base/bytes.ts';
import { allowedByFraction } from '../replay/limits.ts';
import { lastOomOf } from '../replay/moments.ts';
import { type OtherParts, otherParts } from '../trace/other-memory.ts';
import { reservedAfter } from '../trace/reserved.ts';
import { liveSize } from '../trace/summary.ts';
import { NO_STACK } from '../trace/symbols.ts';
import { EventKind, type HostMemory, type Trace } from '../trace/trace.ts';
import { analyzeTrace } from './analysis.ts';
import { type Category, categoriesAt } from './categories.ts';
import { type CallSite, labelOf, topSites } from './sites.ts';
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

/** Undefined if the recording has no failure. Replays the recording on other allocators, where that can help. */
export function explainFailure(trace: Trace): FailureFacts | undefined {
  const facts = describeFailure(trace);
  return facts && withSetting(facts, trace);
}

/** All but `fit.setting`: nothing is replayed, so this takes as long as reading the recording. */
export function describeFailure(trace: Trace): FailureFacts | undefined {
  const { events, limits } = trace;
  const event = lastOomOf(trace);
  if (event < 0) return undefined;
  const asked = events.size[event]!;
  const stack = events.stack[event]!;
  const deviceFree = events.address[event]!;
  const { deviceBytes } = limits;
  const { bytes: categories, live } = categoriesAt(trace, event);
  const reserved = trace.segmentsUnknown ? undefined : reservedAt(trace, event);
  const limit = allowedByFraction(limits);
  const other = trace.otherMemory ? otherParts(trace.otherMemory) : undefined;
  const onGpu = (reserved ?? live) + deviceFree;
  const isCapped = limit !== undefined && limit < onGpu;
  const most = isCapped ? limit : onGpu;
  const needed = live + liveSize(asked);
  const short = Math.max(0, needed - most);
  const room = (deviceBytes ?? 0) - (other?.total ?? 0);
  return {
    gpu: trace.device,
    timeUs: events.timeUs[event]!,
    asked,
    site: stack === NO_STACK ? undefined : labelOf(trace, stack, false),
    phase: phaseAt(trace, event),
    live,
    reserved,
    deviceFree,
    deviceBytes,
    limit,
    categories,
    sites: topSites(trace, event, MOST_SITES),
    other,
    hostMemory: trace.hostMemory,
    fit: {
      short,
      scattered: short > 0 ? 0 : Math.max(0, most - live),
      isOversized: liveSize(asked) > (deviceBytes ?? Number.POSITIVE_INFINITY),
      limit: short > 0 && limit !== undefined && room >= needed ? needed : undefined,
      others: short > 0 && !isCapped && other?.own !== undefined && other.others >= short ? other.others : undefined,
      isLimited: limit === undefined && deviceFree >= liveSize(asked) + LARGEST_ROUNDING,
      setting: undefined,
    },
  };
}

/** Looks for a setting under which the run fits. If less memory is needed, there is none. */
export function withSetting(facts: FailureFacts, trace: Trace): FailureFacts {
  const { fit } = facts;
  if (fit.short > 0 || fit.isOversized || fit.isLimited) return facts;
  const { advice } = analyzeTrace(trace, { findSmallest: false, withHistory: false });
  const found = advice.find((each) => (each.kind === 'setting' || each.kind === 'engine') && each.effect.fit?.isSure);
  return { ...facts, fit: { ...fit, setting: found && adviceLine(found) } };
}

/** Memory held from the driver after the event. */
function reservedAt({ events, startSegments }: Trace, event: number): number {
  let reserved = startSegments.reduce((sum, segment) => sum + segment.size, 0);
  for (let at = 0; at <= event; at++) reserved = reservedAfter(reserved, events.kind[at]!, events.size[at]!);
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
