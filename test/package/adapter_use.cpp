// Asks PyTorch for memory as a program would, through its allocator interface: the adapter of a wheel must fit that interface.
#include <c10/cuda/CUDACachingAllocator.h>

// Leaves one block of this size allocated, after some that are freed. Gives 1 if all went well.
extern "C" int use_allocator(size_t bytes) {
  auto* const allocator = c10::cuda::CUDACachingAllocator::get();
  allocator->init(2);
  for (size_t size = 512; size <= bytes / 4; size *= 4) allocator->raw_delete(allocator->raw_alloc(size));
  return allocator->raw_alloc(bytes) != nullptr && allocator->initialized();
}
