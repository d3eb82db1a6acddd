// What the flame graph shows: which memory, from which side, and what is searched in it.
import { batch, computed, effect, type ReadonlySignal, signal } from '@preact/signals';
import { type FlameGraph, type FlameRef, ROOT_NODE, refOf } from '../../src/view/flame.ts';
import type { Calls } from '../../src/view/protocol.ts';
import { cursor, flameRoot, guarded, type Lane, main, selection, since } from '../app/state.ts';
import { latest } from '../data/latest.ts';

/** Whose bytes are the widths. */
export type Weight = 'cursor' | 'peak' | 'range';

const chosenWeight = signal<Weight | undefined>(undefined);
export const isInverted = signal(false);
export const searched = signal('');
/** The rectangle that keys act on; undefined: the one that is zoomed in on. */
export const focused = signal<FlameRef | undefined>(undefined);
export const flame = signal<FlameGraph | undefined>(undefined);

/** Unless somebody chose: what the range has left, or what is live at the cursor. */
export const weight: ReadonlySignal<Weight> = computed(() => {
  const chosen = chosenWeight.value;
  if (chosen && (chosen !== 'range' || since.value)) return chosen;
  return since.value ? 'range' : 'cursor';
});

export function chooseWeight(next: Weight): void {
  chosenWeight.value = next;
}

/** Turns the graph around. A zoom belongs to one side only, and so do rectangles that are clicked. */
export function turn(toInverted: boolean): void {
  if (toInverted === isInverted.value) return;
  batch(() => {
    flame.value = undefined;
    isInverted.value = toInverted;
    zoomTo(undefined);
  });
}

/** Zooms, and selects the same memory on the map; undefined: the whole. */
export function zoomTo(ref: FlameRef | undefined): void {
  batch(() => {
    focused.value = undefined;
    const isWhole = ref === undefined || ref.node === ROOT_NODE;
    flameRoot.value = isWhole ? undefined : ref;
    selection.value = isWhole ? {} : ref.depth === undefined ? { node: ref.node } : { tail: ref };
  });
}

/** One frame up. */
export function zoomOut(): void {
  const graph = flame.value;
  if (!graph || flameRoot.value === undefined) return;
  // The rectangles above the one that is zoomed in on come first, one in each row.
  const at = [...graph.node.keys()].find((index) => isSame(refOf(graph, index), flameRoot.value));
  zoomTo(at === undefined || at === 0 ? undefined : refOf(graph, at - 1));
}

export function isSame(one: FlameRef | undefined, other: FlameRef | undefined): boolean {
  return one?.node === other?.node && one?.depth === other?.depth;
}

const ask = latest(({ lane, question }: { lane: Lane; question: Calls['flame']['ask'] }) =>
  guarded(async () => {
    const found = await lane.source.connection.ask('flame', lane.gpu.device, question);
    if (main.value?.source === lane.source && main.value.gpu.device === lane.gpu.device && found.isInverted === isInverted.value)
      flame.value = found;
  }),
);

effect(() => {
  const lane = main.value;
  const event = weight.value === 'peak' ? lane?.run.peak.event : cursor.value?.event;
  if (!lane?.gpu.hasStacks || event === undefined) {
    flame.value = undefined;
    return;
  }
  const text = searched.value.trim();
  ask({
    lane,
    question: {
      event,
      since: weight.value === 'range' ? since.value?.event : undefined,
      under: flameRoot.value,
      isInverted: isInverted.value,
      search: text === '' ? undefined : text,
    },
  });
});
