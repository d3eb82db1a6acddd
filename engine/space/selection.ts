// A list of handles to be mapped side by side, built before any driver call is made. One at a time, reused.
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

/** False when the engine's own memory is exhausted. */
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
