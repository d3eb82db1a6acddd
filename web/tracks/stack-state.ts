// What the stacked timeline shows: how it is divided, its bands, the ruler of steps, and the bands at the cursor.
import { effect, signal } from '@preact/signals';
import type { Calls } from '../../src/view/protocol.ts';
import type { Ruler } from '../../src/view/ruler.ts';
import type { StackMode } from '../../src/view/stack-columns.ts';
import type { Bands } from '../../src/view/stack-view.ts';
import { colour, cursor, guarded, type Lane, main, selection } from '../app/state.ts';
import { latest } from '../data/latest.ts';

export type StackAnswer = Calls['stackAt']['answer'];

/** As the user or a link chose; undefined: what the recording knows best. */
export const chosenStack = signal<StackMode | undefined>(undefined);
export const stackBy = signal<StackMode>('category');
/** Of the shown mode; undefined: not known yet. */
export const bands = signal<Bands | undefined>(undefined);
export const ruler = signal<Ruler | undefined>(undefined);
export const stackAtCursor = signal<StackAnswer | undefined>(undefined);

/** The map takes the same colours, unless it shows something else than meaning. */
export function chooseStack(mode: StackMode): void {
  chosenStack.value = mode;
  const isMeaning = colour.value === 'category' || colour.value === 'stack';
  if (isMeaning && mode !== 'none') colour.value = mode === 'site' ? 'stack' : 'category';
}

/** Whether a band is the selected one; undefined: no band is selected. */
export function isBandSelected(label: string, mode: StackMode, category: string | undefined): boolean | undefined {
  const { category: chosen, site } = selection.value;
  if (mode === 'category' && chosen !== undefined) return chosen === category;
  if (mode === 'site' && site !== undefined) return site === label;
  return undefined;
}

/** Each lane is asked once for its bands and its steps, and again after another choice. */
const askBands = latest(async ({ lane, mode }: { lane: Lane; mode: StackMode | undefined }) => {
  await guarded(async () => {
    const { connection } = lane.source;
    const wanted = mode ?? 'category';
    const found = await connection.ask('bands', lane.gpu.device, { by: wanted });
    if (main.value !== lane || chosenStack.value !== mode) return;
    if (mode === undefined && found.isUnknown && lane.gpu.hasStacks) {
      bands.value = await connection.ask('bands', lane.gpu.device, { by: 'site' });
      stackBy.value = 'site';
      if (colour.value === 'category') colour.value = 'stack';
    } else {
      bands.value = found;
      stackBy.value = wanted;
    }
  });
});

const askRuler = latest(async (lane: Lane) => {
  await guarded(async () => {
    const found = await lane.source.connection.ask('ruler', lane.gpu.device, {});
    if (main.value?.source === lane.source && main.value.gpu === lane.gpu) ruler.value = found;
  });
});

const askAtCursor = latest(async ({ lane, mode, event }: { lane: Lane; mode: StackMode; event: number }) => {
  await guarded(async () => {
    const found = await lane.source.connection.ask('stackAt', lane.gpu.device, { run: lane.run.run, by: mode, event });
    if (main.value === lane && stackBy.value === mode) stackAtCursor.value = found;
  });
});

let shown: Lane | undefined;
effect(() => {
  const lane = main.value;
  const mode = chosenStack.value;
  if (lane?.source !== shown?.source || lane?.gpu !== shown?.gpu) {
    ruler.value = undefined;
    bands.value = undefined;
    if (lane) askRuler(lane);
  }
  shown = lane;
  if (lane) askBands({ lane, mode });
});

effect(() => {
  const lane = main.value;
  const event = cursor.value?.event;
  const mode = stackBy.value;
  if (!bands.value || mode === 'none') stackAtCursor.value = undefined;
  else if (lane && event !== undefined) askAtCursor({ lane, mode, event });
});
