// Allocators by name: those that a job can run on, and those that a recording can be replayed through.
import type { Entry } from './table.ts';

export interface AllocatorName extends Entry {
  /** The preset of the engine behind it; none: it is no policy of the engine. */
  readonly preset?: string;
}

export const ALLOCATORS: readonly AllocatorName[] = [
  { name: 'pytorch', doc: "PyTorch's caching allocator; settings as in PYTORCH_CUDA_ALLOC_CONF" },
  { name: 'expandable', doc: 'the same with expandable_segments:True' },
  { name: 'cnmem', doc: 'CnMem: best fit, never gives memory back; setting: initial:SIZE, the pool it starts with (default 0)' },
  {
    name: 'gmlake',

    preset: 'gmlake',
    doc: "GMLake's policy on our engine: stitches handles of 2 MiB; setting: minStitch:SIZE, least request to stitch for (default 128 MiB)",
  },
  {
    name: 'weir',

    preset: 'weir',
    doc: 'our engine: stitches free memory, creates only the missing bytes, lends between streams; settings: ceiling:SIZE, memory it may hold before it stitches; lend:0, keep streams apart',
  },
  { name: 'planned', doc: 'our engine with a plan of the step that the run repeats (weir plan); replay only' },
];

/** Those that `weir run` can put into a process, in the order in which help lists them. */
export const RUN_ALLOCATORS: readonly string[] = ['weir', 'gmlake', 'pytorch', 'expandable'];
