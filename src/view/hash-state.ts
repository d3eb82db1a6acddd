// The state of the page as the part of its address after the #, so that a link restores view, cursor and selection.
import { COLOUR_MODES, type ColourMode } from './block-classes.ts';
import type { AxisKind } from './clock.ts';
import { STACK_MODES, type StackMode } from './stack-columns.ts';

export interface HashState {
  readonly axis?: AxisKind | undefined;
  readonly from?: number | undefined;
  readonly to?: number | undefined;
  readonly cursor?: number | undefined;
  readonly colour?: ColourMode | undefined;
  /** How the timeline is stacked. */
  readonly stack?: StackMode | undefined;
  /** The allocator shown, and the one it is compared with. */
  readonly run?: string | undefined;
  readonly with?: string | undefined;
  readonly file?: string | undefined;
  readonly gpu?: number | undefined;
  readonly capacity?: number | undefined;
  /** Selected block, stack node, or range (its first event; the cursor is its end). */
  readonly block?: number | undefined;
  readonly node?: number | undefined;
  readonly since?: number | undefined;
  readonly search?: string | undefined;
  /** Of a run that can be given other values, like 12 or 12x512. */
  readonly values?: string | undefined;
  /** The two ranks whose difference is shown, and the moments compared. */
  readonly left?: string | undefined;
  readonly right?: string | undefined;
  readonly by?: string | undefined;
}

const WHOLE_NUMBERS = ['cursor', 'gpu', 'capacity', 'block', 'node', 'since'] as const;
const NUMBERS = ['from', 'to', ...WHOLE_NUMBERS] as const;
const TEXTS = ['run', 'with', 'file', 'search', 'values', 'left', 'right', 'by'] as const;

export function writeHash(state: HashState): string {
  const fields = new URLSearchParams();
  if (state.axis) fields.set('axis', state.axis);
  if (state.colour) fields.set('colour', state.colour);
  if (state.stack) fields.set('stack', state.stack);
  for (const name of NUMBERS) if (state[name] !== undefined) fields.set(name, String(state[name]));
  for (const name of TEXTS) if (state[name] !== undefined && state[name] !== '') fields.set(name, state[name]);
  const text = fields.toString();
  return text === '' ? '' : `#${text}`;
}

/** Ignores what it cannot read, since links get typed and cut. */
export function readHash(hash: string): HashState {
  const fields = new URLSearchParams(hash.replace(/^#/, ''));
  const state: Record<string, unknown> = {};
  const axis = fields.get('axis');
  if (axis === 'event' || axis === 'time') state['axis'] = axis;
  const colour = fields.get('colour');
  if (COLOUR_MODES.some((mode) => mode === colour)) state['colour'] = colour;
  const stack = fields.get('stack');
  if (STACK_MODES.some((mode) => mode === stack)) state['stack'] = stack;
  for (const name of NUMBERS) {
    const text = fields.get(name);
    const value = Number(text);
    if (text !== null && text.trim() !== '' && Number.isFinite(value)) state[name] = value;
  }
  for (const name of WHOLE_NUMBERS) if (!Number.isInteger(state[name])) delete state[name];
  for (const name of TEXTS) {
    const text = fields.get(name);
    if (text !== null && text !== '') state[name] = text;
  }
  if (!(Number(state['from']) < Number(state['to']))) {
    delete state['from'];
    delete state['to'];
  }
  return state as HashState;
}
