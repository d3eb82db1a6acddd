// The driver: functions that allocate and map memory. The caller of the engine implements them.
// A negative result means failure. A call that fails changes nothing. No call may throw or trap.

// WebAssembly imports these functions from a module of this name.
declare module 'env';

/** Allocates physical memory. Gives its handle. */
export declare function create(bytes: u64): i64;
/** Frees a handle that is mapped nowhere. */
export declare function release(handle: u64): i32;

/** Reserves addresses without memory. Gives the first address, which is never 0. */
export declare function reserve(bytes: u64): i64;
/** Frees addresses that one call of `reserve` gave. Nothing is mapped there. */
export declare function unreserve(address: u64, bytes: u64): i32;

/** Maps a whole handle at `address`. The memory cannot be accessed before setAccess. */
export declare function map(address: u64, handle: u64): i32;
/** Makes whole mappings readable and writable. */
export declare function setAccess(address: u64, bytes: u64): i32;
/**
 * Removes whole mappings, all of them or none. The GPU has finished with them. Only without the setting unmapFinished, the
 * driver first waits for GPU work that may still use them.
 */
export declare function unmap(address: u64, bytes: u64): i32;

// Events. Each stream has a small ring of slots. The driver makes the event of a slot when it is first recorded.

/** Records an event in `slot`. It covers all work given to `stream` so far. */
export declare function eventRecord(stream: u32, slot: u32): i32;
/** 1 if the work that the event covers is over, else 0. */
export declare function eventQuery(slot: u32): i32;
/** Makes later work of `stream` wait on the GPU for the event of the slot. The host does not wait. */
export declare function streamWait(stream: u32, slot: u32): i32;
