// Where memory comes from: the calls of a GPU driver, counted and timed.
// Every failure is a return value, never an exception, and leaves the backend as it was: NO_MEMORY, or false.

/** What a call gives back when the backend cannot do it. Addresses and handles are never negative. */
export const NO_MEMORY = -1;

/** The driver's calls: physical memory by handle, addresses apart from it, and the classic pair that does both. */
export interface Backend {
  readonly name: string;
  /** Physical bytes held, each piece rounded up to its granularity. */
  readonly usedBytes: number;
  readonly ledger: DriverLedger;

  /** cudaMalloc: memory with addresses of its own. */
  malloc(bytes: number): number;
  free(address: number, bytes: number): void;

  /** cuMemAddressReserve: addresses without memory, at `wanted` if given and possible. */
  reserve(bytes: number, wanted?: number): number;
  unreserve(address: number, bytes: number): boolean;

  /** cuMemCreate: memory without addresses. */
  create(bytes: number): number;
  release(handle: number): boolean;

  /** cuMemMap: the whole of a handle appears at `address`; unreadable until access is set. */
  map(address: number, handle: number): boolean;
  setAccess(address: number, bytes: number): boolean;
  /** cuMemUnmap: whole mappings, all of those in the range or none. */
  unmap(address: number, bytes: number): boolean;
}

/** Events of streams: a slot marks what a stream had been given to do when it was recorded last. */
export interface StreamEvents {
  /** cuEventRecord: false if it cannot be, and then nothing has changed. */
  record(stream: number, slot: number): boolean;
  /** cuEventQuery: whether what the slot marks is over; false too where nobody can tell. */
  isDone(slot: number): boolean;
  /** cuStreamWaitEvent: work given to the stream from now on comes after what the slot marks now. The host does not wait. */
  wait(stream: number, slot: number): boolean;
  /** cuCtxSynchronize: the host waits until all streams have nothing left to do. */
  synchronize(): void;
}

export const DRIVER_CALLS = ['create', 'release', 'reserve', 'map', 'setAccess', 'unmap', 'malloc', 'free'] as const;
export type DriverCall = (typeof DRIVER_CALLS)[number];

/** How often each driver call was made and what it cost. `reserve` counts the freeing of addresses too. */
export class DriverLedger {
  timeUs = 0;
  /** Time by call, microseconds. */
  readonly times: Record<DriverCall, number> = { create: 0, release: 0, reserve: 0, map: 0, setAccess: 0, unmap: 0, malloc: 0, free: 0 };
  readonly calls: Record<DriverCall, number> = { create: 0, release: 0, reserve: 0, map: 0, setAccess: 0, unmap: 0, malloc: 0, free: 0 };

  charge(call: DriverCall, microseconds: number): void {
    this.calls[call]++;
    this.times[call] += microseconds;
    this.timeUs += microseconds;
  }
}
