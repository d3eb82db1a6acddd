// Handles, and the list of handles that each region keeps in order of address.
// An entry of the list has all that a survey reads: the end of the handle and the finding to write.
import { fresh, give, takeClear } from './memory';
import { Range, Region } from './nodes';

/** An entry of a region's list of handles: end (u64), handle (u32), finding (u32). */
export const HANDLE_ENTRY: usize = 16;

@unmanaged
export class Handle {
  address: u64 = 0;
  bytes: u64 = 0;
  /** The driver's name for the handle. */
  id: u64 = 0;
  /** The last release of any of its bytes that it knows of (records/releases.ts). */
  released: u64 = 0;
  region: Region = changetype<Region>(0);
  /** In how many stitches it is mapped. */
  stitchCount: u32 = 0;
  finding: Finding = changetype<Finding>(0);
  /** Scratch for code that builds a list of handles. */
  mark: u32 = 0;
  /** While the handle is lent to plans: the range that covers it. */
  lent: Range = changetype<Range>(0);
  /** Preset gmlake: the handle is part of a block. */
  busy: bool = false;
}

/**
 * What the last survey found about a handle. Valid if `survey` is the number of that survey. Findings are apart from handles,
 * four to a cache line, because surveys read many of them.
 */
@unmanaged
export class Finding {
  survey: u32 = 0;
  /** The free range that covers the start of the handle. */
  head: Range = changetype<Range>(0);
  /** The free range that covers its end. If the handle is wholly free, both are the same range. */
  tail: Range = changetype<Range>(0);
  /** Of an unused finding: the next one. */
  next: Finding = changetype<Finding>(0);
}

/** A handle without an address that the driver refused to free. emptyCache() tries again. */
@unmanaged
export class Orphan {
  id: u64 = 0;
  bytes: u64 = 0;
  next: Orphan = changetype<Orphan>(0);
}

export const NO_HANDLE: Handle = changetype<Handle>(0);
export const NO_ORPHAN: Orphan = changetype<Orphan>(0);

let spareFindings: Finding = changetype<Finding>(0);
const SLAB_FINDINGS: usize = 256;

/** A new handle with a finding; NO_HANDLE if the engine's own memory is exhausted. */
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

/** Turns a handle into an orphan. An orphan's record is smaller, so this cannot fail. */
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

/** Adds a handle behind the region's last. The list has room for it. */
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
  // A select costs less than a branch that cannot be predicted.
  while (count > 0) {
    const half = count >>> 1;
    const below = handleEnd(region, low + half) <= address;
    low = select(low + half + 1, low, below);
    count = select(count - half - 1, half, below);
  }
  return low;
}

/** Notes in every handle of a range whether it is part of a block, for preset gmlake. */
export function markBusy(range: Range, busy: bool): void {
  const region = range.region;
  const end = range.address + range.size;
  for (let index = handleIndex(region, range.address); index < region.handleCount; index++) {
    const handle = handleAt(region, index);
    if (handle.address >= end) break;
    handle.busy = busy;
  }
}
