// The recording of this process: opened when a GPU is first used, left to the parent after a fork, closed at exit.
// PyTorch's own events become rows of it here; those of our engine are written by the engine's runtime.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>

#include <atomic>
#include <mutex>
#include <string>

#include "runtime/weir_runtime.h"

namespace weir {

using c10::CachingDeviceAllocator::TraceEntry;

class Recording {
 public:
  Recording(std::string directory, std::string allocator, std::string torch_version, uint32_t rows);

  // NULL where there is none: nobody asked for it, it could not be made, or the process is ending.
  weir_recorder* get() const noexcept { return recorder_.load(std::memory_order_acquire); }
  weir_recorder* open();
  void close() noexcept;
  void forked() noexcept;

  // Levels of a GPU in the recording, or NULL.
  weir_gauges* gauges(int device) const;
  void put(const TraceEntry& entry);
  // Of a private pool beside our engine: what is reserved for it is part of what the engine says is reserved, so its segments are
  // no rows of their own, and a failure is one only when our memory could not make it good.
  void put_of_pool(const TraceEntry& entry);
  void put_failure(int device, uint64_t size, uint64_t device_free, uint64_t stream);
  void put_record_stream(int device, uint64_t address, uint64_t block_stream, uint64_t using_stream);
  void put_plain(int device, uint8_t kind, uint64_t size);
  void put_mark(int device, const char* name);

 private:
  const std::string directory_, allocator_, torch_version_;
  const uint32_t rows_;
  std::mutex mutex_;
  bool tried_ = false;
  std::atomic<weir_recorder*> recorder_{nullptr};
};

} // namespace weir
