// The allocations that are older than the first event, and how far their blocks reach.
// A block may be up to 1 MiB larger than its request: what is too small to be split off stays with it, unseen by the recording.
import type { LiveRange } from '../allocator/allocator.ts';
import { EventKind, type Trace } from '../trace/trace.ts';

export function liveAtStart(trace: Trace): LiveRange[] {
  const { allocations } = trace;
  const ends = latestEnds(trace);
  return Array.from({ length: allocations.liveAtStart }, (_, index) => ({
    address: allocations.address[index]!,
    requested: allocations.requested[index]!,
    end: ends[index]!,
  }));
}

/**
 * PyTorch gives out free memory from its beginning. So the first request that is served behind an old block, while that
 * block lives, begins where the block ends. A block that lives to the end stands in the snapshot with its size.
 */
function latestEnds({ allocations, allocationOf, events, endSegments = [] }: Trace): Float64Array {
  const count = allocations.liveAtStart;
  const ends = new Float64Array(count).fill(Number.POSITIVE_INFINITY);
  const order = Array.from({ length: count }, (_, index) => index).sort((a, b) => allocations.address[a]! - allocations.address[b]!);
  /** The last of the old blocks that begin at or before an address, or -1. */
  const lastFrom = (address: number) => {
    let low = 0;
    let high = count;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (allocations.address[order[middle]!]! <= address) low = middle + 1;
      else high = middle;
    }
    return low === 0 ? -1 : order[low - 1]!;
  };
  for (const { blocks } of endSegments) {
    for (const { address, size, state } of blocks) {
      const old = state === 'live' ? lastFrom(address) : -1;
      const isSame = old >= 0 && allocations.address[old] === address && allocations.freeRequestedEvent[old]! < 0;
      if (isSame) ends[old] = address + size;
    }
  }
  const isKnown = Uint8Array.from(ends, (end) => (end < Number.POSITIVE_INFINITY ? 1 : 0));
  for (let event = 0; event < events.count; event++) {
    if (events.kind[event] === EventKind.FreeRequested) {
      const freed = allocationOf[event]!;
      // From now on its memory may be given out together with what lies behind it.
      if (freed >= 0 && freed < count) isKnown[freed] = 1;
    } else if (events.kind[event] === EventKind.Alloc) {
      const address = events.address[event]!;
      const old = lastFrom(address);
      if (old < 0 || isKnown[old] === 1) continue;
      isKnown[old] = 1;
      if (address > allocations.address[old]!) ends[old] = address;
    }
  }
  return ends;
}
