// How far each stream has come. Releases have numbers, from one count for all streams. A ring of events per stream says which
// of its releases are over. A free range has the number of its release, but no event of its own.
import { countEvent, countQuery, countWait } from '../abi/counters';
import { eventQuery, eventRecord, streamWait } from '../abi/driver';
import { eventBytes, lend } from '../abi/settings';
import { larger } from '../base/units';
import {
  firstStream,
  NO_STREAM,
  NO_WAIT,
  newWait,
  RING,
  STREAM_RING,
  STREAM_SLOTS,
  Stream,
  setSettled,
  streamCount,
  streamOf,
  Wait,
} from '../records/streams';

/** Events of a stream are at most so many powers of two further apart than eventBytes. */
const MOST_SPARSE: u64 = 4;

let capturingCount: u32 = 0;
/** Captures of streams for which there was no record. */
let strangers: u32 = 0;
/** The number of the latest release. */
let clock: u64 = 0;
/** The latest release when a stream was last made to wait. */
let lastWait: u64 = 0;

/**
 * While a stream is captured into a graph, no event of any stream may be recorded, queried or waited for. Works without memory
 * of the engine's own, since nobody could stop the capture.
 */
export function setCapture(id: u32, capturing: bool): void {
  const stream = streamOf(id);
  if (stream === NO_STREAM || (!capturing && !stream.capturing)) {
    if (capturing) strangers++;
    else if (strangers > 0) strangers--;
    else return;
  } else {
    if (stream.capturing === capturing) return;
    stream.capturing = capturing;
  }
  if (capturing) capturingCount++;
  else capturingCount--;
}

export function isCapturing(): bool {
  return capturingCount !== 0;
}

/** Numbers a release of `bytes` on a stream. */
export function stamp(stream: Stream, bytes: u64): u64 {
  clock++;
  stream.since += bytes;
  if (streamCount <= 1) {
    stream.floor = clock;
    return clock;
  }
  // With a single stream nobody asks for its progress, so it needs no events.
  if (lend !== 0 && stream.since >= eventBytes << stream.sparse) mark(stream);
  return clock;
}

/** The number of the latest release of any stream. */
export function latestRelease(): u64 {
  return clock;
}

/** Releases since a stream was last made to wait for another. */
export function sinceWait(): u64 {
  return clock - lastWait;
}

/** Records an event that covers all releases of the stream so far. */
export function mark(stream: Stream): bool {
  if (capturingCount !== 0) return false;
  if (stream.newest - stream.oldest === RING) thin(stream);
  // If the driver fails, the next attempt comes only after eventBytes.
  stream.since = 0;
  if (eventRecord(stream.id, slotOf(stream, stream.newest)) < 0) return false;
  countEvent();
  store<u64>(coverOf(stream, stream.newest), clock);
  stream.newest++;
  return true;
}

/**
 * Drops every second event of a full ring, since the next one covers the same releases, and records fewer from now on. So the
 * events of a stream that is far behind lie further apart, but cover all of it. The oldest stays: no event would ever be over
 * otherwise.
 */
function thin(stream: Stream): void {
  let kept = stream.oldest + 1;
  for (let number = kept; number - stream.oldest < RING; number += 2) exchange(stream, number, kept++);
  stream.newest = kept;
  if (stream.sparse < MOST_SPARSE) stream.sparse++;
}

function exchange(stream: Stream, number: u32, other: u32): void {
  const slot = load<u8>(slotPlace(stream, number));
  store<u8>(slotPlace(stream, number), load<u8>(slotPlace(stream, other)));
  store<u8>(slotPlace(stream, other), slot);
  store<u64>(coverOf(stream, other), load<u64>(coverOf(stream, number)));
}

/** Queries events, oldest first, up to the first that is not over. */
export function poll(stream: Stream): void {
  if (capturingCount !== 0) return;
  while (stream.oldest !== stream.newest) {
    countQuery();
    if (eventQuery(slotOf(stream, stream.oldest)) !== 1) return;
    stream.done = load<u64>(coverOf(stream, stream.oldest));
    stream.oldest++;
    if (stream.newest - stream.oldest < RING / 4 && stream.sparse > 0) stream.sparse--;
  }
}

