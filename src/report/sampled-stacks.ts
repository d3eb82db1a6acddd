// Recordings in which only large requests have call stacks (`--stacks=large`, the default of `weir run`).
// Nothing in the file says so: it shows in the requests themselves, whichever way the job was started.
import { NO_STACK } from '../trace/symbols.ts';
import { EventKind, type Trace } from '../trace/trace.ts';

/** Large requests without a stack, as a share: those that found no room, or came while Python ended. */
const MOST_WITHOUT = 0.01;

const known = new WeakMap<Trace, number>();

/** The least request with a call stack, if all smaller ones have none because of their size; 0: size does not matter. */
export function stacksFrom(trace: Trace): number {
  let least = known.get(trace);
  if (least === undefined) {
    least = find(trace);
    known.set(trace, least);
  }
  return least;
}

function find({ events }: Trace): number {
  const { kind, size, stack, count } = events;
  let least = Number.POSITIVE_INFINITY;
  let withStack = 0;
  for (let event = 0; event < count; event++) {
    if (kind[event] !== EventKind.Alloc || stack[event] === NO_STACK) continue;
    withStack++;
    least = Math.min(least, size[event]!);
  }
  let smaller = 0;
  let without = 0;
  for (let event = 0; event < count; event++) {
    if (kind[event] !== EventKind.Alloc || stack[event] !== NO_STACK) continue;
    if (size[event]! < least) smaller++;
    else without++;
  }
  return withStack > 0 && smaller > 0 && without <= MOST_WITHOUT * withStack ? least : 0;
}
