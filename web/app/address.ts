// Keeps the page's address up to date, so that a link restores what it shows, and the legend with the colours.
import { effect } from '@preact/signals';
import { ALIGNMENTS } from '../../src/report/alignment.ts';
import { type HashState, readHash, writeHash } from '../../src/view/hash-state.ts';
import { fileName } from '../../src/view/job-names.ts';
import { shortVerdict } from '../../src/view/job-words.ts';
import { RECORDED } from '../../src/view/protocol.ts';
import { closeDifference, comparing, showDifference } from '../job/difference-state.ts';
import { isJob, openName } from '../job/job-state.ts';
import { isLive, liveTitle } from '../job/live-state.ts';
import { chosenStack } from '../tracks/stack-state.ts';
import { comparison, showState } from './opening.ts';
import {
  analysis,
  axis,
  block,
  capacity,
  colour,
  cursor,
  guarded,
  legend,
  main,
  selection,
  since,
  sources,
  view,
  wholeX,
} from './state.ts';

/** Updates the legend with the colours. */
effect(() => {
  const lane = main.value;
  const mode = colour.value;
  if (!lane) return;
  void guarded(async () => {
    legend.value = await lane.source.connection.ask('legend', lane.gpu.device, { colour: mode });
  });
});

/** Updates the page's address, at most a few times a second. */
let hashTimer: ReturnType<typeof setTimeout> | undefined;
effect(() => {
  const state = currentState();
  if (!state) return;
  clearTimeout(hashTimer);
  hashTimer = setTimeout(() => {
    const hash = writeHash(state);
    if (hash !== location.hash) history.replaceState(null, '', hash === '' ? location.pathname + location.search : hash);
  }, 150);
});

/** What the page shows, as its address holds it; undefined: nothing. */
export function currentState(): HashState | undefined {
  const lane = main.value;
  if (!lane) return undefined;
  const isFitted = view.value.to - view.value.from >= wholeX.value * 0.999;
  return {
    file: sources.value.length > 1 ? lane.source.name : undefined,
    gpu: (lane.source.info?.gpus.length ?? 1) > 1 ? lane.gpu.device : undefined,
    run: lane.run.run === RECORDED ? undefined : lane.run.run,
    with: comparison(),
    axis: axis.value,
    colour: colour.value,
    stack: chosenStack.value,
    from: isFitted ? undefined : Math.round(view.value.from * 100) / 100,
    to: isFitted ? undefined : Math.round(view.value.to * 100) / 100,
    cursor: cursor.value?.event,
    capacity: capacity.value,
    block: block.value?.allocation,
    node: selection.value.node,
    since: since.value?.event,
    search: selection.value.search,
    values: lane.source.info?.values?.point.join('x'),
    ...comparing.value,
  };
}

/** The tab says what is open and how it fares: file or job, verdict, Weir. */
effect(() => {
  const lane = main.value;
  const file = lane && fileName(lane.source.name);
  const whole = isLive.value ? liveTitle.value : isJob.value ? openName.value : undefined;
  const name = [whole, file].filter((part) => part !== undefined).join(', ') || openName.value;
  const verdict = lane && analysis.value?.file === lane.source.name ? shortVerdict(analysis.value.analysis) : undefined;
  document.title = [name, verdict, 'Weir'].filter((part) => part !== undefined).join(' - ');
});

/** An address that was typed or pasted into an open page. Our own changes of the address do not call this. */
export function listenToAddress(): void {
  window.addEventListener('hashchange', () => {
    const wanted = wantedByAddress();
    void showState(wanted);
    showWantedDifference(wanted);
  });
}

/** The difference that an address asks for, or none. */
export function showWantedDifference({ left, right, by }: HashState): void {
  if (left === undefined || right === undefined) closeDifference();
  else void showDifference({ left, right, by: ALIGNMENTS.find((kind) => kind === by) });
}

export function wantedByAddress(): HashState {
  return readHash(location.hash);
}
