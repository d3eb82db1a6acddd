// Opens recordings, and chooses what is shown: a GPU, an allocator, another one beside it, a GPU size.
import { batch } from '@preact/signals';
import type { HashState } from '../../src/view/hash-state.ts';
import { type GpuInfo, type ProgressNote, RECORDED } from '../../src/view/protocol.ts';
import { within } from '../../src/view/viewport.ts';
import { Cancelled, Problem } from '../data/connection.ts';
import { newest } from '../data/latest.ts';
import { chosenStack } from '../tracks/stack-state.ts';
import { moveTo, refreshMoment, runSearch, selectBlock } from './selecting.ts';
import {
  analysing,
  analysis,
  axis,
  block,
  capacity,
  colour,
  fitWhole,
  flameRoot,
  guarded,
  type Lane,
  loading,
  main,
  mainState,
  mark,
  type OpenSource,
  other,
  otherBlock,
  otherState,
  plan,
  problem,
  searchResult,
  selection,
  since,
  sources,
  vertical,
  view,
  wholeX,
  wholeY,
  wordsOf,
} from './state.ts';

/** A newer run in a lane, or a newer analysis, stops the work on the one before. */
const newRun = newest();
const newOtherRun = newest();
const newAnalysis = newest();

/** Opens a recording and shows it as `wanted` says, which comes from the page's address. */
export async function openSource(source: OpenSource, wanted: HashState = {}): Promise<void> {
  const signal = newRun();
  newOtherRun();
  const isNew = !sources.value.includes(source);
  batch(() => {
    if (isNew) sources.value = [...sources.value, source];
    problem.value = undefined;
    loading.value = { doing: `opening ${source.name}`, fraction: 0 };
  });
  if (!source.info && !source.analyses) source.connection.prepare();
  try {
    source.info ??= await source.connection.ask('describe', 0, {}, ({ doing, fraction }) => {
      loading.value = { doing, fraction: fraction * 0.7 };
    });
    const gpu = source.info.gpus.find((candidate) => candidate.device === wanted.gpu) ?? source.info.gpus[0];
    if (!gpu) throw new Problem(`${source.name} has no events of any GPU`);
    // Another recording was opened meanwhile.
    if (signal.aborted) return;
    capacity.value = wanted.capacity ?? source.info.values?.gpuBytes;
    plan.value = undefined;
    void analyze(source, gpu);
    const onProgress = ({ fraction }: ProgressNote) => {
      loading.value = { doing: 'replaying as recorded', fraction: 0.7 + fraction * 0.3 };
    };
    const run = await source.connection.ask('run', gpu.device, { run: RECORDED }, onProgress, signal);
    show({ source, gpu, run }, wanted);
    if (wanted.run && wanted.run !== RECORDED) await chooseRun(wanted.run);
    if (wanted.with) await compareWith(wanted.with);
  } catch (error) {
    if (error instanceof Cancelled) return;
    batch(() => {
      problem.value = wordsOf(error);
      if (isNew && !source.info) sources.value = sources.value.filter((known) => known !== source);
    });
  } finally {
    if (!signal.aborted) loading.value = undefined;
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
    else colour.value = 'category';
    chosenStack.value = wanted.stack ?? chosenStack.value;
    fitWhole();
    if (wanted.from !== undefined && wanted.to !== undefined) view.value = within({ from: wanted.from, to: wanted.to }, wholeX.value);
  });
  if (wanted.search) runSearch(wanted.search);
  if (wanted.block !== undefined) void selectBlock(wanted.block);
  const start = wanted.cursor ?? lane.gpu.ooms.at(-1)?.event ?? lane.run.peak.event;
  if (wanted.since !== undefined) since.value = { event: wanted.since, timeUs: 0 };
  moveTo('event', start);
}

/** Beyond this many events a plan takes too long for a page; `weir plan` makes it. */
const MOST_PLANNED_EVENTS = 1_000_000;

