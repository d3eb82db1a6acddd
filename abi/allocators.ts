// Allocators by name: those that a job can run on, and those that a recording can be replayed through.
import type { Entry } from './table.ts';

export interface AllocatorName extends Entry {
  /** The preset of the engine behind it; none: it is no policy of the engine. */
  readonly preset?: string;
}

export const ALLOCATORS: readonly AllocatorName[] = [
  { name: 'pytorch', doc: "PyTorch's caching allocator; settings as in PYTORCH_CUDA_ALLOC_CONF" },
  { name: 'expandable', doc: "PyTorch's caching allocator with expandable_segments:True" },
  { name: 'cnmem', doc: 'CnMem: best fit, never releases memory; setting: initial:SIZE, the pool it starts with (default 0)' },
  {
    name: 'gmlake',

    preset: 'gmlake',
    doc: "GMLake's policy on our engine: stitches 2 MiB handles; setting: minStitch:SIZE, smallest request to stitch for (128 MiB)",
  },
  {
    name: 'weir',

    preset: 'weir',
    doc: 'our engine: stitches free memory, creates only what is missing, lends between streams; settings: ceiling:SIZE, memory it may hold freely; lend:0, no lending between streams',
  },
  { name: 'planned', doc: 'our engine with a plan for the step that the run repeats (weir plan); for replay only' },
];

/** Those that `weir run` can put into a process, in the order in which help lists them. */
export const RUN_ALLOCATORS: readonly string[] = ['weir', 'gmlake', 'pytorch', 'expandable'];
