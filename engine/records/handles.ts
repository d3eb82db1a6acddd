// Handles and the lists that regions keep of them, in order of address. An entry has all that a survey needs of a handle:
// where it ends, and where to write what was found.
import { fresh, give, takeClear } from './memory';
import { Finding, HANDLE_ENTRY, Handle, NO_HANDLE, Orphan, Range, Region } from './nodes';

let spareFindings: Finding = changetype<Finding>(0);
const SLAB_FINDINGS: usize = 256;

/** A handle with room for what surveys find; NO_HANDLE when the engine's own memory is exhausted. */
export function newHandle(): Handle {
  if (changetype<usize>(spareFindings) === 0) {
    const slab = fresh(SLAB_FINDINGS * offsetof<Finding>());
    if (slab === 0) return NO_HANDLE;
    for (let index = SLAB_FINDINGS; index > 0; index--) recycle(changetype<Finding>(slab + (index - 1) * offsetof<Finding>()));
  }
  const handle = changetype<Handle>(takeClear(offsetof<Handle>()));
  if (handle === NO_HANDLE) return NO_HANDLE;
  handle.finding = spareFindings;
  spareFindings = spareFindings.next;
  return handle;
}

function recycle(finding: Finding): void {
  finding.survey = 0;
  finding.next = spareFindings;
  spareFindings = finding;
}

export function dropHandle(handle: Handle): void {
  recycle(handle.finding);
  give(changetype<usize>(handle), offsetof<Handle>());
}

/** Turns the record of a handle into that of an orphan, which is smaller: so this cannot fail. */
export function orphanOf(handle: Handle): Orphan {
  recycle(handle.finding);
  const id = handle.id;
  const bytes = handle.bytes;
  const orphan = changetype<Orphan>(changetype<usize>(handle));
  orphan.id = id;
  orphan.bytes = bytes;
  return orphan;
}

export function dropOrphan(orphan: Orphan): void {
  give(changetype<usize>(orphan), offsetof<Handle>());
}

export function handleAt(region: Region, index: u32): Handle {
  return changetype<Handle>(load<usize>(region.handles + <usize>index * HANDLE_ENTRY, 8));
}

export function handleEnd(region: Region, index: u32): u64 {
  return load<u64>(region.handles + <usize>index * HANDLE_ENTRY);
}

export function findingAt(region: Region, index: u32): Finding {
  return changetype<Finding>(load<usize>(region.handles + <usize>index * HANDLE_ENTRY, 12));
}

/** Adds a handle behind the region's others, for which there is room. */
export function addHandle(region: Region, handle: Handle): void {
  const entry = region.handles + <usize>region.handleCount * HANDLE_ENTRY;
  store<u64>(entry, handle.address + handle.bytes);
  store<usize>(entry, changetype<usize>(handle), 8);
  store<usize>(entry, changetype<usize>(handle.finding), 12);
  region.handleCount++;
}

/** Index of the handle that holds `address`, or of the first one after it. */
export function handleIndex(region: Region, address: u64): u32 {
  let low: u32 = 0;
  let count = region.handleCount;
  // A comparison that only chooses a number costs less than a branch nobody can foresee.
  while (count > 0) {
    const half = count >>> 1;
    const below = handleEnd(region, low + half) <= address;
    low = select(low + half + 1, low, below);
    count = select(count - half - 1, half, below);
  }
  return low;
}

/** Keeps in every handle whether it is part of a block: what makes the test of a stitched block cheap. */
export function markBusy(range: Range, busy: bool): void {
  const region = range.region;
  const end = range.address + range.size;
  for (let index = handleIndex(region, range.address); index < region.handleCount; index++) {
    const handle = handleAt(region, index);
    if (handle.address >= end) break;
    handle.busy = busy;
  }
}
