// The keys of the page, as one table that the help shows too.
import { pan, zoom } from '../../src/view/viewport.ts';
import { zoomAnchor, zoomHeight } from '../tracks/gestures.ts';
import { clearSelection, focusBlock, moveToMoment, stepCursor } from './selecting.ts';
import { cursor, fitWhole, isHelpOpen, main, mainState, mark, problem, view, wholeX } from './state.ts';

export interface KeyAction {
  readonly keys: readonly string[];
  readonly what: string;
  run(): void;
}

const STEP = 0.2;

export const KEY_ACTIONS: readonly KeyAction[] = [
  { keys: ['w'], what: 'zoom in', run: () => zoomBy(1 / 1.5) },
  { keys: ['s'], what: 'zoom out', run: () => zoomBy(1.5) },
  { keys: ['a'], what: 'pan left', run: () => panBy(-STEP) },
  { keys: ['d'], what: 'pan right', run: () => panBy(STEP) },
  { keys: [']'], what: 'zoom the timeline in bytes', run: () => zoomHeight(1 / 1.5) },
  { keys: ['['], what: 'zoom it out', run: () => zoomHeight(1.5) },
  { keys: ['0'], what: 'fit everything', run: fitWhole },
  { keys: ['f'], what: 'focus the selection', run: focusBlock },
  { keys: [','], what: 'previous event', run: () => stepCursor(-1) },
  { keys: ['.'], what: 'next event', run: () => stepCursor(1) },
  { keys: ['/'], what: 'search', run: () => document.querySelector<HTMLInputElement>('#search')?.focus() },
  {
    keys: ['p'],
    what: 'jump to the peak',
    run: () => {
      if (main.value) moveToMoment(main.value.run.peak);
    },
  },
  {
    keys: ['o'],
    what: 'OOM: jump to the next out-of-memory error',
    run: () => {
      const ooms = main.value?.gpu.ooms ?? [];
      const next = ooms.find((oom) => oom.event > (cursor.value?.event ?? -1)) ?? ooms[0];
      if (next) moveToMoment(next);
    },
  },
  {
    keys: ['m'],
    what: 'mark this moment, to compare it with the cursor',
    run: () => {
      mark.value = mark.value?.event === mainState.value?.event ? undefined : mainState.value;
    },
  },
  { keys: ['1'], what: 'verdict', run: () => goTo('verdict') },
  { keys: ['2'], what: 'what-if table', run: () => goTo('what-if') },
  { keys: ['3'], what: 'timeline and map', run: () => goTo('tracks') },
  { keys: ['4'], what: 'live at the cursor', run: () => goTo('live') },
  { keys: ['5'], what: 'why it did not fit', run: () => goTo('fit') },
  {
    keys: ['?'],
    what: 'this help',
    run: () => {
      isHelpOpen.value = !isHelpOpen.value;
    },
  },
  {
    keys: ['Escape'],
    what: 'clear the selection, close this',
    run: () => {
      if (isHelpOpen.value) isHelpOpen.value = false;
      else if (problem.value && main.value) problem.value = undefined;
      else clearSelection();
    },
  },
];

export const POINTER_HELP: readonly (readonly [string, string])[] = [
  ['Ctrl + wheel, pinch', 'zoom in time'],
  ['Shift + wheel, sideways', 'pan in time'],
  ['Ctrl + Shift + wheel', 'zoom the timeline in bytes, the map in addresses'],
  ['drag on the timeline', 'move the cursor'],
  ['click on the timeline', 'select a tensor'],
  ['drag on the map', 'pan'],
  ['click on the map', 'select a block'],
  ['Shift + drag', 'select a range: panels show what is left at its end'],
  ['drag on the minimap', 'choose what is shown'],
  ['click in the flame graph', 'zoom in; a frame above zooms out again'],
];

/** Keys of parts that have the focus. */
export const FOCUS_HELP: readonly (readonly [readonly string[], string])[] = [
  [['←', '→', '↑', '↓'], 'flame graph: go to a neighbour, caller or callee; tabs, strips of memory: the next one'],
  [['Enter'], 'flame graph: zoom in; table: choose the row'],
  [['Esc'], 'flame graph: zoom out'],
];

export function listenToKeys(): void {
  document.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const target = event.target as HTMLElement;
    if (isTyping(target)) {
      if (event.key === 'Escape') target.blur();
      return;
    }
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    const action = KEY_ACTIONS.find(({ keys }) => keys.includes(key));
    if (!action) return;
    event.preventDefault();
    action.run();
  });
}

function isTyping(target: HTMLElement): boolean {
  return target.tagName === 'INPUT' || target.tagName === 'TEXTAREA' || target.tagName === 'SELECT' || target.isContentEditable;
}

function zoomBy(factor: number): void {
  view.value = zoom(view.value, wholeX.value, factor, zoomAnchor());
}

function panBy(share: number): void {
  view.value = pan(view.value, wholeX.value, share * (view.value.to - view.value.from));
}

function goTo(id: string): void {
  const section = document.getElementById(id);
  section?.scrollIntoView({ block: 'start' });
  section?.focus({ preventScroll: true });
}
