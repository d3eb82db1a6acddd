// The file by which a plan reaches a running process, DIR/<pid>.<generation>.plan; native/runtime/device_plan.c reads it.
//
//   0 "WEIRPLAN"   8 u32 version   12 u32 GPU   16 u64 stream handle   24 u32 requests   28 u32 turns   32 u64 footprint
//   40 a u64 size per request, then per request `turns` u64 offsets; little-endian
import { LIVE_UNIT } from '../../trace/summary.ts';

export const PLAN_MAGIC = 'WEIRPLAN';
export const PLAN_VERSION = 1;
export const PLAN_HEADER_BYTES = 40;
export const MOST_REQUESTS: number = 1 << 20;

export interface ProcessPlan {
  readonly device: number;
  /** As the process names it. */
  readonly stream: bigint;
  /** Bytes of each request of the step, in order. */
  readonly sizes: ArrayLike<number>;
  readonly turns: number;
  /** `offsets[request * turns + turn]`. */
  readonly offsets: ArrayLike<number>;
  readonly footprint: number;
}

export function encodePlan(plan: ProcessPlan): Uint8Array {
  const { sizes, turns, offsets } = plan;
  const bytes = new Uint8Array(PLAN_HEADER_BYTES + 8 * (sizes.length + offsets.length));
  const view = new DataView(bytes.buffer);
  for (let index = 0; index < PLAN_MAGIC.length; index++) bytes[index] = PLAN_MAGIC.charCodeAt(index);
  view.setUint32(8, PLAN_VERSION, true);
  view.setUint32(12, plan.device, true);
  view.setBigUint64(16, plan.stream, true);
  view.setUint32(24, sizes.length, true);
  view.setUint32(28, turns, true);
  let at = 32;
  const write = (value: number) => {
    view.setUint32(at, value % 2 ** 32, true);
    view.setUint32(at + 4, Math.floor(value / 2 ** 32), true);
    at += 8;
  };
  write(Math.ceil(plan.footprint / LIVE_UNIT) * LIVE_UNIT);
  for (let index = 0; index < sizes.length; index++) write(sizes[index]!);
  for (let index = 0; index < offsets.length; index++) write(offsets[index]!);
  return bytes;
}
