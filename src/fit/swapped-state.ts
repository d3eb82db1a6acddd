// What `weir run --swap auto` does when memory runs short: optimizer state leaves the GPU between the steps of its optimizer.
// Its swap plan cannot make a larger value fit: the steps that are watched before there is a plan run without one.
import { CATEGORY_NAMES, PhaseMark } from '../abi/events.ts';
import { MIB } from '../base/bytes.ts';
import { EventKind, type Trace } from '../trace/trace.ts';

export interface SwappedState {
  /** The blocks that leave. */
  readonly allocations: readonly number[];
  readonly bytes: number;
  /** Events at which optimizers have ended: state leaves. */
  readonly leaves: ReadonlySet<number>;
  /** Events at which an optimizer begins: state comes back. */
  readonly returns: ReadonlySet<number>;
}

/** Smaller tensors are not swapped (python/weir_gpu/swap). */
const LEAST_SWAPPED = MIB;

/** Undefined: the run does not tell what its memory holds, or where its optimizers run. */
export function swappedState(trace: Trace): SwappedState | undefined {
  const { events, symbols, allocationOf, allocations } = trace;
  if (!events.detail) return undefined;
  const state = new Set<number>();
  const leaves = new Set<number>();
  const returns = new Set<number>();
  let hasTold = false;
  let isInOptimizer = false;
  for (let event = 0; event < events.count; event++) {
    const kind = events.kind[event]!;
    if (kind === EventKind.Category) {
      hasTold = true;
      const allocation = allocationOf[event]!;
      if (allocation < 0) continue;
      // What was state may have been told to be something else later.
      if (CATEGORY_NAMES[events.detail[event]!] === 'optimizerState') state.add(allocation);
      else state.delete(allocation);
    } else if (kind === EventKind.Mark) {
      const text = symbols.strings[events.detail[event]!];
      if (text === PhaseMark.optimizer) {
        returns.add(event);
        isInOptimizer = true;
      } else if (isInOptimizer && (text === PhaseMark.step || text === PhaseMark.forward)) {
        leaves.add(event);
        isInOptimizer = false;
      }
    }
  }
  if (!hasTold) return undefined;
  const large = [...state].filter((allocation) => allocations.requested[allocation]! >= LEAST_SWAPPED);
  return { allocations: large, bytes: large.reduce((sum, allocation) => sum + allocations.requested[allocation]!, 0), leaves, returns };
}
