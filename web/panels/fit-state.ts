// The state of the panel about memory that did not fit: which request, at which moment, beside which allocator, which hole.
import { computed, effect, type ReadonlySignal, signal } from '@preact/signals';
import { type Beside, besideChoice, besideChoices } from '../../src/view/fit-beside.ts';
import type { Misfit, Misfits } from '../../src/view/fit-misfits.ts';
import type { StripOrder } from '../../src/view/fit-strip.ts';
import type { FitLane, HoleInfo } from '../../src/view/fit-view.ts';
import { type Calls, RECORDED, type StripAsk } from '../../src/view/protocol.ts';
import { analysis, cursor, guarded, type Lane, main } from '../app/state.ts';
import { latest } from '../data/latest.ts';

/** The recorded run, or the one beside it. */
export type Side = 'recorded' | 'beside';

const misfits = signal<Misfits | undefined>(undefined);
/** The last request that the cursor was at. */
const lastMisfit = signal<Misfit | undefined>(undefined);
export const order = signal<StripOrder>('hole');
export const recordedLane = signal<FitLane | undefined>(undefined);
export const besideLane = signal<FitLane | undefined>(undefined);
/** The allocator that the user chose; undefined: the best one. */
export const chosenRun = signal<string | undefined>(undefined);
/** The hole that the user chose; undefined: the largest one. */
export const pickedHole = signal<{ readonly side: Side; readonly address: number } | undefined>(undefined);
export const holeInfo = signal<HoleInfo | undefined>(undefined);

const REST_MS = 90;

/** A lane once it rests. Lists follow it, since changing them with every moment of a scrub would make that slow. */
export const restingLanes: Record<Side, ReadonlySignal<FitLane | undefined>> = {
  recorded: resting(recordedLane),
  beside: resting(besideLane),
};

function resting(lane: ReadonlySignal<FitLane | undefined>): ReadonlySignal<FitLane | undefined> {
  const rested = signal<FitLane | undefined>(undefined);
  let timer: ReturnType<typeof setTimeout> | undefined;
  effect(() => {
    const now = lane.value;
    clearTimeout(timer);
    if (!now || !rested.peek()) rested.value = now;
    else
      timer = setTimeout(() => {
        rested.value = now;
      }, REST_MS);
  });
  return rested;
}

export const failed: ReadonlySignal<readonly Misfit[]> = computed(() => misfits.value?.failed ?? []);
export const peak: ReadonlySignal<Misfit | undefined> = computed(() => misfits.value?.peak);
export const failures: ReadonlySignal<number> = computed(() => misfits.value?.failures ?? 0);
export const isKnown: ReadonlySignal<boolean> = computed(() => misfits.value !== undefined);

const misfitAtCursor = computed(() => {
  const at = cursor.value?.event;
  const found = misfits.value?.failed.find(({ event }) => event === at);
  if (found) return found;
  return at !== undefined && (at === recordedPeak() || at === misfits.value?.peak?.at) ? misfits.value?.peak : undefined;
});

/** The request that is drawn: the one at the cursor, else the last one, else the last that failed. */
export const misfit: ReadonlySignal<Misfit | undefined> = computed(
  () => misfitAtCursor.value ?? lastMisfit.value ?? misfits.value?.failed.at(-1) ?? misfits.value?.peak,
);

function recordedPeak(): number | undefined {
  const lane = main.value;
  return lane?.run.run === RECORDED ? lane.run.peak.event : misfits.value?.peak?.event;
}

/** The event whose memory is shown. At the peak the request is served already, so memory is shown as it was before. */
export const event: ReadonlySignal<number | undefined> = computed(() => {
  const at = cursor.value?.event;
  return at !== undefined && at === recordedPeak() && misfit.value?.kind === 'peak' ? misfit.value.at : at;
});

/** Allocators that can be shown beside the recorded run, and the one that is. */
export const choices: ReadonlySignal<readonly Beside[]> = computed(() => (analysis.value ? besideChoices(analysis.value.analysis) : []));
export const beside: ReadonlySignal<Beside | undefined> = computed(() => {
  const facts = analysis.value;
  if (!facts?.isComplete) return undefined;
  return choices.value.find(({ run }) => run === chosenRun.value) ?? besideChoice(facts.analysis);
});

