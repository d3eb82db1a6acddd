// The adapter under PyTorch's real c10 libraries, for a program in Python: see ../adapter-stacks.test.ts. Like PyTorch's operators,
// these functions are called without the GIL.
#include "harness.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT int start(uint64_t limit, uint64_t stacks_from) {
  static char why[256];
  weir_torch_options options = options_here();
  options.limit = limit;
  options.stacks = WEIR_TORCH_STACKS_PYTHON;
  options.stacks_from = stacks_from;
  if (weir_torch_install(&options, why, sizeof why) != 0 || why[0]) return printf("%s\n", why), 0;
  start_cuda();
  return 1;
}

// 0 if there is no memory.
EXPORT void* take(size_t bytes) {
  try {
    return cca::get()->raw_alloc(bytes);
  } catch (const c10::OutOfMemoryError&) {
    return nullptr;
  }
}

EXPORT void give(void* block) { cca::get()->raw_delete(block); }
