// The questions of the page and their answers. A worker of the page and a server answer alike.
import type { Category } from '../report/categories.ts';
import type { AnalysisView } from './analysis-view.ts';
import type { ColourMode, LegendEntry } from './block-classes.ts';
import type { AxisKind } from './clock.ts';
import type { Misfits } from './fit-misfits.ts';
import type { StripOrder } from './fit-strip.ts';
import type { FitLane, HoleInfo } from './fit-view.ts';
import type { FlameGraph, FlameRef } from './flame.ts';
import type { RankSummary } from './job-rank.ts';
import type { MapCells, MapWindow } from './map-cells.ts';
import type { PackedRecording } from './packing.ts';
import type { PlanView } from './plan-view.ts';
import type { RangeFigures } from './range-figures.ts';
import type { Ruler } from './ruler.ts';
import type { SearchResult } from './search.ts';
import type { StackColumns, StackMode, StackWindow } from './stack-columns.ts';
import type { Bands, StackMoment } from './stack-view.ts';
import type { TimelineColumns } from './timeline.ts';
import type { ValueInfo, ValueTable } from './value-table.ts';

/** The run as it was recorded; any other name is an allocator as the command line writes it. */
export const RECORDED = 'recorded';

export interface SourceInfo {
  readonly name: string;
  readonly format: string;
  readonly gpus: readonly GpuInfo[];
  /** Of a run that can be given other values. */
  readonly values?: ValueInfo | undefined;
}

export interface GpuInfo {
  readonly device: number;
  readonly events: number;
  readonly allocations: number;
  readonly durationUs: number;
  readonly streams: number;
  readonly hasStacks: boolean;
  readonly ooms: readonly Moment[];
  readonly marks: readonly { readonly timeUs: number; readonly event: number; readonly name: string }[];
}

/** A point of the run on both axes. */
export interface Moment {
  readonly event: number;
  readonly timeUs: number;
}

export interface RunInfo {
  readonly run: string;
  readonly peakReserved: number;
  readonly peak: Moment;
  /** Length of the map's axis in bytes. */
  readonly height: number;
  /** Allocators to choose from; the recorded one comes first. */
  readonly choices: readonly string[];
}

/** What the map shows; all else fades. */
export interface Selection {
  readonly node?: number | undefined;
  /** A rectangle of an inverted flame graph. */
  readonly tail?: FlameRef | undefined;
  readonly site?: string | undefined;
  readonly category?: Category | undefined;
  readonly search?: string | undefined;
}

export interface BlockInfo {
  readonly allocation: number;
  readonly address: string;
  readonly size: number;
  readonly requested: number;
  readonly stream: number;
  /** Offset and size on the map's axis of each part; a stitched block has several. */
  readonly parts: readonly number[];
  readonly start: Moment;
  /** Undefined if it was never freed. */
  readonly end: Moment | undefined;
  readonly site: string;
  /** Texts that the program gave to it. */
  readonly notes: readonly string[];
  readonly node: number;
  /** Innermost first. */
  readonly frames: readonly string[];
}

export interface LiveRow {
  readonly allocation: number;
  readonly address: string;
  readonly requested: number;
  readonly size: number;
  readonly stream: number;
  readonly event: number;
  readonly ageUs: number;
  /** Until it was freed; undefined: never. */
  readonly livedUs: number | undefined;
  readonly site: string;
  readonly notes: readonly string[];
  readonly category: Category;
}

export interface LiveState extends Moment {
  /** The event in words. */
  readonly what: string;
  readonly allocated: number;
  readonly reserved: number;
  readonly live: number;
  readonly liveCount: number;
  /** The largest of them. */
  readonly rows: readonly LiveRow[];
  readonly sites: readonly { readonly site: string; readonly bytes: number; readonly count: number }[];
  /** If a range was asked for. */
  readonly range: RangeFigures | undefined;
}

