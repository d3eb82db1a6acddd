// The message of an out-of-memory error. It begins like PyTorch's, because programs look for that, and then explains.
#pragma once

#include <string>

#include "runtime/weir_runtime.h"

namespace weir {

// `run_limit` is that of weir run --limit; 0: none. Any other limit is set_per_process_memory_fraction's.
std::string explain_shortage(int device, const weir_shortage& shortage, uint64_t run_limit);

} // namespace weir
