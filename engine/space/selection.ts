// A list of handles to be mapped side by side, built before any driver call is made. One at a time, reused.
import { give, take } from '../records/memory';
import { Handle } from '../records/nodes';

let list: usize = 0;
let room: u32 = 0;
export let plannedCount: u32 = 0;
export let plannedBytes: u64 = 0;

export function clearPlan(): void {
  plannedCount = 0;
  plannedBytes = 0;
}

export function planned(index: u32): Handle {
  return changetype<Handle>(load<usize>(list + ((<usize>index) << 2)));
}

/** False when the engine's own memory is exhausted. */
export function planHandle(handle: Handle): bool {
  if (plannedCount === room) {
    const larger: u32 = room === 0 ? 64 : room << 1;
    const grown = take((<usize>larger) << 2);
    if (grown === 0) return false;
    memory.copy(grown, list, (<usize>room) << 2);
    give(list, (<usize>room) << 2);
    list = grown;
    room = larger;
  }
  store<usize>(list + ((<usize>plannedCount) << 2), changetype<usize>(handle));
  plannedCount++;
  plannedBytes += handle.bytes;
  return true;
}
