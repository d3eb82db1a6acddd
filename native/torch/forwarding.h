// What both of our allocators are to the rest of the adapter: PyTorch's interface, passed on to its own allocator, and more.
// The two classes derived from this one override what Weir does differently.
#pragma once

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>

#include "runtime/weir_runtime.h"
#include "versions/interface.h"

namespace weir {

inline DeviceIndex current_device() {
  DeviceIndex device = 0;
  C10_CUDA_CHECK(c10::cuda::GetDevice(&device));
  return device;
}

class Forwarding : public Interface {
 public:
  using Interface::Interface;

  // Called in the child of a fork, which has its parent's memory but none of its threads, and no CUDA.
  virtual void forked() = 0;
  virtual bool gauges(int device, weir_gauges* out) = 0;
  virtual uint32_t check(uint32_t level) = 0;
  virtual bool used(int device) const = 0;
};

} // namespace weir
