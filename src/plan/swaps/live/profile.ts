// The profile of one training step, from which its swaps are planned: ticks, tensors that may be swapped, speed of copies.
// python/weir_gpu/swap/profile.py writes it. Pure.
import type { LayerPassage, ProfileTicks, SavedRecord, SwapProfile as SentProfile } from '../../../abi/exchange.ts';
import { Format } from '../../../abi/formats.ts';
import { InputError } from '../../../base/errors.ts';
import { readShape } from '../../../base/shape.ts';

/** As the process sends it (abi/exchange.ts), with what it may leave out filled in. */
export interface SwapProfile extends Pick<SentProfile, 'key' | 'periodUs' | 'records' | 'items' | 'passages' | 'copies' | 'hostLimit'> {
  readonly ticks: Pick<ProfileTicks, 'us' | 'peak'>;
  readonly limit?: number | undefined;
  /** Without a limit: the share of the possible savings to aim at. Below 1 if a fuller plan slowed the steps down. */
  readonly share?: number | undefined;
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

/** No step takes longer: 11 days. */
const MOST_US = 1e12;

/** Checks everything that planning relies on, since the file comes from another process. */
export function readSwapProfile(data: unknown): SwapProfile {
  const sent = readShape('SwapProfile', data);
  if (sent.version !== Format.exchange.version) throw new InputError('the profile for swapping is of another version than this weir');
  const { us, peak } = sent.ticks;
  if (us.length === 0 || us.length !== peak.length) throw new InputError('the profile for swapping has no ticks, or not all their peaks');
  if (us.some((time, tick) => time < (us[tick - 1] ?? 0))) throw new InputError('the ticks of the profile for swapping go back in time');
  const isTick = (tick: number, least: number) => Number.isInteger(tick) && tick >= least && tick < us.length;
  const need = (right: boolean, what: string) => {
    if (!right) throw new InputError(`${what} of the profile for swapping has ticks that are not there`);
  };
  for (const { first, sole, uses } of sent.records)
    need(isTick(first, 0) && isTick(sole, -1) && uses.every((tick) => isTick(tick, 0)), 'a record');
  for (const { pre, post } of sent.items) need(isTick(pre, -1) && isTick(post, 0), 'an item');
  for (const { left, needed } of sent.passages) need(isTick(left, 0) && isTick(needed, -1), 'a passage');
  const { copies: rates, records: saved } = sent;
  for (const rate of [rates.outAlone, rates.inAlone, rates.outBoth, rates.inBoth])
    if (rate < 1) throw new InputError(`the profile for swapping has a bandwidth of ${rate}`);
  for (const time of [sent.periodUs, us.at(-1)!, rates.fixedUs])
    if (time < 0 || time > MOST_US) throw new InputError(`the profile for swapping has a time of ${time} microseconds`);
  const sizes = [...saved, ...sent.items, ...sent.passages].map(({ size }) => size);
  const total = sizes.reduce((sum, size) => sum + size, 0);
  if ([...sizes, ...peak, sent.hostLimit, sent.limit ?? 0].some((bytes) => bytes < 0) || total > Number.MAX_SAFE_INTEGER)
    throw new InputError('the profile for swapping has sizes below 0, or above what any memory holds');
  const share = sent.share ?? 1;
  if (share <= 0 || share > 1) throw new InputError(`the profile for swapping asks for a share of ${share}`);
  const { key, records, items, passages, copies, hostLimit } = sent;
  const periodUs = Math.max(sent.periodUs, us.at(-1)!);
  return { key, periodUs, ticks: { us, peak }, records, items, passages, copies, limit: sent.limit ?? undefined, share, hostLimit };
}
