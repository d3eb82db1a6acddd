// The file by which a plan reaches a running process, DIR/<pid>.<generation>.plan. Its header: abi/ring.ts.
// A u64 size per request follows, then per request an offset (u64) for each turn; little-endian.
import { Format } from '../../abi/formats.ts';
import { PROCESS_PLAN_HEADER_BYTES, ProcessPlanOffset } from '../../abi/ring.ts';
import { LIVE_UNIT } from '../../trace/summary.ts';

export interface ProcessPlan {
  readonly device: number;
  /** The handle as the process knows it. */
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
  const bytes = new Uint8Array(PROCESS_PLAN_HEADER_BYTES + 8 * (sizes.length + offsets.length));
  const view = new DataView(bytes.buffer);
  const { magic, version } = Format.processPlan;
  for (let index = 0; index < magic.length; index++) bytes[ProcessPlanOffset.magic + index] = magic.charCodeAt(index);
  view.setUint32(ProcessPlanOffset.version, version, true);
  view.setUint32(ProcessPlanOffset.device, plan.device, true);
  view.setBigUint64(ProcessPlanOffset.stream, plan.stream, true);
  view.setUint32(ProcessPlanOffset.count, sizes.length, true);
  view.setUint32(ProcessPlanOffset.turns, turns, true);
  // The last field of the header; sizes and offsets come right after it.
  let at: number = ProcessPlanOffset.footprint;
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
