// All that the page shows, as signals, and what can be done to it. Components read, actions write.
import { batch, computed, effect, type ReadonlySignal, signal } from '@preact/signals';
import type { ColourMode, LegendEntry } from '../src/view/block-classes.ts';
import type { AxisKind } from '../src/view/clock.ts';
import { type HashState, readHash, writeHash } from '../src/view/hash-state.ts';
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
} from '../src/view/protocol.ts';
import { focus, reveal, type Viewport, within } from '../src/view/viewport.ts';
import type { AnalysisView } from '../src/view/words.ts';
import type { Backend } from './backend.ts';
import { Problem } from './backend.ts';
import { latest } from './latest.ts';

/** A recording that can be looked at. */
export interface OpenSource {
  readonly name: string;
  readonly backend: Backend;
  /** Worked out ahead, in a page that is one file. */
  readonly analyses?: ReadonlyMap<number, AnalysisView> | undefined;
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
export const loading = signal<{ doing: string; fraction: number } | undefined>(undefined);
export const problem = signal<string | undefined>(undefined);

export const analysis = signal<AnalysisView | undefined>(undefined);
export const analysing = signal<{ doing: string; fraction: number } | undefined>(undefined);
export const capacity = signal<number | undefined>(undefined);

export const axis = signal<AxisKind>('time');
export const view = signal<Viewport>({ from: 0, to: 1 });
export const vertical = signal<Viewport>({ from: 0, to: 1 });
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
/** The same in the other lane, where it shows the same recording. */
export const otherBlock = signal<BlockInfo | undefined>(undefined);
export const flameRoot = signal<number | undefined>(undefined);
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

/** Opens a recording and shows it; the page's address may say how. */
export async function openSource(source: OpenSource, wanted: HashState = {}): Promise<void> {
  batch(() => {
    if (!sources.value.includes(source)) sources.value = [...sources.value, source];
    problem.value = undefined;
    loading.value = { doing: `opening ${source.name}`, fraction: 0 };
  });
  if (!source.info && !source.analyses) source.backend.prepare();
  try {
    source.info ??= await source.backend.ask('describe', 0, {}, ({ doing, fraction }) => {
      loading.value = { doing, fraction: fraction * 0.7 };
    });
    const gpu = source.info.gpus.find((candidate) => candidate.device === wanted.gpu) ?? source.info.gpus[0];
    if (!gpu) throw new Problem(`${source.name} holds no GPU's events`);
    capacity.value = wanted.capacity;
    void analyze(source, gpu);
    const run = await source.backend.ask('run', gpu.device, { run: RECORDED }, ({ fraction }) => {
      loading.value = { doing: 'replaying as recorded', fraction: 0.7 + fraction * 0.3 };
    });
    show({ source, gpu, run }, wanted);
    if (wanted.run && wanted.run !== RECORDED) await chooseRun(wanted.run);
    if (wanted.with) await compareWith(wanted.with);
  } catch (error) {
    batch(() => {
      problem.value = wordsOf(error);
      if (!main.value) sources.value = sources.value.filter((known) => known !== source);
    });
  } finally {
    loading.value = undefined;
  }
}

function show(lane: Lane, wanted: HashState): void {
  batch(() => {
    main.value = lane;
    other.value = undefined;
    selection.value = wanted.node !== undefined ? { node: wanted.node } : wanted.search ? { search: wanted.search } : {};
    for (const target of [block, otherBlock, mark, since, flameRoot, searchResult, mainState, otherState]) target.value = undefined;
    axis.value = lane.gpu.durationUs > 0 ? (wanted.axis ?? 'time') : 'event';
    if (wanted.colour) colour.value = wanted.colour;
    else if (lane.gpu.hasStacks) colour.value = 'stack';
    fitWhole();
    if (wanted.from !== undefined && wanted.to !== undefined) view.value = within({ from: wanted.from, to: wanted.to }, wholeX.value);
  });
  if (wanted.search) runSearch(wanted.search);
  if (wanted.block !== undefined) void selectBlock(wanted.block);
  const start = wanted.cursor ?? lane.gpu.ooms.at(-1)?.event ?? lane.run.peak.event;
  moveTo('event', start);
  if (wanted.since !== undefined) since.value = { event: wanted.since, timeUs: 0 };
}

let analysisTurn = 0;

async function analyze(source: OpenSource, gpu: GpuInfo): Promise<void> {
  const turn = ++analysisTurn;
  const known = capacity.value === undefined ? source.analyses?.get(gpu.device) : undefined;
  analysis.value = known ?? (analysis.value?.json['file'] === source.name ? analysis.value : undefined);
  if (known) return;
  analysing.value = { doing: 'reading', fraction: 0 };
  try {
    const done = await source.backend.ask('analyze', gpu.device, { capacity: capacity.value }, ({ doing, fraction, partial }) => {
      if (turn !== analysisTurn) return;
      batch(() => {
        analysing.value = { doing, fraction };
        if (partial) analysis.value = partial;
      });
    });
    if (turn === analysisTurn) analysis.value = done;
  } catch (error) {
    if (turn === analysisTurn && !problem.value) problem.value = wordsOf(error);
  } finally {
    if (turn === analysisTurn) analysing.value = undefined;
  }
}

/** Asks about another GPU size; undefined is the one the recording speaks of. */
export function tryCapacity(bytes: number | undefined): void {
  const lane = main.value;
  if (!lane || bytes === capacity.value) return;
  capacity.value = bytes;
  void analyze(lane.source, lane.gpu);
}

async function loadLane(source: OpenSource, gpu: GpuInfo, run: string): Promise<Lane> {
  loading.value = { doing: `replaying ${run}`, fraction: 0 };
  try {
    const info = await source.backend.ask('run', gpu.device, { run }, ({ doing, fraction }) => {
      loading.value = { doing, fraction };
    });
    return { source, gpu, run: info };
  } finally {
    loading.value = undefined;
  }
}

/** Shows the recording through another allocator. */
export async function chooseRun(run: string): Promise<void> {
  const lane = main.value;
  if (!lane || lane.run.run === run) return;
  await guarded(async () => {
    const next = await loadLane(lane.source, lane.gpu, run);
    batch(() => {
      main.value = next;
      vertical.value = { from: 0, to: wholeY.value };
    });
    refreshMoment();
  });
}

/** `allocator`, or `file:NAME`, beside what is shown; nothing with an empty text. */
export async function compareWith(what: string): Promise<void> {
  const lane = main.value;
  if (!lane) return;
  if (what === '') {
    batch(() => {
      other.value = undefined;
      otherState.value = undefined;
      otherBlock.value = undefined;
      vertical.value = { from: 0, to: wholeY.value };
      view.value = within(view.value, wholeX.value);
    });
    return;
  }
  await guarded(async () => {
    const file = what.startsWith('file:') ? sources.value.find((source) => source.name === what.slice(5)) : undefined;
    let next: Lane;
    if (file) {
      file.info ??= await file.backend.ask('describe', 0, {});
      const gpu = file.info.gpus[0];
      if (!gpu) throw new Problem(`${file.name} holds no GPU's events`);
      next = await loadLane(file, gpu, RECORDED);
    } else next = await loadLane(lane.source, lane.gpu, what);
    const wasFitted = view.value.to - view.value.from >= wholeX.value * 0.999;
    batch(() => {
      other.value = next;
      vertical.value = { from: 0, to: wholeY.value };
      if (wasFitted) view.value = { from: 0, to: wholeX.value };
    });
    refreshMoment();
    if (block.value) void selectBlock(block.value.allocation);
  });
}

/** What `compareWith` was told. */
export function comparison(): string {
  const lane = other.value;
  if (!lane) return '';
  return lane.source === main.value?.source ? lane.run.run : `file:${lane.source.name}`;
}

export async function showSource(name: string): Promise<void> {
  const source = sources.value.find((candidate) => candidate.name === name);
  if (source) await openSource(source);
}

export function fitWhole(): void {
  view.value = { from: 0, to: wholeX.value };
  vertical.value = { from: 0, to: wholeY.value };
}

export function chooseAxis(next: AxisKind): void {
  const lane = main.value;
  if (!lane || next === axis.value || (next === 'time' && lane.gpu.durationUs === 0)) return;
  const share = { from: view.value.from / wholeX.value, to: view.value.to / wholeX.value };
  batch(() => {
    axis.value = next;
    view.value = { from: share.from * wholeX.value, to: share.to * wholeX.value };
    if (cursor.value) view.value = reveal(view.value, wholeX.value, positionOf(cursor.value));
  });
}

const askMoment = latest(async (at: { axis: AxisKind; position: number }) => {
  const lane = main.value;
  const beside = other.value;
  if (!lane) return;
  await guarded(async () => {
    const ask = { ...at, since: since.value?.event, under: flameRoot.value };
    // Two runs of one recording are compared at the same event, two recordings at the same place of the axis.
    const [state, second] = await Promise.all([
      lane.source.backend.ask('moment', lane.gpu.device, { ...ask, run: lane.run.run }),
      beside
        ? beside.source.backend.ask('moment', beside.gpu.device, { ...ask, since: undefined, under: undefined, run: beside.run.run })
        : undefined,
    ]);
    if (main.value !== lane) return;
    batch(() => {
      mainState.value = state;
      otherState.value = other.value === beside ? second : undefined;
      cursor.value = { event: state.event, timeUs: state.timeUs };
    });
  });
});

/** Puts the cursor somewhere on an axis. */
export function moveTo(on: AxisKind, position: number): void {
  askMoment({ axis: on, position });
}

export function moveToMoment(moment: Moment): void {
  batch(() => {
    cursor.value = moment;
    view.value = reveal(view.value, wholeX.value, positionOf(moment));
  });
  moveTo('event', moment.event);
}

export function stepCursor(by: number): void {
  const lane = main.value;
  if (!lane || !cursor.value) return;
  moveTo('event', Math.min(lane.gpu.events - 1, Math.max(0, cursor.value.event + by)));
}

export function refreshMoment(): void {
  if (cursor.value) moveTo('event', cursor.value.event);
}

/** Selects the range between two positions: panels then show what was allocated in it and is left at its end. */
export function selectRange(from: number, to: number): void {
  const lane = main.value;
  if (!lane) return;
  void guarded(async () => {
    const first = await lane.source.backend.ask('moment', lane.gpu.device, {
      run: lane.run.run,
      axis: axis.value,
      position: Math.min(from, to),
    });
    since.value = { event: first.event + 1, timeUs: first.timeUs };
    moveTo(axis.value, Math.max(from, to));
  });
}

/** Selects an allocation; one that does not exist clears the selection. */
export async function selectBlock(allocation: number, isFocused = false): Promise<void> {
  const lane = main.value;
  const beside = other.value?.source === lane?.source ? other.value : undefined;
  if (!lane) return;
  await guarded(async () => {
    const [found, second] = await Promise.all(
      [lane, beside].map((each) => each?.source.backend.ask('block', each.gpu.device, { run: each.run.run, allocation })),
    );
    batch(() => {
      block.value = found;
      otherBlock.value = second;
      if (found && isFocused) focusBlock();
    });
    if (found && isFocused) moveTo('event', Math.max(0, found.start.event));
  });
}

export const askBlockAt = latest(
  async (ask: { lane: Lane; position: number; offset: number; onFound: (found: BlockInfo | undefined) => void }) => {
    const { lane, position, offset, onFound } = ask;
    await guarded(async () => {
      onFound(await lane.source.backend.ask('blockAt', lane.gpu.device, { run: lane.run.run, axis: axis.value, position, offset }));
    });
  },
);

/** Shows the selected block, or the selected range, from beginning to end. */
export function focusBlock(): void {
  const lane = main.value;
  if (!lane) return;
  const target = block.value;
  if (target) {
    const end = target.end ? positionOf(target.end) : spanOf(lane);
    view.value = focus(positionOf(target.start), end, wholeX.value);
  } else if (since.value && cursor.value) {
    view.value = focus(positionOf(since.value), positionOf(cursor.value), wholeX.value);
  }
}

export function clearSelection(): void {
  batch(() => {
    for (const target of [block, otherBlock, since, flameRoot, searchResult, mark]) target.value = undefined;
    selection.value = {};
  });
  refreshMoment();
}

export const runSearch = latest(async (text: string) => {
  const lane = main.value;
  if (!lane) return;
  if (text.trim() === '') {
    batch(() => {
      searchResult.value = undefined;
      selection.value = {};
    });
    return;
  }
  await guarded(async () => {
    const result = await lane.source.backend.ask('search', lane.gpu.device, { run: lane.run.run, text });
    batch(() => {
      searchResult.value = result;
      selection.value = { search: text };
    });
  });
});

async function guarded(work: () => Promise<void>): Promise<void> {
  try {
    await work();
  } catch (error) {
    problem.value = wordsOf(error);
  }
}

export function wordsOf(error: unknown): string {
  if (error instanceof Problem) return error.message;
  return `something went wrong in the page: ${error instanceof Error ? error.message : String(error)}`;
}

/** Keeps the legend in step with the colours. */
effect(() => {
  const lane = main.value;
  const mode = colour.value;
  if (!lane) return;
  void guarded(async () => {
    legend.value = await lane.source.backend.ask('legend', lane.gpu.device, { colour: mode });
  });
});

/** Keeps the page's address in step with what it shows, at most a few times a second. */
let hashTimer: ReturnType<typeof setTimeout> | undefined;
effect(() => {
  const lane = main.value;
  if (!lane) return;
  const isFitted = view.value.to - view.value.from >= wholeX.value * 0.999;
  const state: HashState = {
    file: sources.value.length > 1 ? lane.source.name : undefined,
    gpu: (lane.source.info?.gpus.length ?? 1) > 1 ? lane.gpu.device : undefined,
    run: lane.run.run === RECORDED ? undefined : lane.run.run,
    with: comparison(),
    axis: axis.value,
    colour: colour.value,
    from: isFitted ? undefined : Math.round(view.value.from * 100) / 100,
    to: isFitted ? undefined : Math.round(view.value.to * 100) / 100,
    cursor: cursor.value?.event,
    capacity: capacity.value,
    block: block.value?.allocation,
    node: selection.value.node,
    since: since.value?.event,
    search: selection.value.search,
  };
  clearTimeout(hashTimer);
  hashTimer = setTimeout(() => {
    const hash = writeHash(state);
    if (hash !== location.hash) history.replaceState(null, '', hash === '' ? location.pathname + location.search : hash);
  }, 150);
});

export function wantedByAddress(): HashState {
  return readHash(location.hash);
}
