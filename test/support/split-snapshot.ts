// A plain PyTorch snapshot, as JSON, whose last request fails: six segments with a block and a hole each. Every hole is too
// small, all of them together are large enough. Each event has a call stack.
import { MIB } from '../../src/base/bytes.ts';

const BASE = 0x7f00_0000_0000;
const APART = 128 * MIB;
const SEGMENT = 100 * MIB;
export const SPLIT_SEGMENTS = 6;
export const SPLIT_BLOCK: number = 55 * MIB;
export const SPLIT_HOLE: number = SEGMENT - SPLIT_BLOCK;
export const SPLIT_REQUEST: number = 150 * MIB;
export const SPLIT_DEVICE_FREE: number = 10 * MIB;

const framesOf = (name: string, line: number) => [
  { name, filename: '/home/me/job/train.py', line },
  { name: 'main', filename: '/home/me/job/train.py', line: 3 },
];

export function splitSnapshot(): string {
  let time = 1_700_000_000_000_000;
  const entry = (action: string, addr: number, size: number, frames: object[], more: object = {}) => {
    time += 1000;
    return { ...{ action, addr, size, stream: 0, frames, time_us: time }, ...more };
  };
  const addresses = Array.from({ length: SPLIT_SEGMENTS }, (_, index) => BASE + index * APART);
  const [build, hidden, loss] = [framesOf('build', 10), framesOf('forward', 20), framesOf('loss', 30)];
  const events = [
    ...addresses.flatMap((at) => [entry('segment_alloc', at, SEGMENT, build), entry('alloc', at, SEGMENT, build)]),
    ...addresses.flatMap((at) => [entry('free_requested', at, SEGMENT, build), entry('free_completed', at, SEGMENT, build)]),
    ...addresses.map((at) => entry('alloc', at, SPLIT_BLOCK, hidden)),
    entry('oom', 0, SPLIT_REQUEST, loss, { device_free: SPLIT_DEVICE_FREE }),
  ];
  const segments = addresses.map((address) => ({
    ...{ device: 0, address, total_size: SEGMENT, allocated_size: SPLIT_BLOCK, active_size: SPLIT_BLOCK, requested_size: SPLIT_BLOCK },
    ...{ stream: 0, segment_type: 'large', segment_pool_id: [0, 0], is_expandable: false, frames: build },
    blocks: [
      { address, size: SPLIT_BLOCK, requested_size: SPLIT_BLOCK, state: 'active_allocated', frames: hidden },
      { address: address + SPLIT_BLOCK, size: SPLIT_HOLE, requested_size: 0, state: 'inactive', frames: [] },
    ],
  }));
  return JSON.stringify({ segments, device_traces: [events], allocator_settings: {} });
}
