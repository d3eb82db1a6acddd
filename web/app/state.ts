// The state of the page, as signals. Components read it; opening.ts and selecting.ts write it.
import { computed, type ReadonlySignal, signal } from '@preact/signals';
import type { AnalysisView } from '../../src/view/analysis-view.ts';
import type { ColourMode, LegendEntry } from '../../src/view/block-classes.ts';
import type { AxisKind } from '../../src/view/clock.ts';
import type { FlameRef } from '../../src/view/flame.ts';
import type { PlanView } from '../../src/view/plan-view.ts';
import {
  type BlockInfo,
  type Calls,
  type GpuInfo,
  type LiveState,
  type Moment,
  RECORDED,
  type RunInfo,
  type Selection,
  type SourceInfo,
} from '../../src/view/protocol.ts';
import type { Viewport } from '../../src/view/viewport.ts';
import { Cancelled, type Connection, Problem } from '../data/connection.ts';

/** An open recording. */
export interface OpenSource {
  readonly name: string;
  readonly connection: Connection;
  /** Analyses that a page as one file brings with it. */
  readonly analyses?: ReadonlyMap<number, AnalysisView> | undefined;
  /** A file that only this browser has: it is gone when the page is loaded again. */
  readonly isLocal?: boolean | undefined;
  /** False: only its summary is here, as in a page that was saved without it. */
  readonly isKept?: boolean | undefined;
  info?: SourceInfo;
}

/** One run of one GPU of one recording: what a map shows. */
export interface Lane {
  readonly source: OpenSource;
  readonly gpu: GpuInfo;
  readonly run: RunInfo;
}

export const sources = signal<readonly OpenSource[]>([]);
export const main = signal<Lane | undefined>(undefined);
export const other = signal<Lane | undefined>(undefined);
/** Until it is known whether there is a server with recordings. */
export const isStarting = signal(true);
export const loading = signal<{ doing: string; fraction: number } | undefined>(undefined);
export const problem = signal<string | undefined>(undefined);

export const analysis = signal<AnalysisView | undefined>(undefined);
export const analysing = signal<{ doing: string; fraction: number } | undefined>(undefined);
export const plan = signal<PlanView | undefined>(undefined);
export const capacity = signal<number | undefined>(undefined);

export const axis = signal<AxisKind>('time');
export const view = signal<Viewport>({ from: 0, to: 1 });
export const vertical = signal<Viewport>({ from: 0, to: 1 });
/** The visible part of the timeline's scale in bytes, as shares of it. */
export const heightView = signal<Viewport>({ from: 0, to: 1 });
export const colour = signal<ColourMode>('size');
export const legend = signal<readonly LegendEntry[]>([]);

export const cursor = signal<Moment | undefined>(undefined);
export const mainState = signal<LiveState | undefined>(undefined);
export const otherState = signal<LiveState | undefined>(undefined);
/** A moment to compare the cursor with. */
export const mark = signal<LiveState | undefined>(undefined);
/** First event of a selected range that ends at the cursor. */
export const since = signal<Moment | undefined>(undefined);
export const selection = signal<Selection>({});
export const block = signal<BlockInfo | undefined>(undefined);
/** The same block in the other lane, if that shows the same recording. */
export const otherBlock = signal<BlockInfo | undefined>(undefined);
/** The rectangle of the flame graph that is zoomed in on. */
export const flameRoot = signal<FlameRef | undefined>(undefined);
export const searchResult = signal<Calls['search']['answer'] | undefined>(undefined);
export const isHelpOpen = signal(false);

export const lanes: ReadonlySignal<readonly Lane[]> = computed(() => [main.value, other.value].filter((lane) => lane !== undefined));
export const wholeX: ReadonlySignal<number> = computed(() => Math.max(1, ...lanes.value.map((lane) => spanOf(lane))));
export const wholeY: ReadonlySignal<number> = computed(() => Math.max(1, ...lanes.value.map((lane) => lane.run.height)));
export const cursorX: ReadonlySignal<number | undefined> = computed(() => (cursor.value ? positionOf(cursor.value) : undefined));

export function spanOf(lane: Lane): number {
  return axis.value === 'event' ? lane.gpu.events : lane.gpu.durationUs;
}

export function positionOf(moment: Moment): number {
  return axis.value === 'event' ? Math.max(0, moment.event) : moment.timeUs;
}

export function runLabel(lane: Lane): string {
  return lane.run.run === RECORDED ? 'as recorded' : lane.run.run;
}

export function fitWhole(): void {
  view.value = { from: 0, to: wholeX.value };
  vertical.value = { from: 0, to: wholeY.value };
  heightView.value = { from: 0, to: 1 };
}

/** Runs `work` and shows its error, if it fails. */
export async function guarded(work: () => Promise<void>): Promise<void> {
  try {
    await work();
  } catch (error) {
    if (!(error instanceof Cancelled)) problem.value = wordsOf(error);
  }
}

export function wordsOf(error: unknown): string {
  if (error instanceof Problem) return error.message;
  return `this is a bug in the page: ${error instanceof Error ? error.message : String(error)}`;
}
