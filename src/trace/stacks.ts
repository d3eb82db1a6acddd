// The stack of an allocation, whether it was allocated within the recording or before it.
import { endsOf } from './ends.ts';
import { NO_STACK } from './symbols.ts';
import type { Trace } from './trace.ts';

/** Of allocations older than the recording, the start state may know it, or the end state, if they live on until then. */
export function stackOf(trace: Trace, allocation: number): number {
  const { allocations, events } = trace;
  const event = allocations.allocEvent[allocation]!;
  if (event >= 0) return events.stack[event]!;
  const atStart = allocations.startStack?.[allocation] ?? NO_STACK;
  if (atStart !== NO_STACK || endsOf(trace).of[allocation]! >= 0) return atStart;
  return stacksAtEnd(trace).get(allocations.address[allocation]!) ?? NO_STACK;
}

/** Whether nothing is known of an allocation but that it was live when the recording began. */
export function isOlder(trace: Trace, allocation: number): boolean {
  return trace.allocations.allocEvent[allocation]! < 0 && !trace.startIsWhole && stackOf(trace, allocation) === NO_STACK;
}

const endStacks = new WeakMap<Trace, ReadonlyMap<number, number>>();

/** Stacks of live blocks by address. */
function stacksAtEnd(trace: Trace): ReadonlyMap<number, number> {
  let stacks = endStacks.get(trace);
  if (!stacks) {
    const blocks = (trace.endSegments ?? []).flatMap((segment) => segment.blocks);
    stacks = new Map(
      blocks.filter(({ state, stack }) => state === 'live' && stack !== NO_STACK).map(({ address, stack }) => [address, stack]),
    );
    endStacks.set(trace, stacks);
  }
  return stacks;
}
