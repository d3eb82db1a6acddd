// The queue of blocks that completed later than their free: their addresses, for a caller that records when memory came free.
// Nothing is queued unless the setting queueCompleted is set.
import { queueCompleted } from '../abi/settings';
import { regrow } from '../records/memory';
import { Range } from '../records/nodes';

const ENTRY: usize = 8;
const FIRST_ROOM: usize = 64;

let entries: usize = 0;
let room: usize = 0;
let count: usize = 0;

/** Queues a parked block that is complete. If the engine's own memory is exhausted, the entry is lost rather than the request. */
export function noteCompleted(block: Range): void {
  if (queueCompleted === 0 || (count === room && !enlarge())) return;
  store<u64>(entries + count * ENTRY, block.va);
  count++;
}

export function completedCount(): usize {
  return count;
}

/** Empties the queue. Gives where the addresses lie, oldest first; they stay there until the next request. */
export function drainCompleted(): usize {
  count = 0;
  return entries;
}

function enlarge(): bool {
  const grown = room === 0 ? FIRST_ROOM : room << 1;
  const list = regrow(entries, room * ENTRY, grown * ENTRY);
  if (list === 0) return false;
  entries = list;
  room = grown;
  return true;
}
