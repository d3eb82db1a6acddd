// Events of a recording: their kinds and their layout, in rings and in .weir files alike. Never renumber, only add.
import type { Entry, Field, Numbered } from './table.ts';

export const EVENT_KINDS: readonly Numbered[] = [
  { name: 'Alloc', number: 1, doc: 'A request was served: address, requested size.' },
  { name: 'FreeRequested', number: 2, doc: 'The program freed an allocation; other streams may still be using it.' },
  { name: 'FreeCompleted', number: 3, doc: 'The allocator may give the memory out again.' },
  { name: 'SegmentAlloc', number: 4, doc: 'The allocator took a segment from the driver.' },
  { name: 'SegmentFree', number: 5, doc: 'The allocator gave a segment back.' },
  { name: 'SegmentMap', number: 6, doc: 'Memory was mapped into an expandable segment.' },
  { name: 'SegmentUnmap', number: 7, doc: 'Memory was unmapped from an expandable segment.' },
  { name: 'Oom', number: 8, doc: 'A request failed: `size` is the rounded request, `address` the free bytes that the driver told.' },
  { name: 'Snapshot', number: 9, doc: 'The program took a snapshot: `size` is the active bytes.' },
  {
    name: 'RecordStream',
    number: 10,
    doc: 'The allocation at `address` is used on another stream: `detail` is that stream. `.weir` only.',
  },
  { name: 'EmptyCache', number: 11, doc: 'The program called empty_cache(). `.weir` only.' },
  { name: 'Settings', number: 12, doc: "The allocator's settings changed: `detail` is the settings string. `.weir` only." },
  { name: 'Limit', number: 13, doc: 'The memory fraction changed: `size` is the limit in bytes. `.weir` only.' },
  { name: 'Operator', number: 14, doc: 'An operator ran from `timeUs` for `size` microseconds; `detail` is its name. `.weir` only.' },
  { name: 'Read', number: 15, doc: 'The operator before reads the storage at `address`. `.weir` only.' },
  { name: 'Write', number: 16, doc: 'The operator before writes the storage at `address`. `.weir` only.' },
  { name: 'Mark', number: 17, doc: 'A mark set by the program (a step, a phase): `detail` is its name. `.weir` only.' },
  {
    name: 'Reserved',
    number: 18,
    doc: "All memory held from the driver from now on is `size`. Weir's own engine writes it, since it has no segments. Since format 1.1, `.weir` only.",
  },
  {
    name: 'Annotate',
    number: 19,
    doc: 'The program named the live allocation at `address`: `metadata` is the text. Since format 1.2; PyTorch 2.14 and later.',
  },
  {
    name: 'Category',
    number: 20,
    doc: 'What the live allocation at `address` holds: `detail` is a category. The last word on an allocation counts for all its life. Since format 1.3, `.weir` only.',
  },
];

/** What memory holds. */
export const CATEGORIES: readonly Numbered[] = [
  { name: 'unknown', number: 0, doc: 'None of the others, or nobody knows.' },
  { name: 'parameter', number: 1, doc: 'Parameters of modules, and what optimizers update.' },
  { name: 'gradient', number: 2, doc: 'Gradients of parameters.' },
  { name: 'optimizerState', number: 3, doc: 'State of optimizers.' },
  { name: 'activation', number: 4, doc: 'Results of the forward pass that the backward pass needs.' },
  { name: 'temporary', number: 5, doc: 'Memory that lives within one phase of a step.' },
  { name: 'buffer', number: 6, doc: 'Buffers of modules.' },
  { name: 'kvCache', number: 7, doc: 'Keys and values of attention, kept from token to token.' },
  { name: 'graph', number: 8, doc: 'Memory in private pools: of CUDA graphs and of MemPools.' },
];

/**
 * Marks that the process sets by itself. A phase lasts until the next mark of a phase. They have no numbers in them: a ring has room for
 * some thousand different names only.
 */
export const PHASE_MARKS: readonly (Entry & { readonly text: string })[] = [
  { name: 'step', text: 'weir:step', doc: 'A training step begins, with its forward pass.' },
  { name: 'forward', text: 'weir:forward', doc: 'Neither a backward pass nor an optimizer runs from now on.' },
  { name: 'backward', text: 'weir:backward', doc: 'A backward pass begins.' },
  { name: 'optimizer', text: 'weir:optimizer', doc: 'An optimizer begins its step.' },
  { name: 'failure', text: 'weir:failure', doc: 'Categories of all live memory after an out-of-memory error have been told before this.' },
];

/** Which of the last three fields of an event say something. */
export const EVENT_FIELDS: readonly Numbered[] = [
  { name: 'Detail', number: 1, doc: '`detail` is set.' },
  { name: 'Thread', number: 2, doc: '`thread` is set.' },
  { name: 'CompileContext', number: 4, doc: '`compile_context` is set.' },
];

export const EVENT: readonly Field[] = [
  { name: 'time_us', type: 'f64', doc: 'Microseconds since 1970.' },
  { name: 'address', type: 'u64', doc: "For an oom the driver's free bytes." },
  { name: 'size', type: 'u64', doc: 'Bytes; for an operator microseconds, as f64.' },
  { name: 'kind', type: 'u8', doc: 'An event kind.' },
  { name: 'fields', type: 'u8', doc: 'Which of the last three fields say something.' },
  { name: 'device', type: 'u16', doc: 'Number of the GPU.' },
  { name: 'stream', type: 'i32', doc: "An index into the device's streams." },
  { name: 'pool', type: 'i32', doc: "An index into the device's pools; -1: unknown." },
  { name: 'stack', type: 'i32', doc: 'A stack; -1: none.' },
  { name: 'metadata', type: 'u32', doc: 'A string.' },
  { name: 'detail', type: 'i32', doc: 'A stream for record_stream; a string for settings, operator and mark; a category for category.' },
  { name: 'thread', type: 'i32', doc: 'Of the operating system, as an arbitrary small number.' },
  { name: 'compile_context', type: 'u32', doc: 'A string.' },
];
