// Emergency swap-outs in a replay, as `weir run --swap auto` makes them: if a request finds no memory, optimizer state is swapped
// out, no more than the request needs. It comes back when an optimizer begins.
import type { Allocator } from '../allocator/allocator.ts';
import { MIB } from '../base/bytes.ts';
import type { Trace } from '../trace/trace.ts';
import type { OngoingAllocations } from './replay.ts';

/** Blocks that may be swapped out, and when. */
export interface SwappableState {
  /** In the order in which they are swapped out. */
  readonly allocations: readonly number[];
  /** Events at which an optimizer has ended. From the first on, state may be swapped out. */
  readonly ends: ReadonlySet<number>;
  /** Events at which an optimizer begins: it needs its state. */
  readonly begins: ReadonlySet<number>;
}

/** As python/weir_gpu/swap/relief.py: at least this much, and this part of the request. Then the request is tried again. */
const LEAST_BYTES = MIB;
const PART = 1 / 4;

export class EmergencySwaps {
  /** Requests that failed and were tried again. */
  relieved = 0;
  private readonly state: SwappableState;
  private readonly trace: Trace;
  private readonly blocks: OngoingAllocations['blocks'];
  private readonly allocator: Allocator;
  private away: number[] = [];
  /** Optimizers hold their state while they run, and before the first has ended nothing is known of it. */
  private mayLeave = false;

  constructor(state: SwappableState, trace: Trace, { blocks }: OngoingAllocations, allocator: Allocator) {
    this.state = state;
    this.trace = trace;
    this.blocks = blocks;
    this.allocator = allocator;
  }

  /** Before a request is made again: whether some memory was freed for it. */
  relieve(size: number): boolean {
    if (!this.mayLeave) return false;
    const { allocator, blocks } = this;
    const { requested } = this.trace.allocations;
    const wanted = Math.max(LEAST_BYTES, Math.floor(size * PART));
    const chosen: number[] = [];
    let bytes = 0;
    for (const allocation of this.state.allocations) {
      if (bytes >= wanted) break;
      if (blocks[allocation]! < 0) continue;
      chosen.push(allocation);
      bytes += requested[allocation]!;
    }
    for (const allocation of chosen.toReversed()) {
      const block = blocks[allocation]!;
      allocator.free(block);
      allocator.complete(block);
      blocks[allocation] = -1;
    }
    this.away.push(...chosen);
    if (chosen.length > 0) this.relieved++;
    return chosen.length > 0;
  }

  /** The run has come to this event. */
  reach(event: number, request: (size: number, stream: number, pool: number, event: number) => number): void {
    if (this.state.ends.has(event)) this.mayLeave = true;
    if (!this.state.begins.has(event)) return;
    this.mayLeave = false;
    const { requested, stream, pool, freeRequestedEvent, freeCompletedEvent } = this.trace.allocations;
    for (const allocation of this.away.sort((a, b) => a - b)) {
      const freed = freeRequestedEvent[allocation]! >= 0 ? freeRequestedEvent[allocation]! : freeCompletedEvent[allocation]!;
      if (freed >= 0 && freed < event) continue;
      this.blocks[allocation] = request(requested[allocation]!, stream[allocation]!, pool[allocation]!, event);
    }
    this.away = [];
  }
}
