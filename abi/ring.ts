// Two files of a run that C and TypeScript share, byte by byte; little-endian.
// The ring is mapped and written by a process and read by its supervisor. The process plan goes the other way.
import { GAUGE_WORDS } from './gauges.ts';
import { type Field, KIB, MIB, type Numbered } from './table.ts';

/** GPUs of a process that are recorded; streams and pools of each that get a number. */
export const RING_DEVICES = 16;
export const RING_STREAMS = 240;
export const RING_POOLS = 240;
export const RING_STRING_BYTES: number = 256 * KIB;
/** Events that may wait to be read, unless a run says otherwise. */
export const RING_ROWS: number = 256 * KIB;
/** What users may ask for. */
export const LEAST_RING_ROWS: number = KIB;
export const MOST_RING_ROWS: number = 16 * KIB * KIB;

/** Call stacks of a process: nodes of a prefix tree, frames, and bytes of their names. */
export const RING_STACKS: number = 256 * KIB;
export const RING_FRAMES: number = 64 * KIB;
export const RING_FRAME_STRING_BYTES: number = 3 * MIB;
/** Frames of one stack; of a deeper one the innermost are kept. */
export const RING_STACK_DEPTH = 250;
/** Bytes of a name or a path; longer ones are cut. */
export const RING_FRAME_STRING_MOST: number = 4 * KIB;

export const RING_STATES: readonly Numbered[] = [
  { name: 'Active', number: 1, doc: 'The process writes.' },
  { name: 'Closed', number: 2, doc: 'The process has ended in order.' },
];

export const RING_HEADER: readonly Field[] = [
  { name: 'magic', type: 'char', dims: [8], doc: 'Of the ring format.' },
  { name: 'version', type: 'u32', doc: 'Of the ring format.' },
  { name: 'bytes', type: 'u32', doc: 'Of the file.' },
  { name: 'strings_at', type: 'u32', doc: 'Where strings begin: a u32 length and bytes each, one after the other. Number 1 is the first.' },
  { name: 'rows_at', type: 'u32', doc: 'Where rows begin. Row n lies in slot n mod capacity.' },
  { name: 'capacity', type: 'u32', doc: 'Rows that fit, a power of two.' },
  { name: 'pid', type: 'u32', doc: 'Of the process.' },
  { name: 'rank', type: 'i32', doc: 'Of the process in its job; -1: not set.' },
  { name: 'local_rank', type: 'i32', doc: 'On its machine; -1: not set.' },
  { name: 'world_size', type: 'i32', doc: 'Ranks of the job; -1: not set.' },
  { name: 'state', type: 'u32', doc: 'A ring state.' },
  { name: 'started_us', type: 'f64', doc: 'Microseconds since 1970.' },
  { name: 'allocator', type: 'char', dims: [16], doc: 'Its name.' },
  { name: 'torch_version', type: 'char', dims: [32], doc: 'As PyTorch writes it.' },
  {
    name: 'stacks_at',
    type: 'u32',
    doc: 'Where the tables of call stacks begin, one after the other: stacks, frames, their strings; 0: there are none.',
  },
  { name: 'stack_room', type: 'u32', doc: 'Stacks that fit.' },
  { name: 'frame_room', type: 'u32', doc: 'Frames that fit.' },
  { name: 'frame_string_room', type: 'u32', doc: 'Bytes of strings that fit.' },
  { name: 'zero_1', type: 'u8', dims: [8], doc: 'Zero.' },
  { name: 'tail', type: 'u64', doc: 'Written by the process: rows ever written.' },
  { name: 'dropped', type: 'u64', doc: 'Written by the process: rows it had to drop.' },
  { name: 'gaps', type: 'u64', doc: 'Written by the process: how often it began to drop rows.' },
  { name: 'string_bytes', type: 'u64', doc: 'Written by the process: used bytes of the string area. Strings before this are whole.' },
  { name: 'stack_count', type: 'u64', doc: 'Written by the process: stacks, of which all frames are there.' },
  { name: 'frame_count', type: 'u64', doc: 'Written by the process: frames, of which all strings are there.' },
  {
    name: 'frame_string_bytes',
    type: 'u64',
    doc: 'Written by the process: used bytes of the strings of frames. Strings before this are whole.',
  },
  { name: 'stacks_lost', type: 'u64', doc: 'Written by the process: requests whose stack found no room in the tables.' },
  { name: 'head', type: 'u64', doc: 'Written by the reader: rows it has taken.' },
  { name: 'zero_3', type: 'u8', dims: [56], doc: 'Zero.' },
  {
    name: 'plan_generation',
    type: 'u32',
    doc: 'Written by the reader: counts up when the next file DIR/<pid>.<generation>.plan is ready.',
  },
  { name: 'zero_4', type: 'u8', dims: [60], doc: 'Zero.' },
  { name: 'gauges', type: 'gauges', dims: [RING_DEVICES], doc: 'Levels of each GPU.' },
  { name: 'stream_count', type: 'u32', dims: [RING_DEVICES], doc: 'Streams named so far.' },
  { name: 'pool_count', type: 'u32', dims: [RING_DEVICES], doc: 'Pools named so far.' },
  { name: 'streams', type: 'u64', dims: [RING_DEVICES, RING_STREAMS], doc: 'Handles of streams, by number.' },
  { name: 'pools', type: 'u64', dims: [RING_DEVICES, RING_POOLS, 2], doc: 'Ids of pools, by number.' },
];

/** A call stack: one frame on top of another stack. */
export const RING_STACK: readonly Field[] = [
  { name: 'parent', type: 'i32', doc: 'The stack that called this frame, a smaller number; -1: none.' },
  { name: 'frame', type: 'u32', doc: 'Number of the frame.' },
];

export const RING_FRAME: readonly Field[] = [
  { name: 'name', type: 'u32', doc: 'Of the function: number of a string of frames, 0: none.' },
  { name: 'filename', type: 'u32', doc: 'Likewise.' },
  { name: 'line', type: 'i32', doc: 'From 1 on; 0: not known.' },
];

/** Behind it: a u64 size per request, then per request an offset (u64) for each turn. */
export const PROCESS_PLAN_HEADER: readonly Field[] = [
  { name: 'magic', type: 'char', dims: [8], doc: 'Of the format.' },
  { name: 'version', type: 'u32', doc: 'Of the format.' },
  { name: 'device', type: 'u32', doc: 'Number of the GPU.' },
  { name: 'stream', type: 'u64', doc: 'Handle of the stream, as the process names it.' },
  { name: 'count', type: 'u32', doc: 'Requests of the step.' },
  { name: 'turns', type: 'u32', doc: 'Offsets of each request.' },
  { name: 'footprint', type: 'u64', doc: 'Bytes that the plan needs.' },
];
export const PLAN_MOST_REQUESTS: number = MIB;
export const PLAN_MOST_TURNS = 16;
export const PLAN_MOST_FOOTPRINT: number = 2 ** 40;

export const GAUGES_BYTES: number = 8 * GAUGE_WORDS;
