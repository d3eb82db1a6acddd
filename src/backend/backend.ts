// The interface of a backend, where memory comes from: the calls of a GPU driver, counted and timed.
// A call that fails returns NO_MEMORY or false, never throws, and leaves the backend unchanged.
import { MIB } from '../base/bytes.ts';

/** Returned by a call that found no memory. Addresses and handles are never negative. */
export const NO_MEMORY = -1;

/** Physical memory comes in multiples of this size on every NVIDIA GPU so far. All backends round to it. */
export const GRANULARITY: number = 2 * MIB;

/** The driver's calls: physical memory by handle, address ranges, and the classic malloc and free. */
export interface Backend {
  readonly name: string;
  /** Physical bytes held. Each allocation is rounded up to the granularity. */
  readonly usedBytes: number;
  readonly ledger: DriverLedger;

  /** cudaMalloc: memory at an address that the driver chooses. */
  malloc(bytes: number): number;
  free(address: number, bytes: number): void;

  /** cuMemAddressReserve: an address range without memory, at `wanted` if that is possible. */
  reserve(bytes: number, wanted?: number): number;
  unreserve(address: number, bytes: number): boolean;

  /** cuMemCreate: physical memory without an address. */
  create(bytes: number): number;
  release(handle: number): boolean;

  /** cuMemMap: maps the whole handle at `address`. It cannot be read until access is set. */
  map(address: number, handle: number): boolean;
  setAccess(address: number, bytes: number): boolean;
  /** cuMemUnmap: unmaps every mapping in the range. If the range cuts a mapping in two, it unmaps none. */
  unmap(address: number, bytes: number): boolean;
}

/** CUDA events by slot. A slot marks the work that its stream held when it was recorded last. */
export interface StreamEvents {
  /** cuEventRecord. If it returns false, the slot is unchanged. */
  record(stream: number, slot: number): boolean;
  /** cuEventQuery: true if the marked work is done. False can also mean that the backend does not know. */
  isDone(slot: number): boolean;
  /** cuStreamWaitEvent: later work of the stream runs after the work that the slot marks now. The host does not wait. */
  wait(stream: number, slot: number): boolean;
  /** cuCtxSynchronize: the host waits until all streams are idle. */
  synchronize(): void;
  /** Waits before memory is given back take no time and order no streams, because a recording has such waits already. */
  readonly isSimulated?: true;
}

export type DriverCall = 'create' | 'release' | 'reserve' | 'map' | 'setAccess' | 'unmap' | 'malloc' | 'free';

/** Count and time of each driver call. `reserve` includes unreserve. */
export class DriverLedger {
  timeUs = 0;
  /** Microseconds by call. */
  readonly times: Record<DriverCall, number> = { create: 0, release: 0, reserve: 0, map: 0, setAccess: 0, unmap: 0, malloc: 0, free: 0 };
  readonly calls: Record<DriverCall, number> = { create: 0, release: 0, reserve: 0, map: 0, setAccess: 0, unmap: 0, malloc: 0, free: 0 };

  charge(call: DriverCall, microseconds: number): void {
    this.calls[call]++;
    this.times[call] += microseconds;
    this.timeUs += microseconds;
  }
}
