// The records of streams, of the waits between them and of blocks used by several, and the list of all streams.
// streams/progress.ts says what the numbers mean.
import { give, takeClear } from './memory';

/** What is known of a stream's progress; see streams.ts. */
@unmanaged
export class Stream {
  next: Stream = changetype<Stream>(0);
  id: u32 = 0;
  index: u32 = 0;
  capturing: bool = false;
  /** The round of questions it was last asked in. */
  asked: u32 = 0;
  /** Releases up to this point are over: a query has said so. */
  done: u64 = 0;
  /** Bytes released since the newest event. */
  since: u64 = 0;
  /** Events in flight: those numbered from `oldest` to before `newest`, each in slot (number modulo the ring). */
  oldest: u32 = 0;
  newest: u32 = 0;
  /** What this stream waits for anyway. */
  waits: Wait = changetype<Wait>(0);
  // The ring follows: a u64 per slot, the last point its event covers.
}

/** Events a stream may have in flight. */
export const RING: u32 = 32;
export const STREAM_RING: usize = offsetof<Stream>() + ((8 - (offsetof<Stream>() & 7)) & 7);
const STREAM_SIZE: usize = STREAM_RING + <usize>RING * 8;

/** A stream comes after another's releases up to a point, by a wait made earlier. */
@unmanaged
export class Wait {
  next: Wait = changetype<Wait>(0);
  lender: Stream = changetype<Stream>(0);
  point: u64 = 0;
}

/** A stream that was recorded on a block, and from the block's release on the point that it must pass. */
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
  return changetype<Stream>(takeClear(STREAM_SIZE));
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

export let firstStream: Stream = NO_STREAM;
export let streamCount: u32 = 0;

/** The record of a stream, made when first asked for; NO_STREAM when the engine's own memory is exhausted. */
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
