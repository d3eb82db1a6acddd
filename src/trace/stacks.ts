// The stack of an allocation, whether it was allocated within the recording or is part of its start state.
import { NO_STACK } from './symbols.ts';
import type { Trace } from './trace.ts';

export function stackOf({ allocations, events }: Trace, allocation: number): number {
  const event = allocations.allocEvent[allocation]!;
  return event >= 0 ? events.stack[event]! : (allocations.startStack?.[allocation] ?? NO_STACK);
}

/** Whether nothing is known of an allocation but that it was live when the recording began. */
export function isOlder({ allocations, startIsWhole }: Trace, allocation: number): boolean {
  return allocations.allocEvent[allocation]! < 0 && !startIsWhole;
}
