// The history of our blocks for torch.cuda.memory._record_memory_history: events in order, stacks, observers.
// While nobody has asked for it, it costs one load: `watched`.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "versions/versions.h"

namespace weir {

class History {
 public:
  void configure(bool enabled, CreateContextFn gather, size_t max_entries, RecordContext when, bool clear, const Words& skip);
  bool enabled() const noexcept { return enabled_.load(std::memory_order_relaxed); }

  // Whether events are wanted, or a stack is kept that a free must drop.
  bool watched() const noexcept { return watched_.load(std::memory_order_relaxed); }

  // The current stack. Called before any lock is taken, since it may take Python's lock.
  Context gather(RecordContext level) const;

  // Called inside the lock of the device, so in the engine's order. No stack is gathered there.
  void allocated(c10::DeviceIndex device, uint64_t address, uint64_t requested, uint64_t stream, Context context);
  // A parked block is still used by other streams; it completes later.
  void freed(c10::DeviceIndex device, uint64_t address, uint64_t requested, uint64_t stream, Context context, bool parked);
  void completed(c10::DeviceIndex device, uint64_t address, uint64_t requested, uint64_t stream);
  void failed(c10::DeviceIndex device, uint64_t device_free, uint64_t rounded, uint64_t stream, Context context);
  void snapshot_taken(c10::DeviceIndex device, uint64_t active);
  // A note of the program on a block that is there.
  void annotated(c10::DeviceIndex device, uint64_t address, uint64_t requested, uint64_t stream, Context context,
                 const std::string& metadata);

  // Oldest first, times in microseconds since 1970.
  std::vector<TraceEntry> trace(c10::DeviceIndex device);
  Context context_of(uint64_t address);

  void attach_tracker(AllocatorTraceTracker tracker);
  void attach_observer(OutOfMemoryObserver observer);
  // Called without any lock: observers may take Python's.
  void call_observers(int64_t device, size_t asked, size_t total, size_t free);

  static void push_compile_context(const std::string& context);
  static void pop_compile_context();
  static void set_metadata(const std::string& metadata);
  static const std::string& metadata();

  void forked() noexcept;

 private:
  static constexpr size_t kDevices = 128;
  void note(TraceEntry::Action action, c10::DeviceIndex device, uint64_t address, uint64_t size, uint64_t stream, Context context,
            const std::string& metadata);
  void update_watched();

  std::mutex mutex_;
  std::atomic<bool> enabled_{false};
  std::atomic<bool> watched_{false};
  std::atomic<CreateContextFn> gather_{nullptr};
  std::atomic<RecordContext> when_{RecordContext::NEVER};
  size_t max_entries_ = 1;
  std::array<bool, 16> skipped_{};
  std::array<std::deque<TraceEntry>, kDevices> entries_;
  std::unordered_map<uint64_t, Context> contexts_;
  std::vector<AllocatorTraceTracker> trackers_;
  std::vector<OutOfMemoryObserver> observers_;
};

} // namespace weir
