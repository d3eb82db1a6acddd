// Memory for the columns of a trace: a thread's own, or shared, so that several threads hold one recording together.

export type ColumnMemory = (bytes: number) => ArrayBufferLike;

export const ownMemory: ColumnMemory = (bytes) => new ArrayBuffer(bytes);

/** Browsers have it only in pages that are isolated from all others. */
export const sharedMemory: ColumnMemory = (bytes) => new SharedArrayBuffer(bytes);

export function octets(memory: ColumnMemory, count: number): Uint8Array {
  return new Uint8Array(memory(count));
}

export function integers(memory: ColumnMemory, count: number): Int32Array {
  return new Int32Array(memory(count * 4));
}

export function doubles(memory: ColumnMemory, count: number): Float64Array {
  return new Float64Array(memory(count * 8));
}
