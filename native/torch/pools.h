// The open private pools: CUDA graphs under capture, MemPool contexts. PyTorch serves their requests.
// A pool is open for the streams or threads that its filter accepts. If no pool is open, asking costs one load.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <new>
#include <vector>

#include "versions/versions.h"

namespace weir {

class Pools {
 public:
  int open() const noexcept { return open_.load(std::memory_order_acquire); }

  bool takes(DeviceIndex device, cudaStream_t stream) {
    if (C10_LIKELY(open() == 0)) return false;
    std::lock_guard<std::mutex> guard(mutex_);
    for (const Entry& entry : entries_) {
      if (entry.device == device && entry.filter(stream)) return true;
    }
    return false;
  }

  // `changed` runs under the lock, so that devices hear of pools in the order of opening and closing.
  template <typename Function>
  void add(DeviceIndex device, MempoolId_t id, PoolFilter filter, Function changed) {
    std::lock_guard<std::mutex> guard(mutex_);
    entries_.push_back({device, id, std::move(filter)});
    open_.fetch_add(1, std::memory_order_acq_rel);
    changed();
  }

  template <typename Function>
  void remove(DeviceIndex device, MempoolId_t id, Function changed) {
    std::lock_guard<std::mutex> guard(mutex_);
    for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
      if (entry->device != device || entry->id != id) continue;
      entries_.erase(entry);
      open_.fetch_sub(1, std::memory_order_acq_rel);
      changed();
      return;
    }
  }

  // A capture beside the pools: CUDA graphs open a pool and then mark the capture. It counts as one more open pool without requests.
  template <typename Function>
  void mark(Function changed) {
    std::lock_guard<std::mutex> guard(mutex_);
    marks_++;
    open_.fetch_add(1, std::memory_order_acq_rel);
    changed();
  }

  template <typename Function>
  void unmark(Function changed) {
    std::lock_guard<std::mutex> guard(mutex_);
    if (marks_ == 0) return;
    marks_--;
    open_.fetch_sub(1, std::memory_order_acq_rel);
    changed();
  }

  template <typename Function>
  void locked(Function function) {
    std::lock_guard<std::mutex> guard(mutex_);
    function(static_cast<int>(entries_.size()) + marks_);
  }

  void forked() noexcept {
    new (&mutex_) std::mutex;
    entries_.clear();
    marks_ = 0;
    open_ = 0;
  }

 private:
  struct Entry {
    DeviceIndex device;
    MempoolId_t id;
    PoolFilter filter;
  };
  std::mutex mutex_;
  std::vector<Entry> entries_;
  int marks_ = 0;
  std::atomic<int> open_{0};
};

} // namespace weir
