// What an allocation and its free cost inside PyTorch, without Python: nanoseconds through whichever allocator is in place.
// Loaded by pair.py into a process with CUDA started.
#include <c10/cuda/CUDACachingAllocator.h>

#include <chrono>
#include <thread>
#include <vector>

#define EXPORT extern "C" __attribute__((visibility("default")))

using Clock = std::chrono::steady_clock;
namespace cca = c10::cuda::CUDACachingAllocator;

static double nanoseconds(Clock::time_point start, size_t count) {
  return std::chrono::duration<double, std::nano>(Clock::now() - start).count() / static_cast<double>(count);
}

// One block at a time.
EXPORT double pair_single(size_t bytes, size_t count) {
  cca::CUDAAllocator* const allocator = cca::get();
  const auto start = Clock::now();
  for (size_t n = 0; n < count; n++) allocator->raw_delete(allocator->raw_alloc(bytes));
  return nanoseconds(start, count);
}

// As tensors do it: a DataPtr that frees itself.
EXPORT double pair_tensor(size_t bytes, size_t count) {
  cca::CUDAAllocator* const allocator = cca::get();
  const auto start = Clock::now();
  for (size_t n = 0; n < count; n++) c10::DataPtr block = allocator->allocate(bytes);
  return nanoseconds(start, count);
}

// Many live blocks of many sizes; per allocation or free.
EXPORT double pair_mixed(size_t slots, size_t count) {
  cca::CUDAAllocator* const allocator = cca::get();
  std::vector<void*> kept(slots, nullptr);
  uint64_t state = 88172645463325252ull;
  const auto draw = [&state] {
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
  };
  const auto start = Clock::now();
  for (size_t n = 0; n < count; n++) {
    void*& slot = kept[draw() % slots];
    if (slot) allocator->raw_delete(slot);
    slot = slot ? nullptr : allocator->raw_alloc(512 << draw() % 14);
  }
  const double result = nanoseconds(start, count);
  for (void* slot : kept) {
    if (slot) allocator->raw_delete(slot);
  }
  return result;
}

// Threads that each have a stream of their own; wall time per pair of one thread.
EXPORT double pair_threads(size_t bytes, size_t count, size_t threads) {
  cca::CUDAAllocator* const allocator = cca::get();
  std::vector<c10::cuda::CUDAStream> streams;
  for (size_t n = 0; n < threads; n++) streams.push_back(c10::cuda::getStreamFromPool());
  std::vector<std::thread> all;
  const auto start = Clock::now();
  for (size_t number = 0; number < threads; number++) {
    all.emplace_back([=] {
      for (size_t n = 0; n < count; n++) allocator->raw_delete(allocator->raw_alloc_with_stream(bytes, streams[number].stream()));
    });
  }
  for (auto& thread : all) thread.join();
  return nanoseconds(start, count);
}
