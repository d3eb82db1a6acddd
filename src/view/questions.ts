// Checks a question before anybody works on it. The server and the workers take questions only through `checkQuestion`,
// so that no question can ask for more memory than a screen needs.
import { UsageError } from '../base/errors.ts';
import { MOST_VALUE } from '../fit/search.ts';
import { CATEGORY_ORDER, COLOUR_MODES } from './block-classes.ts';
import { STRIP_ORDERS } from './fit-strip.ts';
import { OLDER_NODE } from './flame.ts';
import type { Calls, Method, Question } from './protocol.ts';
import { STACK_MODES } from './stack-columns.ts';

/** Above what `detailGrid` asks for, on the widest screens. */
export const MOST_COLUMNS = 16_384;
export const MOST_ROWS = 4096;
/** Of a map. Each takes about 15 bytes while the map is made. */
export const MOST_CELLS: number = 2 ** 24;
const MOST_TEXT = 4096;
const MOST_PARAMETERS = 8;

/** Returns the value if it is right, or throws an error that names the field. */
type Check = (value: unknown, name: string) => unknown;

const STRIP = { run: text, event: whole(-1), request: optional(whole(0)), limit: optional(whole(1)), isGiven: optional(yesOrNo) };
const CHECKS: { readonly [Name in Method]: { readonly [Field in keyof Calls[Name]['ask']]-?: Check } } = {
  describe: {},
  ranks: {},
  run: { run: text },
  timeline: { run: text, axis, from: number, to: number, columns: whole(1, MOST_COLUMNS) },
  map: { run: text, window: mapWindow, colour, selection: optional(selection) },
  legend: { colour },
  ruler: {},
  bands: { by: stackMode },
  stack: { by: stackMode, window: stackWindow },
  stackAt: { run: text, by: stackMode, event: whole(-1), allocation: optional(whole(-1)) },
  moment: { run: text, axis, position: number, since: optional(whole(-1)) },
  flame: { event: whole(-1), since: optional(whole(-1)), under: optional(flameRef), isInverted: optional(yesOrNo), search: optional(text) },
  blockAt: { run: text, axis, position: number, offset: number },
  // -1 selects nothing.
  block: { run: text, allocation: whole(-1) },
  search: { run: text, text },
  misfits: {},
  strip: { ...STRIP, order },
  hole: { ...STRIP, address: number },
  besideStrip: { ...STRIP, order },
  besideHole: { ...STRIP, address: number },
  plan: {},
  analyze: { capacity: optional(whole(1)), isHistory: optional(yesOrNo) },
  values: { gpuBytes: whole(1) },
  pack: { name: text, capacity: optional(whole(1)) },
};

/** The same question with the known fields only. Throws a UsageError that says which field is wrong. */
export function checkQuestion(value: unknown): Question {
  const given = fieldsOf(value, 'a question');
  const { method } = given;
  if (typeof method !== 'string') throw new UsageError('a question has a method; reload the page');
  if (!Object.hasOwn(CHECKS, method)) throw new UsageError(`there is no question '${method.slice(0, 40)}'; reload the page`);
  const checks: Readonly<Record<string, Check>> = CHECKS[method as Method];
  const question = { method, ...checked(given, { gpu: number, point: optional(point), ...checks }, '') };
  if (method === 'timeline') checkRange(question as Record<string, unknown>, 'from', 'to', '');
  return question as unknown as Question;
}

function checked(given: Record<string, unknown>, checks: Readonly<Record<string, Check>>, prefix: string): Record<string, unknown> {
  return Object.fromEntries(Object.entries(checks).map(([name, check]) => [name, check(given[name], `${prefix}${name}`)]));
}

function fieldsOf(value: unknown, name: string): Record<string, unknown> {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw new UsageError(`${name} is an object; reload the page`);
  return value as Record<string, unknown>;
}

