// What Python hands to the compiled adapter when it puts an allocator in place, and what the adapter answers.
import type { Field, Numbered } from './table.ts';

export const ADAPTER_OPTIONS: readonly Field[] = [
  { name: 'digest', type: 'u64', doc: 'Of the tables that the Python part was built from.' },
  { name: 'allocator', type: 'pointer', doc: 'Its name.' },
  { name: 'directory', type: 'pointer', doc: 'For the ring; NULL or empty: no recording.' },
  { name: 'torch_version', type: 'pointer', doc: 'As PyTorch writes it.' },
  { name: 'limit', type: 'u64', doc: 'Bytes per GPU; 0: no limit.' },
  { name: 'ring_rows', type: 'u32', doc: 'Events that may wait to be recorded.' },
  { name: 'lend', type: 'i32', doc: '0: streams keep to their own memory.' },
  { name: 'stacks', type: 'u32', doc: 'Call stacks to record; 0: none.' },
  { name: 'planned', type: 'u32', doc: '1: the preset of jobs that wait for a plan.' },
  { name: 'stacks_from', type: 'u64', doc: 'Bytes of the least request whose stack is recorded.' },
  { name: 'faults', type: 'u32', doc: 'Driver calls in a million that fail on purpose; tests only.' },
  { name: 'fine', type: 'u32', doc: '1: the preset of small handles.' },
  { name: 'faults_seed', type: 'u64', doc: 'Which calls fail.' },
];

export const ADAPTER_STACKS: readonly Numbered[] = [
  { name: 'none', number: 0, doc: 'No call stacks.' },
  { name: 'python', number: 1, doc: 'Frames of Python, and the forward line of what autograd allocates.' },
  { name: 'all', number: 2, doc: 'Also frames of C and C++.' },
];

export const ADAPTER_RESULTS: readonly Numbered[] = [
  { name: 'ok', number: 0, doc: 'The allocator is in place.' },
  { name: 'options', number: 1, doc: 'The Python and the compiled part do not fit together.' },
  { name: 'backend', number: 2, doc: 'PyTorch runs on another allocator backend.' },
  { name: 'uncached', number: 3, doc: 'PYTORCH_NO_CUDA_MEMORY_CACHING is set.' },
  { name: 'already', number: 4, doc: 'An allocator of ours is in place already.' },
  { name: 'failed', number: 5, doc: 'An error was thrown.' },
  { name: 'registered', number: 6, doc: 'NCCL is to register all memory.' },
];