/** Memory of a run after an event, as the request of another event sees it. */
export interface StripAsk {
  readonly run: string;
  readonly event: number;
  /** Event of the request that is drawn; undefined: none. */
  readonly request?: number | undefined;
  /** The most that a replay may reserve; undefined: no limit. The recorded run has its own. */
  readonly limit?: number | undefined;
  /** The user gave the limit: it is the size of the GPU, and not what a memory fraction allows. */
  readonly isGiven?: boolean | undefined;
}

/** Every question with its answer; all but `describe` and `ranks` are about one GPU of the source. */
export interface Calls {
  describe: { ask: Record<never, never>; answer: SourceInfo };
  /** Of all GPUs of the source. */
  ranks: { ask: Record<never, never>; answer: readonly RankSummary[] };
  run: { ask: { run: string }; answer: RunInfo };
  timeline: { ask: { run: string; axis: AxisKind; from: number; to: number; columns: number }; answer: TimelineColumns };
  map: { ask: { run: string; window: MapWindow; colour: ColourMode; selection?: Selection | undefined }; answer: MapCells };
  legend: { ask: { colour: ColourMode }; answer: readonly LegendEntry[] };
  /** Live memory by meaning: steps and phases, the bands of a mode, their columns, and their bytes after an event. */
  ruler: { ask: Record<never, never>; answer: Ruler };
  bands: { ask: { by: StackMode }; answer: Bands };
  stack: { ask: { by: StackMode; window: StackWindow }; answer: StackColumns };
  stackAt: {
    ask: { run: string; by: StackMode; event: number; allocation?: number | undefined };
    answer: StackMoment & { readonly allocated: number; readonly reserved: number; readonly block: BlockInfo | undefined };
  };
  moment: {
    ask: { run: string; axis: AxisKind; position: number; since?: number | undefined };
    answer: LiveState;
  };
  /** Live memory after an event by call stack; with `since`, only what was allocated from that event on. */
  flame: {
    ask: {
      event: number;
      since?: number | undefined;
      under?: FlameRef | undefined;
      isInverted?: boolean | undefined;
      search?: string | undefined;
    };
    answer: FlameGraph;
  };
  blockAt: { ask: { run: string; axis: AxisKind; position: number; offset: number }; answer: BlockInfo | undefined };
  block: { ask: { run: string; allocation: number }; answer: BlockInfo | undefined };
  search: { ask: { run: string; text: string }; answer: SearchResult & { readonly blocks: readonly LiveRow[] } };
  misfits: { ask: Record<never, never>; answer: Misfits };
  strip: { ask: StripAsk & { order: StripOrder }; answer: FitLane };
  hole: { ask: StripAsk & { address: number }; answer: HoleInfo | undefined };
  /** The same of replays, which take seconds. */
  besideStrip: Calls['strip'];
  besideHole: Calls['hole'];
  plan: { ask: Record<never, never>; answer: PlanView | undefined };
  /** `isHistory`: instead of the usual allocators, those of historical interest. The recorded one always comes first. */
  analyze: { ask: { capacity?: number | undefined; isHistory?: boolean | undefined }; answer: AnalysisView };
  /** Of a source with values: the largest that fits, with the other values of the question's point. */
  values: { ask: { gpuBytes: number }; answer: ValueTable };
  /** For a page of one file: without the folders of the machine, and under another name. */
  pack: { ask: { name: string; capacity?: number | undefined }; answer: PackedRecording };
}

export type Method = keyof Calls;

/** Comparing and planning take seconds. A thread of its own answers them, so that zooming never waits. */
export function isSlow(method: string): boolean {
  return method === 'analyze' || method === 'plan' || method === 'values' || method === 'pack' || method.startsWith('beside');
}

/** Of a source with values, `point` says which run is meant. */
export type Question = {
  [Name in Method]: { readonly method: Name; readonly gpu: number; readonly point?: readonly number[] | undefined } & Calls[Name]['ask'];
}[Method];

/** Progress of an answer. */
export interface ProgressNote {
  readonly fraction: number;
  readonly doing: string;
  /** The analysis so far. */
  readonly partial?: AnalysisView | undefined;
}
