// Records of streams, of waits between them and of uses of blocks by other streams; the list of all streams.
// streams/progress.ts says what the numbers mean.
import { give, takeClear } from './memory';

/** A stream and its progress. */
@unmanaged
export class Stream {
  next: Stream = changetype<Stream>(0);
  id: u32 = 0;
  index: u32 = 0;
  capturing: bool = false;
  /** The last round in which it was polled (streams/uses.ts). */
  asked: u32 = 0;
  /** All releases up to this number are over. */
  done: u64 = 0;
  /** Handles may not know of releases up to this number (records/releases.ts). */
  floor: u64 = 0;
  /** Bytes released since the newest event. */
  since: u64 = 0;
  /** Events are this many powers of two further apart than eventBytes. */
  sparse: u64 = 0;
  /** Events in flight are numbered from `oldest` to before `newest`. Event n has place n modulo RING of the ring. */
  oldest: u32 = 0;
  newest: u32 = 0;
  /** Waits that this stream has already made. */
  waits: Wait = changetype<Wait>(0);
  // The ring follows: for each place the last release that its event covers (u64), then the slot of each place (u8).
}

/** Most events of a stream in flight. */
export const RING: u32 = 32;
export const STREAM_RING: usize = offsetof<Stream>() + ((8 - (offsetof<Stream>() & 7)) & 7);
export const STREAM_SLOTS: usize = STREAM_RING + <usize>RING * 8;
const STREAM_SIZE: usize = STREAM_SLOTS + <usize>RING;

/** A stream waits for all releases of another up to a number. */
@unmanaged
export class Wait {
  next: Wait = changetype<Wait>(0);
  lender: Stream = changetype<Stream>(0);
  point: u64 = 0;
}

/** A use by a stream, of a block that another stream owns or of a stitch. `point`: the release that the stream must pass. */
@unmanaged
export class Use {
  next: Use = changetype<Use>(0);
  lane: Stream = changetype<Stream>(0);
  point: u64 = 0;
}

export const NO_STREAM: Stream = changetype<Stream>(0);
export const NO_WAIT: Wait = changetype<Wait>(0);
export const NO_USE: Use = changetype<Use>(0);

function newStream(): Stream {
  const stream = changetype<Stream>(takeClear(STREAM_SIZE));
  if (stream === NO_STREAM) return NO_STREAM;
  for (let place: usize = 0; place < <usize>RING; place++) store<u8>(changetype<usize>(stream) + STREAM_SLOTS + place, <u8>place);
  return stream;
}

export function newWait(): Wait {
  return changetype<Wait>(takeClear(offsetof<Wait>()));
}

export function newUse(): Use {
  return changetype<Use>(takeClear(offsetof<Use>()));
}

export function dropUse(use: Use): void {
  give(changetype<usize>(use), offsetof<Use>());
}

/** The host has waited for the device, which has finished all releases up to this number. */
export let settled: u64 = 0;

export function setSettled(point: u64): void {
  if (point > settled) settled = point;
}

export let firstStream: Stream = NO_STREAM;
export let streamCount: u32 = 0;

/** The record of a stream, made on first use; NO_STREAM if the engine's own memory is exhausted. */
export function streamOf(id: u32): Stream {
  for (let stream = firstStream; stream !== NO_STREAM; stream = stream.next) if (stream.id === id) return stream;
  const made = newStream();
  if (made === NO_STREAM) return NO_STREAM;
  made.id = id;
  made.index = streamCount++;
  made.next = firstStream;
  firstStream = made;
  return made;
}
