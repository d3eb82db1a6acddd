// Levels of one GPU that a process keeps in its ring. A u64 each, in this order: append, and bump the ring's version.
import type { Entry } from './table.ts';

export interface Gauge extends Entry {
  readonly unit: 'bytes' | 'count' | 'nanoseconds' | 'flag' | 'number';
}

/** Words of a GPU's gauges; those behind the last name are zero. */
export const GAUGE_WORDS = 32;

export const GAUGES: readonly Gauge[] = [
  gauge('in_use', 'flag', '1 once the process has used this GPU.'),
  gauge('total', 'bytes', 'Memory of the GPU.'),
  gauge('limit', 'bytes', 'Memory that the process may hold; 0: no limit.'),
  gauge('live', 'bytes', 'Requests that are live, each rounded up to the block unit.'),
  gauge('peak_live', 'bytes', 'Peak of live.'),
  gauge('allocated', 'bytes', 'Blocks given out.'),
  gauge('peak_allocated', 'bytes', 'Peak of allocated.'),
  gauge('reserved', 'bytes', 'Memory held from the driver, private pools included.'),
  gauge('peak_reserved', 'bytes', 'Peak of reserved.'),
  gauge('outside', 'bytes', "Part of reserved that PyTorch's own allocator holds for private pools."),
  gauge('allocations', 'count', 'Requests served.'),
  gauge('frees', 'count', 'Blocks freed.'),
  gauge('ooms', 'count', 'Requests that failed.'),
  gauge('retries', 'count', 'Requests that were tried again.'),
  gauge('driver_calls', 'count', "The driver's memory calls."),
  gauge('driver_ns', 'nanoseconds', "Time inside the driver's memory calls."),
  gauge('waits', 'count', 'Waits of streams for memory they borrowed.'),
  gauge('borrows', 'count', 'Requests served with memory of another stream.'),
  gauge('stitches', 'count', 'Requests served by a new stitch.'),
  gauge('largest_free', 'bytes', 'The largest free range, as of the last request that failed.'),
  gauge('planned_hits', 'count', 'Requests that a plan served.'),
  gauge('planned_misses', 'count', 'Requests that a plan in use did not serve.'),
  gauge('swapped_out', 'bytes', 'Swapped out to the host so far.'),
  gauge('swapped_in', 'bytes', 'Swapped in from the host so far.'),
  gauge('swap_stalls', 'count', 'Waits of the compute stream for a swap.'),
  gauge('swap_stall_ns', 'nanoseconds', 'Time of those waits.'),
  gauge('driver_failures', 'count', 'Calls that the driver refused.'),
  gauge('plans', 'count', 'Plans installed.'),
  gauge('plans_refused', 'count', 'Plans refused.'),
  gauge('steps', 'count', 'Training steps whose end the swapping hooks saw; 0 where nobody counts.'),
  gauge('swap_settled', 'flag', '1: swaps have settled, so that places may be planned for the steps.'),
];

function gauge(name: string, unit: Gauge['unit'], doc: string): Gauge {
  return { name, unit, doc };
}
