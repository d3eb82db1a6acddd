// Blocks that completed later than their free, for a caller who records when memory came free: the addresses they had.
// Nothing is queued unless the setting says that somebody drains.
import { queueCompleted } from '../abi/settings';
import { regrow } from '../records/memory';
import { Range } from '../records/nodes';

const ENTRY: usize = 8;
const FIRST_ROOM: usize = 64;

let entries: usize = 0;
let room: usize = 0;
let count: usize = 0;

/** Notes that a parked block is complete. Without memory for the note it is lost: a recording is not worth a failure. */
export function noteCompleted(block: Range): void {
  if (queueCompleted === 0 || (count === room && !enlarge())) return;
  store<u64>(entries + count * ENTRY, block.va);
  count++;
}

export function completedCount(): usize {
  return count;
}

/** Where the addresses lie, oldest first; the queue is empty afterwards, and they stay there until the next request. */
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
