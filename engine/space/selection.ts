// The handles selected for a stitch, in order. The list is complete before the first driver call. There is one, used again and
// again.
import { Handle } from '../records/handles';
import { regrow } from '../records/memory';

let list: usize = 0;
let room: u32 = 0;
export let selectedCount: u32 = 0;
export let selectedBytes: u64 = 0;

export function clearSelection(): void {
  selectedCount = 0;
  selectedBytes = 0;
}

export function selectedAt(index: u32): Handle {
  return changetype<Handle>(load<usize>(list + ((<usize>index) << 2)));
}

/** Adds a handle. False if the engine's own memory is exhausted. */
export function selectHandle(handle: Handle): bool {
  if (selectedCount === room) {
    const larger: u32 = room === 0 ? 64 : room << 1;
    const grown = regrow(list, (<usize>room) << 2, (<usize>larger) << 2);
    if (grown === 0) return false;
    list = grown;
    room = larger;
  }
  store<usize>(list + ((<usize>selectedCount) << 2), changetype<usize>(handle));
  selectedCount++;
  selectedBytes += handle.bytes;
  return true;
}
