// Fields of a ring's header, read from its bytes. Where they lie: abi/ring.ts.
import { GAUGE_NAMES, GAUGES_BYTES, type GaugeName, RING_DEVICES, RingOffset } from '../../abi/ring.ts';

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
