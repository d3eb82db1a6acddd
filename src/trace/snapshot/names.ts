// The strings of PyTorch's snapshot format, each with a fixed id: keys, actions and states.
// Keys come first, because a set of keys is a 32-bit mask.
import { EventKind } from '../trace.ts';

/** String ids of the keys of rows. The id is also the key's bit in a mask. */
export const Key = {
  action: 0,
  addr: 1,
  device_free: 2,
  size: 3,
  stream: 4,
  time_us: 5,
  compile_context: 6,
  user_metadata: 7,
  frames: 8,
  pool_id: 9,
  name: 10,
  filename: 11,
  line: 12,
  device: 13,
  address: 14,
  total_size: 15,
  segment_type: 16,
  segment_pool_id: 17,
  is_expandable: 18,
  blocks: 19,
  state: 20,
  requested_size: 21,
  history: 22,
  real_size: 23,
  stage: 24,
  forward_frames: 25,
} as const;

export const KEY_NAMES: readonly string[] = Object.keys(Key);

/** Actions of trace entries, with the kinds of events they stand for. */
export const ACTIONS: readonly (readonly [string, EventKind])[] = [
  ['alloc', EventKind.Alloc],
  ['free_requested', EventKind.FreeRequested],
  ['free_completed', EventKind.FreeCompleted],
  ['segment_alloc', EventKind.SegmentAlloc],
  ['segment_free', EventKind.SegmentFree],
  ['segment_map', EventKind.SegmentMap],
  ['segment_unmap', EventKind.SegmentUnmap],
  ['oom', EventKind.Oom],
  ['snapshot', EventKind.Snapshot],
  ['annotate', EventKind.Annotate],
];

const WORDS = [
  'active_allocated',
  'active_pending_free',
  'active_awaiting_free',
  'inactive',
  'small',
  'N/A',
  '',
  'START',
  'END',
  'segments',
  'device_traces',
  'traces',
  'allocator_settings',
  'external_annotations',
  'total',
  'frac',
  'host_segments',
  'host_traces',
  'pinned_host_memory',
] as const;

/** Every known string, at its id. */
export const KNOWN_NAMES: readonly string[] = [...KEY_NAMES, ...ACTIONS.map(([action]) => action), ...WORDS];

/** Event kind by string id of the action; 0 for other strings. */
export const KIND_OF_ACTION: Uint8Array = new Uint8Array(KNOWN_NAMES.length);
for (const [action, kind] of ACTIONS) KIND_OF_ACTION[KNOWN_NAMES.indexOf(action)] = kind;

/** String ids of values, and of keys outside rows. */
export const Word: { readonly [word in (typeof WORDS)[number]]: number } = Object.fromEntries(
  WORDS.map((word) => [word, KNOWN_NAMES.indexOf(word)]),
) as { [word in (typeof WORDS)[number]]: number };
