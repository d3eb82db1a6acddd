// The ring that a training process writes and its supervisor reads, byte by byte: native/runtime/ring.h in TypeScript.
// test/run/ring-layout.test.ts compares the two.

export const RING_MAGIC = 'WEIRRING';
export const RING_VERSION = 1;
export const RING_DEVICES = 16;
export const RING_STREAMS = 240;
export const RING_POOLS = 240;
export const RING_STRING_BYTES: number = 256 * 1024;

export const RingState = { Active: 1, Closed: 2 } as const;

/** Where the fields of the header lie. */
export const RingOffset = {
  magic: 0,
  version: 8,
  bytes: 12,
  strings_at: 16,
  rows_at: 20,
  capacity: 24,
  pid: 28,
  rank: 32,
  local_rank: 36,
  world_size: 40,
  state: 44,
  started_us: 48,
  allocator: 56,
  torch_version: 72,
  tail: 128,
  dropped: 136,
  gaps: 144,
  string_bytes: 152,
  head: 192,
  plan_generation: 256,
  gauges: 320,
  stream_count: 4416,
  pool_count: 4480,
  streams: 4544,
  pools: 35264,
} as const;
export const ALLOCATOR_BYTES = 16;
export const TORCH_VERSION_BYTES = 32;
export const GAUGES_BYTES = 256;
export const RING_HEADER_BYTES: number = RingOffset.pools + RING_DEVICES * RING_POOLS * 16;

/** The gauges of one GPU, in order, a u64 each. */
export const GAUGE_NAMES = [
  'in_use',
  'total',
  'limit',
  'live',
  'peak_live',
  'allocated',
  'peak_allocated',
  'reserved',
  'peak_reserved',
  'outside',
  'allocations',
  'frees',
  'ooms',
  'retries',
  'driver_calls',
  'driver_ns',
  'waits',
  'borrows',
  'stitches',
  'largest_free',
  'planned_hits',
  'planned_misses',
  'swapped_out',
  'swapped_in',
  'swap_stalls',
  'swap_stall_ns',
  'driver_failures',
  'plans',
  'plans_refused',
] as const;
export type GaugeName = (typeof GAUGE_NAMES)[number];
/** Levels of one GPU as the process keeps them; bytes, counts or nanoseconds. */
export type Gauges = Readonly<Record<GaugeName, number>>;

/** The gauges of the GPUs that the process has used. */
export function readGauges(header: DataView): Map<number, Gauges> {
  const devices = new Map<number, Gauges>();
  for (let device = 0; device < RING_DEVICES; device++) {
    const at = RingOffset.gauges + device * GAUGES_BYTES;
    if (u64(header, at) !== 1) continue;
    const gauges = {} as Record<GaugeName, number>;
    GAUGE_NAMES.forEach((name, index) => {
      gauges[name] = u64(header, at + index * 8);
    });
    devices.set(device, gauges);
  }
  return devices;
}

/** Rounded beyond 2^53: whoever needs it exact checks that it is not. */
export function u64(view: DataView, at: number): number {
  return view.getUint32(at + 4, true) * 2 ** 32 + view.getUint32(at, true);
}

/** A C string in a field of fixed size; what is no text becomes a question mark. */
export function textAt(view: DataView, at: number, bytes: number): string {
  const field = new Uint8Array(view.buffer, view.byteOffset + at, bytes);
  const end = field.indexOf(0);
  return Buffer.from(field.subarray(0, end < 0 ? bytes : end))
    .toString('latin1')
    .replace(/[^ -~]/g, '?');
}
