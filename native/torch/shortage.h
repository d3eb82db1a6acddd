// The message of an out-of-memory error. It begins like PyTorch's, because programs look for that, and then explains.
#pragma once

#include <string>

#include "runtime/weir_runtime.h"

namespace weir {

struct Limits {
  uint64_t run;      // from weir run --limit; 0: none
  uint64_t fraction; // from torch.cuda.set_per_process_memory_fraction; 0: none
};

std::string explain_shortage(int device, const weir_shortage& shortage, const Limits& limits);

} // namespace weir
