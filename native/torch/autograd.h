// What autograd does in this thread: the node whose backward pass runs, or the node that the forward pass has made last.
// PyTorch's functions for it lie in a library that the adapter is not linked with, so they are found by name.
#pragma once

#include <memory>

#include "runtime/call_stacks.h"

namespace weir {

class Autograd {
 public:
  Autograd() noexcept;
  // Zeros if PyTorch's functions were not found, or are not those that Weir knows.
  weir_autograd now() const noexcept;

 private:
  // As pointers of PyTorch's to a node are returned: in memory, because they have destructors.
  struct IntrusivePointer {
    void* node;
    IntrusivePointer(const IntrusivePointer&) = delete;
    ~IntrusivePointer() {}
  };
  const void* current_node() const noexcept;

  uint64_t (*next_number_)() = nullptr;
  uint64_t (*thread_)() = nullptr;
  std::shared_ptr<void> (*shared_node_)() = nullptr; // up to 2.12
  IntrusivePointer (*intrusive_node_)() = nullptr; // since 2.13
};

} // namespace weir
