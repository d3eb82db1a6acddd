// PyTorch versions that the adapter was tested with, and the variables that PyTorch itself reads.

/** The adapter overrides virtual functions, whose list changes with every minor release. Other versions are refused by default. */
export const SUPPORTED_PYTORCH: readonly string[] = ['2.11'];

/** PyTorch 2.9 renamed the variable for its allocator's settings. Each version reads the one it knows. */
export const CONF_VARIABLES: readonly string[] = ['PYTORCH_CUDA_ALLOC_CONF', 'PYTORCH_ALLOC_CONF'];
export const EXPANDABLE_CONF = 'expandable_segments:True';
