// What `weir run --swap auto` can swap out when memory runs short: optimizer state, while no optimizer runs.
// Its swap plan cannot make a larger value fit: the steps that are watched before there is a plan run without one.
import { CATEGORY_NAMES, PhaseMark } from '../abi/events.ts';
import { MIB } from '../base/bytes.ts';
import type { SwappableState } from '../replay/emergency-swaps.ts';
import { EventKind, type Trace } from '../trace/trace.ts';
import type { Synthesis } from './synthesis.ts';

export interface SwappedState {
  /** The blocks that can be swapped out. */
  readonly allocations: readonly number[];
  readonly bytes: number;
}

/** Smaller tensors are not swapped (python/weir_gpu/swap). */
const LEAST_SWAPPED = MIB;

/** Undefined: the run does not tell what its memory holds. */
export function swappedState({ events, allocationOf, allocations }: Trace): SwappedState | undefined {
  if (!events.detail) return undefined;
  const state = new Set<number>();
  let hasTold = false;
  for (let event = 0; event < events.count; event++) {
    if (events.kind[event] !== EventKind.Category) continue;
    hasTold = true;
    const allocation = allocationOf[event]!;
    if (allocation < 0) continue;
    // What was state may have been told to be something else later.
    if (CATEGORY_NAMES[events.detail[event]!] === 'optimizerState') state.add(allocation);
    else state.delete(allocation);
  }
  if (!hasTold) return undefined;
  const large = [...state].filter((allocation) => allocations.requested[allocation]! >= LEAST_SWAPPED);
  return { allocations: large, bytes: large.reduce((sum, allocation) => sum + allocations.requested[allocation]!, 0) };
}

/** The same state in a synthesised run, and where optimizers begin and end there. */
export function swappableIn({ events, symbols }: Trace, { origin }: Pick<Synthesis, 'origin'>, state: SwappedState): SwappableState {
  const own = new Set(state.allocations);
  const found: number[] = [];
  origin.forEach((from, allocation) => {
    if (own.has(from)) found.push(allocation);
  });
  const begins = new Set<number>();
  const ends = new Set<number>();
  let isInOptimizer = false;
  for (let event = 0; events.detail && event < events.count; event++) {
    if (events.kind[event] !== EventKind.Mark) continue;
    const text = symbols.strings[events.detail[event]!];
    if (text === PhaseMark.optimizer) {
      begins.add(event);
      isInOptimizer = true;
    } else if (isInOptimizer && (text === PhaseMark.step || text === PhaseMark.forward)) {
      ends.add(event);
      isInOptimizer = false;
    }
  }
  return { allocations: found, begins, ends };
}
