// A small snapshot with every key that PyTorch 2.5 to 2.14 added, in the form in which 2.14 writes it.
import { type PickleDict, type PickleValue, Tuple } from './pickle-writer.ts';

const MIB = 2 ** 20;
export const DEFAULT_SEGMENT = 0x7f0000000000;
export const GRAPH_SEGMENT = 0x7f0010000000;
export const HOST_BLOCK = 0x7e0000000000;
/** The text of an annotation is anything. */
export const HOSTILE_NOTE = '</script><img src=x onerror=alert(1)>\u001b[2J';

const DEFAULT_POOL = new Tuple(0, 0);
const GRAPH_POOL = new Tuple(1, 0);
const user = {
  name: 'forward',
  filename: '/home/me/model.py',
  line: 12,
  fx_node_op: 'call_function',
  fx_node_name: 'mm',
  fx_node_target: 'aten.mm',
  fx_original_trace: 'a\nb',
};
const library = { name: 'step', filename: '/x/site-packages/torch/optim/adam.py', line: 3 };

/** A line of Python's `traceback.format_stack()`. */
const forwardLine = (file: string, line: number, name: string) => `  File "${file}", line ${line}, in ${name}\n    x = f(x)\n`;

let time = 0;
export function entry(action: string, addr: number, size: number, pool: Tuple = DEFAULT_POOL, more: PickleDict = {}): PickleDict {
  return {
    action,
    addr,
    size,
    stream: 0,
    time_us: 1_700_000_000_000_000 + time++,
    compile_context: 'N/A',
    user_metadata: '',
    pool_id: pool,
    ...more,
  };
}

export function block(address: number, size: number, state: string, more: PickleDict = {}): PickleDict {
  return { address, size, requested_size: state === 'inactive' ? 0 : size, state, frames: [], ...more };
}

/** One block each, as PyTorch writes pinned host memory. */
export function hostSegment(address: number, size: number, state: string, requested: number = size): PickleDict {
  const active = state === 'inactive' ? 0 : size;
  return {
    device: -1,
    address,
    total_size: size,
    allocated_size: active,
    active_size: active,
    requested_size: requested,
    stream: 0,
    segment_type: 'small',
    segment_pool_id: DEFAULT_POOL,
    is_expandable: false,
    frames: [],
    blocks: [block(address, size, state, { requested_size: requested })],
  };
}

export function newestSnapshot(): Record<string, PickleValue> {
  time = 0;
  const pinned = 8 * MIB;
  return {
    segments: [
      {
        device: 0,
        address: DEFAULT_SEGMENT,
        total_size: 20 * MIB,
        allocated_size: 8 * MIB,
        active_size: 8 * MIB,
        requested_size: 8 * MIB,
        stream: 0,
        segment_type: 'large',
        segment_pool_id: DEFAULT_POOL,
        is_expandable: false,
        frames: [],
        blocks: [block(DEFAULT_SEGMENT, 8 * MIB, 'active_allocated'), block(DEFAULT_SEGMENT + 8 * MIB, 12 * MIB, 'inactive')],
      },
    ],
    device_traces: [
      [
        entry('segment_alloc', DEFAULT_SEGMENT, 20 * MIB),
        entry('alloc', DEFAULT_SEGMENT, 8 * MIB, DEFAULT_POOL, { frames: [library, user], user_metadata: 'weights' }),
        entry('annotate', DEFAULT_SEGMENT, 8 * MIB, DEFAULT_POOL, { user_metadata: HOSTILE_NOTE }),
        // Although 12 MiB are free in the default pool, a capture takes a segment of its own.
        entry('segment_alloc', GRAPH_SEGMENT, 20 * MIB, GRAPH_POOL),
        entry('alloc', GRAPH_SEGMENT, 8 * MIB, GRAPH_POOL, {
          frames: [library],
          forward_frames: [forwardLine('/home/me/train.py', 40, 'main'), forwardLine('/home/me/model.py', 7, 'attention')],
        }),
        entry('free_requested', GRAPH_SEGMENT, 8 * MIB, GRAPH_POOL),
        entry('free_completed', GRAPH_SEGMENT, 8 * MIB, GRAPH_POOL),
        entry('segment_free', GRAPH_SEGMENT, 20 * MIB, GRAPH_POOL),
      ],
    ],
    allocator_settings: {
      PYTORCH_CUDA_ALLOC_CONF: 'pinned_free_catch_all:True,throw_on_cudamalloc_oom:False,large_segment_size_mb:20',
      max_split_size: -1,
      garbage_collection_threshold: 0,
      expandable_segments: false,
      pinned_num_register_threads: 1,
      release_lock_on_cudamalloc: false,
      pinned_use_cuda_host_register: false,
      graph_capture_record_stream_reuse: false,
      max_round_threshold: -1,
      max_cached_size: -1,
      roundup_power2_divisions: { '1': 0, '2': 0 },
    },
    external_annotations: [{ stage: 'START', name: 'step', device: 0, time_us: 5 }],
    // 2 blocks at the end, a third one given back; 24 MiB is the peak, 16 MiB of it in use.
    host_segments: [hostSegment(HOST_BLOCK, pinned, 'active_allocated'), hostSegment(HOST_BLOCK + pinned, pinned / 2, 'inactive')],
    host_traces: [
      entry('segment_alloc', HOST_BLOCK, pinned),
      entry('alloc', HOST_BLOCK, pinned),
      entry('segment_alloc', HOST_BLOCK + pinned, pinned / 2),
      entry('alloc', HOST_BLOCK + pinned, pinned / 2),
      entry('free_requested', HOST_BLOCK + pinned, pinned / 2),
      entry('free_completed', HOST_BLOCK + pinned, pinned / 2),
      entry('segment_alloc', HOST_BLOCK + 2 * pinned, pinned),
      entry('alloc', HOST_BLOCK + 2 * pinned, pinned),
      entry('free_requested', HOST_BLOCK + 2 * pinned, pinned),
      entry('free_completed', HOST_BLOCK + 2 * pinned, pinned),
      entry('segment_free', HOST_BLOCK + 2 * pinned, pinned),
    ],
  };
}
