// What live memory at one moment is for, by name: parameters, gradients, activations and so on.
import type { Trace } from '../trace/trace.ts';

/** Bytes by category, which add up to what is live after the event; undefined: categories are not known. */
export function categoryBytesAt(_trace: Trace, _event: number): ReadonlyMap<string, number> | undefined {
  return undefined;
}
