// Rings of shared memory, as the list of their patches: a ring is large and almost all zeros.
// A patch is u32 offset, u16 length, then bytes. The offset DRAIN lets the reader look at what is there so far.
import { EVENT_BYTES, EventOffset } from '../../../src/abi/events.ts';
import { RingOffset } from '../../../src/abi/ring.ts';
import { type Format, joined, type Subject } from '../mutate.ts';
import type { Random } from '../random.ts';

export const DRAIN = 0xffffffff;
const HEAD_BYTES = 6;

export interface Patch {
  readonly at: number;
  readonly bytes: Uint8Array;
}

export const RING: Format = { cuts: patchCuts, mutations: [changeHeader, changeHeader, changeRow, changeTable, drainAgain, moveWindow] };

/** The patches as far as they are whole. */
export function patchesOf(input: Uint8Array): Patch[] {
  const view = new DataView(input.buffer, input.byteOffset, input.length);
  return patchCuts(input).flatMap((at) => {
    if (at + HEAD_BYTES > input.length) return [];
    return [{ at: view.getUint32(at, true), bytes: input.subarray(at + HEAD_BYTES, at + HEAD_BYTES + view.getUint16(at + 4, true)) }];
  });
}

export function encodePatch({ at, bytes }: Patch): Uint8Array {
  const head = new Uint8Array(HEAD_BYTES);
  const view = new DataView(head.buffer);
  view.setUint32(0, at, true);
  view.setUint16(4, bytes.length, true);
  return joined(head, bytes);
}

/** The patches that turn zeros into `ring`, with words of four bytes. */
export function patchesFrom(ring: Uint8Array): Uint8Array {
  const found: Patch[] = [];
  for (let at = 0; at < ring.length; at += 4) {
    if (ring.subarray(at, at + 4).every((byte) => byte === 0)) continue;
    let end = at + 4;
    while (end < ring.length && end - at < 512 && ring.subarray(end, end + 4).some((byte) => byte !== 0)) end += 4;
    found.push({ at, bytes: ring.subarray(at, end) });
    at = end - 4;
  }
  return joined(...found.map(encodePatch));
}

const FIELDS = Object.values(RingOffset).filter((offset) => offset > 0);
const VALUES: readonly (readonly number[])[] = [
  [0, 0, 0, 0, 0, 0, 0, 0],
  [1, 0, 0, 0, 0, 0, 0, 0],
  [16, 0, 0, 0, 0, 0, 0, 0],
  [0xff, 0xff, 0xff, 0xff],
  [0xff, 0xff, 0xff, 0x7f],
  [0, 0, 0, 0x80],
  [0, 0, 0, 0, 0, 0, 0x20, 0],
  [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
  [0, 0, 4, 0],
  [0xf0, 0, 0, 0],
  [0xf1, 0, 0, 0],
  [0, 0, 0, 0, 0, 0, 0xf8, 0x7f],
];

function fieldValue(random: Random): Uint8Array {
  return random.chance(0.7) ? Uint8Array.from(random.pick(VALUES)) : Uint8Array.of(random.below(256), random.below(4), 0, 0);
}

function insert({ bytes, cuts }: Subject, random: Random, patch: Patch): Uint8Array {
  const at = random.chance(0.5) ? bytes.length : random.pick(cuts);
  return joined(bytes.subarray(0, at), encodePatch(patch), bytes.subarray(at));
}

function changeHeader(subject: Subject, random: Random): Uint8Array {
  return insert(subject, random, { at: random.pick(FIELDS) + 4 * random.pick([0, 0, 0, 1, 2, 8]), bytes: fieldValue(random) });
}

const ROW_FIELDS = Object.values(EventOffset);

/** Changes a field of one of the first rows, wherever the ring says that they are. */
function changeRow(subject: Subject, random: Random): Uint8Array {
  const rows = patchesOf(subject.bytes).filter(({ at, bytes }) => at > RingOffset.pools && bytes.length >= 20 && at !== DRAIN);
  if (rows.length === 0) return changeHeader(subject, random);
  const first = Math.min(...rows.map(({ at }) => at));
  return insert(subject, random, { at: first + random.below(8) * EVENT_BYTES + random.pick(ROW_FIELDS), bytes: fieldValue(random) });
}

/** Changes a number in what was written behind the header: strings, rows, call stacks. */
function changeTable(subject: Subject, random: Random): Uint8Array {
  const parts = patchesOf(subject.bytes).filter(({ at, bytes }) => at > RingOffset.pools && bytes.length >= 4 && at !== DRAIN);
  if (parts.length === 0) return changeHeader(subject, random);
  const { at, bytes } = random.pick(parts);
  return insert(subject, random, { at: at + 4 * random.below(Math.ceil(bytes.length / 4)), bytes: fieldValue(random) });
}

function drainAgain(subject: Subject, random: Random): Uint8Array {
  return insert(subject, random, { at: DRAIN, bytes: new Uint8Array(0) });
}

/** Declares more rows or strings than were written. */
function moveWindow(subject: Subject, random: Random): Uint8Array {
  const at = random.pick([
    ...[RingOffset.tail, RingOffset.string_bytes, RingOffset.dropped, RingOffset.capacity],
    ...[RingOffset.stack_count, RingOffset.frame_count, RingOffset.frame_string_bytes],
  ]);
  return insert(subject, random, { at, bytes: Uint8Array.of(random.below(80), random.pick([0, 0, 1, 4]), 0, 0, 0, 0, 0, 0) });
}

function patchCuts(input: Uint8Array): number[] {
  const cuts: number[] = [];
  for (let at = 0; at < input.length; ) {
    cuts.push(at);
    at += HEAD_BYTES + (at + HEAD_BYTES <= input.length ? input[at + 4]! | (input[at + 5]! << 8) : 0);
  }
  return cuts;
}
