// PyTorch's versions that the adapter knows, how far each is to be trusted, and the variables that PyTorch itself reads.
import type { Entry } from './table.ts';

/** What the tests of Weir have seen of a version. */
export const PYTORCH_TRUST: readonly Entry[] = [
  { name: 'gpu', doc: 'run on a GPU' },
  { name: 'libraries', doc: "tested with that PyTorch's own libraries, without a GPU" },
  { name: 'sources', doc: "tested with libraries made from that PyTorch's sources, without a GPU" },
  { name: 'compiles', doc: 'compiles' },
];

/**
 * Ascending. The adapter overrides virtual functions, whose list changes with minor releases: native/torch/versions. Other versions
 * are refused by default, and where the list is another, the build stops.
 */
export const PYTORCH_VERSIONS: readonly { readonly version: string; readonly trust: string }[] = [
  { version: '2.6', trust: 'sources' },
  { version: '2.7', trust: 'sources' },
  { version: '2.8', trust: 'sources' },
  { version: '2.9', trust: 'sources' },
  { version: '2.10', trust: 'sources' },
  { version: '2.11', trust: 'gpu' },
  { version: '2.12', trust: 'sources' },
  { version: '2.13', trust: 'sources' },
  { version: '2.14', trust: 'gpu' },
];

export const SUPPORTED_PYTORCH: readonly string[] = PYTORCH_VERSIONS.map((entry) => entry.version);

/** PyTorch 2.9 renamed the variable for its allocator's settings. Each version reads the one it knows. */
export const CONF_VARIABLES: readonly string[] = ['PYTORCH_CUDA_ALLOC_CONF', 'PYTORCH_ALLOC_CONF'];
export const EXPANDABLE_CONF = 'expandable_segments:True';
