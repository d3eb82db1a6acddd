// The profile of one training step, from which its swaps are planned: ticks, tensors that may be swapped, speed of copies.
// python/weir/swap/profile.py writes it. Pure.
import { InputError } from '../../../base/errors.ts';

/** A storage with tensors saved for backward. */
export interface SavedRecord {
  readonly size: number;
  /** Ticks: first saved; since when nobody else holds it (-1: never); used by backward. */
  readonly first: number;
  readonly sole: number;
  readonly uses: readonly number[];
}

/** A tensor of optimizer state. */
export interface StateItem {
  readonly size: number;
  /** Ticks at which its optimizer's step begins (-1: never) and ends; 0: with the training step before. */
  readonly pre: number;
  readonly post: number;
}

/** Parameters of a layer between the end of its forward pass and the next use. */
export interface LayerPassage {
  readonly size: number;
  /** Ticks; `needed` is -1 if there was no use. */
  readonly left: number;
  readonly needed: number;
}

export interface SwapProfile {
  readonly key: string;
  readonly periodUs: number;
  /** Per tick: its GPU time, and the peak of allocated bytes until the next tick, without swapping. */
  readonly ticks: { readonly us: readonly number[]; readonly peak: readonly number[] };
  readonly records: readonly SavedRecord[];
  readonly items: readonly StateItem[];
  readonly passages: readonly LayerPassage[];
  /** Bytes per second. */
  readonly copies: {
    readonly outAlone: number;
    readonly inAlone: number;
    readonly outBoth: number;
    readonly inBoth: number;
    readonly fixedUs: number;
  };
  readonly limit?: number | undefined;
  /** Without a limit: the share of the possible savings to aim at. Below 1 if a fuller plan slowed the steps down. */
  readonly share?: number | undefined;
  readonly hostLimit: number;
}

/** The time in a step during which a tensor may be away. */
export interface Gap {
  readonly size: number;
  /** Ticks: exists from; idle from; used again at; exists until. */
  readonly first: number;
  readonly free: number;
  readonly use: number;
  readonly last: number;
}

/** Undefined if the tensor cannot leave. */
export function gapOfRecord({ size, first, sole, uses }: SavedRecord): Gap | undefined {
  const [use] = uses;
  return sole < 0 || use === undefined || sole >= use ? undefined : { size, first, free: sole, use, last: Math.max(...uses) };
}

export function gapOfPassage({ size, left, needed }: LayerPassage): Gap | undefined {
  return left >= needed ? undefined : { size, first: left, free: left, use: needed, last: needed };
}

/** Checks everything that planning relies on, since the file comes from another process. */
export function readSwapProfile(data: unknown): SwapProfile {
  const profile = fields(data, 'profile');
  if (profile['version'] !== 1) throw new InputError('the profile for swapping is of another version than this weir');
  const ticks = fields(profile['ticks'], 'ticks');
  const us = numbers(ticks['us'], 'times of ticks');
  const peak = numbers(ticks['peak'], 'peaks of ticks');
  if (us.length === 0 || us.length !== peak.length) throw new InputError('the profile for swapping has no ticks, or not all their peaks');
  if (us.some((time, tick) => time < (us[tick - 1] ?? 0))) throw new InputError('the ticks of the profile for swapping go back in time');
  const isTick = (tick: number, least: number) => Number.isInteger(tick) && tick >= least && tick < us.length;
  const records = list(profile['records'], 'records').map((entry) => {
    const row = fields(entry, 'record');
    const record = {
      size: number(row['size'], 'size'),
      first: number(row['first'], 'tick'),
      sole: number(row['sole'], 'tick'),
      uses: numbers(row['uses'], 'uses'),
    };
    if (!isTick(record.first, 0) || !isTick(record.sole, -1) || !record.uses.every((tick) => isTick(tick, 0))) {
      throw new InputError('a record of the profile for swapping has ticks that are not there');
    }
    return record;
  });
  const items = list(profile['items'], 'items').map((entry) => {
    const row = fields(entry, 'item');
    const item = { size: number(row['size'], 'size'), pre: number(row['pre'], 'tick'), post: number(row['post'], 'tick') };
    if (!isTick(item.pre, -1) || !isTick(item.post, 0))
      throw new InputError('an item of the profile for swapping has ticks that are not there');
    return item;
  });
  const passages = list(profile['passages'] ?? [], 'passages').map((entry) => {
    const row = fields(entry, 'passage');
    const passage = { size: number(row['size'], 'size'), left: number(row['left'], 'tick'), needed: number(row['needed'], 'tick') };
    if (!isTick(passage.left, 0) || !isTick(passage.needed, -1))
      throw new InputError('a passage of the profile for swapping has ticks that are not there');
    return passage;
  });
  const copies = fields(profile['copies'], 'copies');
  const rate = (name: string) => {
    const value = number(copies[name], name);
    if (value <= 0) throw new InputError(`the profile for swapping has a bandwidth of ${value}`);
    return value;
  };
  const limit = profile['limit'];
  const share = number(profile['share'] ?? 1, 'share');
  if (share <= 0 || share > 1) throw new InputError(`the profile for swapping asks for a share of ${share}`);
  return {
    key: String(profile['key']),
    periodUs: Math.max(number(profile['periodUs'], 'period'), us.at(-1)!),
    ticks: { us, peak },
    records,
    items,
    passages,
    copies: {
      outAlone: rate('outAlone'),
      inAlone: rate('inAlone'),
      outBoth: rate('outBoth'),
      inBoth: rate('inBoth'),
      fixedUs: number(copies['fixedUs'], 'fixedUs'),
    },
    limit: typeof limit === 'number' ? limit : undefined,
    share,
    hostLimit: number(profile['hostLimit'], 'hostLimit'),
  };
}

function fields(value: unknown, what: string): Record<string, unknown> {
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Record<string, unknown>;
  throw new InputError(`the profile for swapping has no ${what}`);
}

function list(value: unknown, what: string): unknown[] {
  if (Array.isArray(value)) return value;
  throw new InputError(`the profile for swapping has no list of ${what}`);
}

function number(value: unknown, what: string): number {
  if (typeof value === 'number' && Number.isFinite(value)) return value;
  throw new InputError(`the profile for swapping has ${JSON.stringify(value)} for a ${what}`);
}

function numbers(value: unknown, what: string): number[] {
  return list(value, what).map((item) => number(item, what));
}