/** Values of a run's parameters. */
function point(value: unknown, name: string): unknown {
  if (!Array.isArray(value) || value.length === 0 || value.length > MOST_PARAMETERS)
    throw new UsageError(`${name} is a list of 1 to ${MOST_PARAMETERS} numbers`);
  return value.map((each: unknown) => whole(1, MOST_VALUE)(each, name));
}

function mapWindow(value: unknown, name: string): unknown {
  const window = checked(
    fieldsOf(value, name),
    { axis, from: number, to: number, columns: whole(1, MOST_COLUMNS), low: number, high: number, rows: whole(1, MOST_ROWS) },
    `${name}.`,
  );
  checkRange(window, 'from', 'to', `${name}.`);
  checkRange(window, 'low', 'high', `${name}.`);
  if ((window['columns'] as number) * (window['rows'] as number) > MOST_CELLS)
    throw new UsageError(`${name} has at most ${MOST_CELLS} cells (columns x rows)`);
  return window;
}

function stackWindow(value: unknown, name: string): unknown {
  const checks = { axis, from: number, to: number, columns: whole(1, MOST_COLUMNS), least: number };
  const window = checked(fieldsOf(value, name), checks, `${name}.`);
  checkRange(window, 'from', 'to', `${name}.`);
  return window;
}

function flameRef(value: unknown, name: string): unknown {
  return checked(fieldsOf(value, name), { node: whole(OLDER_NODE), depth: optional(whole(0)) }, `${name}.`);
}

function selection(value: unknown, name: string): unknown {
  const checks = {
    node: optional(whole(OLDER_NODE)),
    tail: optional(flameRef),
    site: optional(text),
    category: optional(category),
    search: optional(text),
  };
  return checked(fieldsOf(value, name), checks, `${name}.`);
}

function checkRange(fields: Record<string, unknown>, from: string, to: string, prefix: string): void {
  if ((fields[from] as number) > (fields[to] as number)) throw new UsageError(`${prefix}${from} is not above ${prefix}${to}`);
}

function text(value: unknown, name: string): string {
  if (typeof value !== 'string' || value.length > MOST_TEXT) throw new UsageError(`${name} is a text of at most ${MOST_TEXT} characters`);
  return value;
}

function number(value: unknown, name: string): number {
  if (typeof value !== 'number' || !(Math.abs(value) <= Number.MAX_SAFE_INTEGER))
    throw new UsageError(`${name} is a number from -2^53 to 2^53, not ${shown(value)}`);
  return value;
}

function whole(least: number, most: number = Number.MAX_SAFE_INTEGER): (value: unknown, name: string) => number {
  return (value, name) => {
    if (!Number.isInteger(value) || (value as number) < least || (value as number) > most)
      throw new UsageError(`${name} is a whole number from ${least} to ${most}, not ${shown(value)}`);
    return value as number;
  };
}

function axis(value: unknown, name: string): unknown {
  return oneOf(['event', 'time'], value, name);
}

function colour(value: unknown, name: string): unknown {
  return oneOf(COLOUR_MODES, value, name);
}

function category(value: unknown, name: string): unknown {
  return oneOf(CATEGORY_ORDER, value, name);
}

function stackMode(value: unknown, name: string): unknown {
  return oneOf(STACK_MODES, value, name);
}

function order(value: unknown, name: string): unknown {
  return oneOf(STRIP_ORDERS, value, name);
}

function yesOrNo(value: unknown, name: string): unknown {
  if (typeof value !== 'boolean') throw new UsageError(`${name} is true or false`);
  return value;
}

function oneOf(allowed: readonly string[], value: unknown, name: string): unknown {
  if (typeof value !== 'string' || !allowed.includes(value)) throw new UsageError(`${name} is one of ${allowed.join(', ')}`);
  return value;
}

/** JSON has no undefined, so null counts as absent too. */
function optional(check: Check): Check {
  return (value, name) => (value === undefined || value === null ? undefined : check(value, name));
}

function shown(value: unknown): string {
  return typeof value === 'number'
    ? String(value)
    : Array.isArray(value)
      ? 'a list'
      : value === null
        ? 'null'
        : `a value of type ${typeof value}`;
}
