// NCCL's registration of all of PyTorch's memory, which Weir cannot serve: TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK.
// ProcessGroupNCCL registers whole segments and expects each to be one allocation that stays as it is until it is told otherwise.
#pragma once

#include <strings.h>

#include <cstdlib>

#include "versions/versions.h"

namespace weir {

// As ProcessGroupNCCL decides it. It leaves the hook off for expandable segments, for the same reasons as ours.
inline bool registers_all_memory() {
  bool wanted = false;
  for (const char* const name : {"NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK", "TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK"}) {
    const char* const value = std::getenv(name);
    if (!value) continue;
    wanted = false;
    for (const char* const yes : {"y", "yes", "1", "t", "true"}) wanted |= strcasecmp(value, yes) == 0;
  }
  return wanted && !expandable_segments();
}

inline constexpr char kRegistersAllMemory[] =
    "TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK is set: NCCL would register memory that Weir maps anew; unset it, or run with "
    "--allocator expandable";

} // namespace weir
