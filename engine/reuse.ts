// Free runs inside views: memory that lies side by side already, though not in the arena's own addresses.
import { Arena, NO_HANDLE, NO_VIEW, pieceHandle, pieceOffset, View } from './nodes';
import { freeHeadOf, freeTailOf } from './survey';

/** What the last search found. */
export let runView: View = NO_VIEW;
export let runStart: u64 = 0;
export let runBytes: u64 = 0;
/** The view whose free end is longest and can be extended to the size looked for. */
export let openView: View = NO_VIEW;
export let openBytes: u64 = 0;

/** Finds the shortest free run of at least `size` in the arena's views, and the view best to extend. Needs the survey. */
export function searchViews(arena: Arena, size: u64): void {
  runView = NO_VIEW;
  runBytes = u64.MAX_VALUE;
  openView = NO_VIEW;
  openBytes = 0;
  for (let view = arena.newestView; view !== NO_VIEW; view = view.older) {
    if (!view.usable) continue;
    const open = searchView(view, size);
    if (open > openBytes && open < size && view.mapped - open + size <= view.reserved) {
      openView = view;
      openBytes = open;
    }
  }
}

/** Looks at the runs of one view; gives the length of the one at its end. */
function searchView(view: View, size: u64): u64 {
  let start: u64 = 0;
  let length: u64 = 0;
  for (let index: u32 = 0; index < view.count; index++) {
    const handle = pieceHandle(view, index);
    if (handle === NO_HANDLE) {
      consider(view, start, length, size);
      length = 0;
      continue;
    }
    const head = freeHeadOf(handle);
    if (length === 0) start = pieceOffset(view, index);
    if (head === handle.bytes) {
      length += head;
      continue;
    }
    consider(view, start, length + head, size);
    length = freeTailOf(handle);
    start = pieceOffset(view, index) + handle.bytes - length;
  }
  consider(view, start, length, size);
  return length;
}

function consider(view: View, start: u64, length: u64, size: u64): void {
  if (length < size || length >= runBytes) return;
  runView = view;
  runStart = start;
  runBytes = length;
}