async function analyze(source: OpenSource, gpu: GpuInfo): Promise<void> {
  const signal = newAnalysis();
  const known = capacity.value === undefined ? source.analyses?.get(gpu.device) : undefined;
  analysis.value = known ?? (analysis.value?.file === source.name ? analysis.value : undefined);
  if (known) {
    void findPlan(source, gpu, signal);
    return;
  }
  analysing.value = { doing: 'reading', fraction: 0 };
  try {
    const onProgress = ({ doing, fraction, partial }: ProgressNote) => {
      batch(() => {
        analysing.value = { doing, fraction };
        if (partial) analysis.value = partial;
      });
    };
    analysis.value = await source.connection.ask('analyze', gpu.device, { capacity: capacity.value }, onProgress, signal);
    void findPlan(source, gpu, signal);
  } catch (error) {
    if (!signal.aborted && !problem.value) problem.value = wordsOf(error);
  } finally {
    if (!signal.aborted) analysing.value = undefined;
  }
}

/** The plan comes last: users look at the rest first, and not every run has a plan. */
async function findPlan(source: OpenSource, gpu: GpuInfo, signal: AbortSignal): Promise<void> {
  if (gpu.events > MOST_PLANNED_EVENTS) return;
  await guarded(async () => {
    plan.value = await source.connection.ask('plan', gpu.device, {}, undefined, signal);
  });
}

/** Tries another GPU size; undefined: the recorded one. */
export function tryCapacity(bytes: number | undefined): void {
  const lane = main.value;
  if (!lane || bytes === capacity.value) return;
  capacity.value = bytes;
  void analyze(lane.source, lane.gpu);
}

async function loadLane(source: OpenSource, gpu: GpuInfo, run: string, signal: AbortSignal): Promise<Lane> {
  if (signal.aborted) throw new Cancelled();
  loading.value = { doing: `replaying ${run}`, fraction: 0 };
  const onProgress = ({ doing, fraction }: ProgressNote) => {
    loading.value = { doing, fraction };
  };
  try {
    return { source, gpu, run: await source.connection.ask('run', gpu.device, { run }, onProgress, signal) };
  } finally {
    if (!signal.aborted) loading.value = undefined;
  }
}

/** Shows the recording through another allocator. */
export async function chooseRun(run: string): Promise<void> {
  const lane = main.value;
  const signal = newRun();
  if (!lane || lane.run.run === run) {
    loading.value = undefined;
    return;
  }
  await guarded(async () => {
    const next = await loadLane(lane.source, lane.gpu, run, signal);
    batch(() => {
      main.value = next;
      vertical.value = { from: 0, to: wholeY.value };
    });
    refreshMoment();
  });
}

/** Shows an allocator or `file:NAME` beside the main lane; an empty text shows nothing there. */
export async function compareWith(what: string): Promise<void> {
  const lane = main.value;
  const signal = newOtherRun();
  if (!lane) return;
  if (what === '') {
    batch(() => {
      loading.value = undefined;
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
      file.info ??= await file.connection.ask('describe', 0, {});
      const gpu = file.info.gpus[0];
      if (!gpu) throw new Problem(`${file.name} has no events of any GPU`);
      next = await loadLane(file, gpu, RECORDED, signal);
    } else next = await loadLane(lane.source, lane.gpu, what, signal);
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

/** The last argument of `compareWith`. */
export function comparison(): string {
  const lane = other.value;
  if (!lane) return '';
  return lane.source === main.value?.source ? lane.run.run : `file:${lane.source.name}`;
}

/** Shows what an address says, of the recording that is open or of another one that the address names. */
export async function showState(wanted: HashState): Promise<void> {
  const lane = main.value;
  const named = wanted.file === undefined ? undefined : sources.value.find(({ name }) => name === wanted.file);
  if (wanted.file !== undefined && !named) {
    problem.value = `the address names ${wanted.file}, which is not open here`;
    return;
  }
  problem.value = undefined;
  const source = named ?? lane?.source ?? sources.value[0];
  if (!source) return;
  if (lane?.source !== source || (wanted.gpu !== undefined && wanted.gpu !== lane.gpu.device)) {
    await openSource(source, wanted);
    return;
  }
  const signal = newRun();
  newOtherRun();
  await guarded(async () => {
    show(lane.run.run === RECORDED ? lane : await loadLane(source, lane.gpu, RECORDED, signal), wanted);
    tryCapacity(wanted.capacity);
    if (wanted.run && wanted.run !== RECORDED) await chooseRun(wanted.run);
    if (wanted.with) await compareWith(wanted.with);
  });
}

export async function showSource(name: string): Promise<void> {
  const source = sources.value.find((candidate) => candidate.name === name);
  if (source) await openSource(source);
}
