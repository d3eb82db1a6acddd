// Moves the cursor, and selects a moment, a range, a block, a call site or search hits.
import { batch } from '@preact/signals';
import type { AxisKind } from '../../src/view/clock.ts';
import type { BlockInfo, Moment } from '../../src/view/protocol.ts';
import { focus, reveal } from '../../src/view/viewport.ts';
import { latest } from '../data/latest.ts';
import {
  axis,
  block,
  cursor,
  flameRoot,
  guarded,
  type Lane,
  main,
  mainState,
  mark,
  other,
  otherBlock,
  otherState,
  positionOf,
  searchResult,
  selection,
  since,
  spanOf,
  view,
  wholeX,
} from './state.ts';

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
    const ask = { ...at, since: since.value?.event };
    // Two runs of one recording are compared at the same event, two recordings at the same position of the axis.
    const [state, second] = await Promise.all([
      lane.source.connection.ask('moment', lane.gpu.device, { ...ask, run: lane.run.run }),
      beside ? beside.source.connection.ask('moment', beside.gpu.device, { ...ask, since: undefined, run: beside.run.run }) : undefined,
    ]);
    if (main.value !== lane) return;
    // A range ends at the cursor. Before its beginning there is none.
    if (ask.since !== undefined && state.event < ask.since) {
      since.value = undefined;
      cursor.value = { event: state.event, timeUs: state.timeUs };
      refreshMoment();
      return;
    }
    batch(() => {
      mainState.value = state;
      otherState.value = other.value === beside ? second : undefined;
      cursor.value = { event: state.event, timeUs: state.timeUs };
    });
  });
});

/** Where the cursor was sent last. Its moment may not have arrived yet. */
let sentTo: { axis: AxisKind; position: number } | undefined;

/** Moves the cursor to a position of an axis. */
export function moveTo(on: AxisKind, position: number): void {
  sentTo = { axis: on, position };
  askMoment(sentTo);
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

/** Asks again where the cursor is, or is about to be: what is beside it may have changed since. */
export function refreshMoment(): void {
  if (sentTo) askMoment(sentTo);
}

/** Selects a range. Panels then show what was allocated in it and is still live at its end. */
export function selectRange(from: number, to: number): void {
  const lane = main.value;
  if (!lane) return;
  void guarded(async () => {
    const first = await lane.source.connection.ask('moment', lane.gpu.device, {
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
      [lane, beside].map((each) => each?.source.connection.ask('block', each.gpu.device, { run: each.run.run, allocation })),
    );
    batch(() => {
      block.value = found;
      otherBlock.value = second;
      if (found && isFocused) focusBlock();
    });
    if (found && isFocused) moveTo('event', Math.max(0, found.start.event));
  });
}

/** Selects the block at a point of a lane's map. */
export async function selectBlockAt(lane: Lane, position: number, offset: number): Promise<void> {
  // An allocation has the same number in every run of its recording, and none in another recording.
  if (lane.source !== main.value?.source) return;
  await guarded(async () => {
    const found = await lane.source.connection.ask('blockAt', lane.gpu.device, { run: lane.run.run, axis: axis.value, position, offset });
    await selectBlock(found?.allocation ?? -1);
  });
}

/** For hovering: only the latest position of the pointer matters. */
export const askBlockAt = latest(
  async (ask: { lane: Lane; position: number; offset: number; onFound: (found: BlockInfo | undefined) => void }) => {
    const { lane, position, offset, onFound } = ask;
    await guarded(async () => {
      onFound(await lane.source.connection.ask('blockAt', lane.gpu.device, { run: lane.run.run, axis: axis.value, position, offset }));
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
    const result = await lane.source.connection.ask('search', lane.gpu.device, { run: lane.run.run, text });
    batch(() => {
      searchResult.value = result;
      selection.value = { search: text };
    });
  });
});
