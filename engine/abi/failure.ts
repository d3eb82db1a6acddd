// Why the last request failed: the driver call, and the state of memory at that moment.
import { Call } from './numbers';

/** The driver call that failed last during the current request. */
export let failedCall: u32 = Call.None;

export function noteFailure(call: u32): void {
  failedCall = call;
}

export function clearFailure(): void {
  failedCall = Call.None;
}

// State at the last failed request; abi/statistics.ts numbers these values.
export let askedThen: u64 = 0;
export let allocatedThen: u64 = 0;
export let reservedThen: u64 = 0;
export let callThen: u32 = 0;
// In the arena of that request; `elsewhereThen`: on the other streams of its pool.
export let freeThen: u64 = 0;
export let largestThen: u64 = 0;
export let assemblableThen: u64 = 0;
export let elsewhereThen: u64 = 0;

export function keepTotals(asked: u64, allocated: u64, reserved: u64): void {
  askedThen = asked;
  allocatedThen = allocated;
  reservedThen = reserved;
  callThen = failedCall;
}

export function keepArena(free: u64, largest: u64, assemblable: u64, elsewhere: u64): void {
  freeThen = free;
  largestThen = largest;
  assemblableThen = assemblable;
  elsewhereThen = elsewhere;
}