let round: u32 = 0;

/** Begins a round, in which `pollOnce` polls each stream at most once. */
export function beginRound(): void {
  round++;
}

export function pollOnce(stream: Stream): void {
  if (stream.asked === round) return;
  stream.asked = round;
  poll(stream);
}

export function pollStreams(): void {
  for (let stream = firstStream; stream !== NO_STREAM; stream = stream.next) poll(stream);
}

/** Whether work given to `later` now comes after the release `point` of `earlier`, without a new wait. */
export function isOrdered(later: Stream, earlier: Stream, point: u64): bool {
  return later === earlier || point <= earlier.done || point <= orderedUpTo(later, earlier);
}

/** The last release of `earlier` that work given to `later` now comes after, without a new wait. */
export function orderedUpTo(later: Stream, earlier: Stream): u64 {
  const wait = waitOf(later, earlier);
  return wait === NO_WAIT ? earlier.done : larger(earlier.done, wait.point);
}

/** Orders work given to `later` after that release, if necessary by a wait on the GPU. False if that is impossible. */
export function order(later: Stream, earlier: Stream, point: u64): bool {
  if (isOrdered(later, earlier, point)) return true;
  if (capturingCount !== 0) return false;
  let number = eventFor(earlier, point);
  if (number === earlier.newest) {
    if (!mark(earlier)) return false;
    number = earlier.newest - 1;
  }
  let wait = waitOf(later, earlier);
  if (wait === NO_WAIT) {
    wait = newWait();
    if (wait === NO_WAIT) return false;
    wait.lender = earlier;
    wait.next = later.waits;
    later.waits = wait;
  }
  if (streamWait(later.id, slotOf(earlier, number)) < 0) return false;
  countWait();
  lastWait = clock;
  wait.point = load<u64>(coverOf(earlier, number));
  return true;
}

/** Makes sure that an event of each stream covers all its releases so far. */
export function coverStreams(): void {
  for (let stream = firstStream; stream !== NO_STREAM; stream = stream.next) cover(stream, clock);
}

/** Makes sure that an event covers the release, so that a later query can tell whether it is over. */
export function cover(stream: Stream, point: u64): bool {
  return point <= stream.done || eventFor(stream, point) !== stream.newest || mark(stream);
}

/** The oldest event in flight that covers a release; if there is none, the number of the next event. */
function eventFor(stream: Stream, point: u64): u32 {
  let number = stream.oldest;
  let count = stream.newest - number;
  while (count > 0) {
    const half = count >>> 1;
    if (load<u64>(coverOf(stream, number + half)) < point) {
      number += half + 1;
      count -= half + 1;
    } else {
      count = half;
    }
  }
  return number;
}

function waitOf(later: Stream, earlier: Stream): Wait {
  let wait = later.waits;
  while (wait !== NO_WAIT && wait.lender !== earlier) wait = wait.next;
  return wait;
}

/** The slot of an event that is or will be in the ring. */
function slotOf(stream: Stream, number: u32): u32 {
  return stream.index * RING + load<u8>(slotPlace(stream, number));
}

function slotPlace(stream: Stream, number: u32): usize {
  return changetype<usize>(stream) + STREAM_SLOTS + <usize>(number % RING);
}

function coverOf(stream: Stream, number: u32): usize {
  return changetype<usize>(stream) + STREAM_RING + ((<usize>(number % RING)) << 3);
}

/** The host has waited for the device: all releases up to `point` are over. Later ones may not be. */
export function settleStreams(point: u64): void {
  setSettled(point);
  for (let stream = firstStream; stream !== NO_STREAM; stream = stream.next) {
    if (stream.done < point) stream.done = point;
    while (stream.oldest !== stream.newest && load<u64>(coverOf(stream, stream.oldest)) <= point) stream.oldest++;
    if (point === clock) stream.since = 0;
  }
}
