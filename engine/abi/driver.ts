// The driver: what the engine asks of the device it runs on. Implemented by whoever instantiates the engine.
// Every call says by its result whether it worked (0 or more) or not (a negative code); none may throw or trap.

// The name of the module that these functions are imported from.
declare module 'env';

/** Takes `bytes` of physical memory; gives its handle, or a negative code. */
export declare function create(bytes: u64): i64;
/** Gives a handle back; it is mapped nowhere any more. */
export declare function release(handle: u64): i32;

/** Takes a range of addresses without memory; gives its start, or a negative code. Address 0 is never given. */
export declare function reserve(bytes: u64): i64;
/** Gives back exactly what one `reserve` gave; nothing is mapped there any more. */
export declare function unreserve(address: u64, bytes: u64): i32;

/** Makes the whole of a handle appear at `address`; unreadable until access is set. */
export declare function map(address: u64, handle: u64): i32;
/** Makes whole mappings readable and writable. */
export declare function setAccess(address: u64, bytes: u64): i32;
/**
 * Undoes whole mappings, all of them or none. Waits first for whatever work of the device may still use them: the engine
 * unmaps only what is free, but free on a stream means that its last use is enqueued, not that it is over.
 */
export declare function unmap(address: u64, bytes: u64): i32;

// Events: a slot is one of a small ring of each stream, made by the driver when first recorded, and recorded again and again.

/** Marks, in slot `slot`, everything that `stream` has been given to do so far. */
export declare function eventRecord(stream: u32, slot: u32): i32;
/** 1 if what the slot marks is over, 0 if not yet. */
export declare function eventQuery(slot: u32): i32;
/** Work given to `stream` from now on begins only after what the slot marks now; the host does not wait. */
export declare function streamWait(stream: u32, slot: u32): i32;
