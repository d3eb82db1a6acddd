// The recording of this process: opened at the first use of a GPU, closed at exit. After a fork the child has none.
// This class writes rows for PyTorch's own events. The runtime writes those of our engine.
#pragma once

#include <atomic>
#include <mutex>
#include <optional>
#include <string>

#include "autograd.h"
#include "runtime/call_stacks.h"
#include "runtime/weir_runtime.h"
#include "versions/versions.h"

namespace weir {

class Recording {
 public:
  Recording(std::string directory, std::string allocator, std::string torch_version, uint32_t rows);
  // Records the stacks of requests from so many bytes on. False and a sentence if that is impossible.
  bool want_stacks(bool natively, uint64_t from_bytes, char* why, size_t room);

  // NULL if there is none: nobody asked for it, it could not be made, or the process is ending.
  weir_recorder* get() const noexcept { return recorder_.load(std::memory_order_acquire); }
  weir_recorder* open();
  void close() noexcept;
  void forked() noexcept;

  bool stacks_wanted() const noexcept { return stacks_ != nullptr; }
  uint64_t stacks_from() const noexcept { return stacks_from_; }
  // The stack of this thread, or -1. Never called inside a lock: see call_stacks.h.
  int32_t capture_stack() noexcept;

  // The gauges of a GPU in the recording, or NULL.
  weir_gauges* gauges(int device) const;
  void put(const TraceEntry& entry) { put(entry, pool_of(entry)); }
  // For an event of a private pool beside our engine. The engine's rows already count its reserved memory, so its segments get no
  // rows. Its failures get none either: put_failure writes one only if our memory could not help.
  void put_of_pool(const TraceEntry& entry);
  void put_failure(int device, uint64_t size, uint64_t device_free, uint64_t stream);
  void put_record_stream(int device, uint64_t address, uint64_t block_stream, uint64_t using_stream);
  void put_plain(int device, uint8_t kind, uint64_t size);
  void put_mark(int device, const char* name);

 private:
  void put(const TraceEntry& entry, std::optional<MempoolId_t> pool);

  const std::string directory_, allocator_, torch_version_;
  const uint32_t rows_;
  weir_stacks* stacks_ = nullptr; // set before the allocator is in place
  uint64_t stacks_from_ = 0;
  std::optional<Autograd> autograd_;
  std::mutex mutex_;
  bool tried_ = false;
  std::atomic<weir_recorder*> recorder_{nullptr};
};

} // namespace weir
