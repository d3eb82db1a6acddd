// Rows of a process that runs out of memory. The first 8 bytes say how it is watched: allocator, rows of the window, rows at a time.
import { EVENT_BYTES, EventField, EventOffset } from '../../../src/abi/events.ts';
import { EventKind } from '../../../src/trace/trace.ts';
import { type Format, mutate } from '../mutate.ts';
import type { Random } from '../random.ts';

export const FAILURE_HEAD_BYTES = 8;
const MIB = 2 ** 20;
const BASE = 2 ** 40;

export const FAILURE: Format = { cuts: rowCuts, mutations: [changeField] };

/** Half of the inputs are damaged ones of the corpus, the others are made up: sound, or with impossible numbers. */
export function failureInput(corpus: readonly Uint8Array[], random: Random): Uint8Array {
  return random.chance(0.5) ? mutate(FAILURE, corpus, random) : madeUp(random);
}

const { Alloc, FreeRequested, FreeCompleted, SegmentAlloc, SegmentFree, SegmentMap, SegmentUnmap, Oom, Mark, Category, Reserved } =
  EventKind;
const KINDS: readonly number[] = [
  ...[Alloc, Alloc, Alloc, Alloc, Alloc, FreeRequested, FreeCompleted, FreeRequested, FreeCompleted, FreeCompleted],
  ...[SegmentAlloc, SegmentFree, SegmentMap, SegmentUnmap, Oom, Mark, Category, Category, Reserved],
];
const SIZES: readonly number[] = [512, 1000, MIB, 2 * MIB, 20 * MIB, 100 * MIB];
const ODD_SIZES: readonly number[] = [0, 1, 2 ** 53 - 1, 2 ** 52, 2 ** 40, 2 ** 50 - 1];
const ODD_ADDRESSES: readonly number[] = [0, 1, 511, 2 ** 47 - 512, 2 ** 48 - 1];

function madeUp(random: Random): Uint8Array {
  const isWild = random.chance(0.3);
  const count = random.below(random.pick([8, 60, 400]));
  const bytes = new Uint8Array(FAILURE_HEAD_BYTES + (count + 1) * EVENT_BYTES);
  const view = new DataView(bytes.buffer);
  for (let at = 0; at < FAILURE_HEAD_BYTES; at++) bytes[at] = random.below(256);
  const isOdd = () => isWild && random.chance(0.15);
  const sizeOf = () => (isOdd() ? random.pick(ODD_SIZES) : random.pick(SIZES));
  const addressOf = () =>
    isOdd() ? random.pick(ODD_ADDRESSES) : BASE + random.below(64) * (isWild && random.chance(0.25) ? 700 : 2 * MIB);
  for (let index = 0; index <= count; index++) {
    const row = FAILURE_HEAD_BYTES + index * EVENT_BYTES;
    const kind = index === count ? Oom : random.pick(KINDS);
    view.setFloat64(row + EventOffset.time_us, 1000 + index, true);
    view.setBigUint64(row + EventOffset.address, BigInt(kind === Oom ? random.below(2 ** random.below(31)) : addressOf()), true);
    view.setBigUint64(row + EventOffset.size, BigInt(sizeOf()), true);
    view.setUint8(row + EventOffset.kind, kind);
    view.setUint8(row + EventOffset.fields, EventField.Detail);
    view.setUint16(row + EventOffset.device, random.chance(0.2) ? 1 : 0, true);
    view.setInt32(row + EventOffset.stream, random.below(2), true);
    view.setInt32(row + EventOffset.pool, random.chance(0.2) ? -1 : random.below(2), true);
    view.setInt32(row + EventOffset.stack, random.below(4) - 1, true);
    view.setInt32(row + EventOffset.detail, random.below(10), true);
  }
  return bytes;
}

function rowCuts(input: Uint8Array): number[] {
  const cuts = [0];
  for (let at = FAILURE_HEAD_BYTES; at < input.length; at += EVENT_BYTES) cuts.push(at);
  return cuts;
}

const FIELDS = [EventOffset.address, EventOffset.size, EventOffset.kind, EventOffset.device, EventOffset.stack, EventOffset.detail];

/** One number of one row: another of the same kind, or an impossible one. */
function changeField({ bytes, cuts }: { bytes: Uint8Array; cuts: readonly number[] }, random: Random): Uint8Array {
  const changed = Uint8Array.from(bytes);
  const field = random.pick(FIELDS);
  const [to, from] = [random.pick(cuts) + field, random.pick(cuts) + field];
  if (Math.max(to, from) + 8 > bytes.length) return bytes;
  if (random.chance(0.5)) changed.copyWithin(to, from, from + 8);
  else for (let at = to; at < to + 8; at++) changed[at] = random.pick([0, 0, 1, 255]);
  return changed;
}