/** The side and address of the hole whose pins are shown. */
export const hole: ReadonlySignal<{ readonly side: Side; readonly address: number } | undefined> = computed(() => {
  const picked = pickedHole.value;
  const lane = picked && restingLanes[picked.side].value;
  if (picked && lane && isHole(lane, picked.address)) return picked;
  const shown = restingLanes.recorded.value?.strip;
  const [largest] = shown?.holes ?? [];
  return shown && largest !== undefined ? { side: 'recorded', address: shown.runAddress[largest]! } : undefined;
});

function isHole({ strip }: FitLane, address: number): boolean {
  return strip.holes.some((run) => strip.runAddress[run] === address);
}

/** Another recording, or another GPU of it. */
let known: { source: Lane['source']; device: number } | undefined;
effect(() => {
  const lane = main.value;
  if (!lane || (known?.source === lane.source && known.device === lane.gpu.device)) return;
  known = { source: lane.source, device: lane.gpu.device };
  for (const target of [misfits, lastMisfit, recordedLane, besideLane, chosenRun, pickedHole, holeInfo]) target.value = undefined;
  void guarded(async () => {
    const found = await lane.source.connection.ask('misfits', lane.gpu.device, {});
    if (main.value?.source === lane.source && main.value.gpu.device === lane.gpu.device) misfits.value = found;
  });
});

effect(() => {
  const found = misfitAtCursor.value;
  if (found) lastMisfit.value = found;
});

interface Asked<Ask> {
  readonly lane: Lane;
  readonly ask: Ask;
}

const askRecorded = latest(({ lane, ask }: Asked<Calls['strip']['ask']>) =>
  guarded(async () => {
    const found = await lane.source.connection.ask('strip', lane.gpu.device, ask);
    if (isShown(lane)) recordedLane.value = found;
  }),
);

const askBeside = latest(({ lane, ask }: Asked<Calls['strip']['ask']>) =>
  guarded(async () => {
    const found = await lane.source.connection.ask('besideStrip', lane.gpu.device, ask);
    if (isShown(lane) && beside.value?.run === ask.run) besideLane.value = found;
  }),
);

const askHole = latest(({ lane, ask, side }: Asked<Calls['hole']['ask']> & { side: Side }) =>
  guarded(async () => {
    const found = await lane.source.connection.ask(side === 'beside' ? 'besideHole' : 'hole', lane.gpu.device, ask);
    if (isShown(lane)) holeInfo.value = found;
  }),
);

function isShown(lane: Lane): boolean {
  return main.value?.source === lane.source && main.value.gpu.device === lane.gpu.device;
}

function recordedAsk(): StripAsk | undefined {
  if (event.value === undefined || !isKnown.value) return undefined;
  return { run: RECORDED, event: event.value, request: misfit.value?.event };
}

/** Beside it, the request of the peak is shown served, which is one event later. */
function besideAsk(): StripAsk | undefined {
  const chosen = beside.value;
  if (event.value === undefined || !isKnown.value || !chosen) return undefined;
  const { run, limit, isGiven } = chosen;
  const request = misfit.value;
  return { run, limit, isGiven, event: request && event.value === request.at ? request.event : event.value, request: request?.event };
}

effect(() => {
  const ask = recordedAsk();
  if (ask && main.value) askRecorded({ lane: main.value, ask: { ...ask, order: order.value } });
});

effect(() => {
  const ask = besideAsk();
  if (ask && main.value) askBeside({ lane: main.value, ask: { ...ask, order: order.value } });
  else besideLane.value = undefined;
});

// Asked about the moment that is drawn, which may be behind the cursor while it moves.
effect(() => {
  const wanted = hole.value;
  const shown = wanted && restingLanes[wanted.side].value;
  const ask = wanted?.side === 'beside' ? besideAsk() : recordedAsk();
  if (!wanted || !shown || !ask || !main.value) holeInfo.value = undefined;
  else askHole({ lane: main.value, ask: { ...ask, event: shown.event, address: wanted.address }, side: wanted.side });
});
