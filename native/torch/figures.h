// The statistics of one GPU for torch.cuda.memory_stats: the sums of our blocks and PyTorch's private pools.
// The sums are kept, so that a peak is the peak of the sum and not the sum of two peaks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <new>

#include "versions/versions.h"

namespace weir {

// Not thread-safe: used inside the lock of the device, which every request takes anyway.
class Figures {
 public:
  // PyTorch's limit between its small and its large pool.
  static bool is_small(uint64_t requested) noexcept { return requested <= (1u << 20); }

  struct Levels {
    uint64_t allocated, reserved;
  };

  void given(uint64_t size, uint64_t requested, uint64_t reserved) noexcept {
    for (const size_t type : {kAll, is_small(requested) ? kSmall : kLarge}) {
      stats_.allocation[type].increase(1);
      stats_.allocated_bytes[type].increase(size);
      stats_.active[type].increase(1);
      stats_.active_bytes[type].increase(size);
      stats_.requested_bytes[type].increase(requested);
    }
    if (static_cast<int64_t>(reserved) != stats_.reserved_bytes[kAll].current) set_reserved(reserved);
  }

  // The program frees a block. As in PyTorch, the block stays active until no stream uses it any more.
  void let_go(uint64_t size, uint64_t requested) noexcept {
    for (const size_t type : {kAll, is_small(requested) ? kSmall : kLarge}) {
      stats_.allocation[type].decrease(1);
      stats_.allocated_bytes[type].decrease(size);
    }
  }
  void completed(uint64_t size, uint64_t requested) noexcept {
    for (const size_t type : {kAll, is_small(requested) ? kSmall : kLarge}) {
      stats_.active[type].decrease(1);
      stats_.active_bytes[type].decrease(size);
      stats_.requested_bytes[type].decrease(requested);
    }
  }

  Levels levels() const noexcept {
    return {static_cast<uint64_t>(stats_.allocated_bytes[kAll].current), static_cast<uint64_t>(stats_.reserved_bytes[kAll].current)};
  }

  // All memory that this process has taken from the GPU, private pools included.
  void reserved(uint64_t bytes) noexcept { set_reserved(bytes); }

  // Adds what PyTorch's allocator, which serves only the private pools, has done since the last call.
  void follow(const DeviceStats& native) noexcept {
    const Seen now = seen(native);
    for (size_t index = 0; index < std::size(kFollowed); index++) {
      for (size_t type = 0; type < kTypes; type++) {
        add((stats_.*kFollowed[index])[type], now.followed[index][type], seen_.followed[index][type]);
      }
    }
    add(stats_.oversize_allocations, now.oversize_allocations, seen_.oversize_allocations);
    add(stats_.oversize_segments, now.oversize_segments, seen_.oversize_segments);
    seen_ = now;
  }

  // For a reset inside PyTorch's allocator, after which its accumulated figures start at 0.
  void restart(const DeviceStats& native) noexcept { seen_ = seen(native); }

  void failed() noexcept { stats_.num_ooms++; }
  // PyTorch counted a failure, but our memory then served the request, or the failure is counted elsewhere. With
  // throw_on_cudamalloc_oom PyTorch counts it as rejected instead. Called before `follow`.
  void forgive(const DeviceStats& native) noexcept {
    (rejections(native) > seen_.rejections ? rejections_ : stats_.num_ooms)--;
    stats_.num_alloc_retries++;
  }

  // Turns PyTorch's figures into the sums. What we do not know stays PyTorch's. `retries` are those of our engine since its start.
  void read(DeviceStats& native, uint64_t retries) noexcept {
    for (const auto member : kFollowed) native.*member = stats_.*member;
    native.reserved_bytes = stats_.reserved_bytes;
    native.oversize_allocations = stats_.oversize_allocations;
    native.oversize_segments = stats_.oversize_segments;
    native.num_device_alloc = stats_.num_device_alloc;
    native.num_device_free = stats_.num_device_free;
    retries_ = static_cast<int64_t>(retries);
    native.num_alloc_retries += stats_.num_alloc_retries + retries_ - retries_before_;
    native.num_ooms += stats_.num_ooms;
    set_rejections(native, rejections(native) + rejections_);
  }

  void reset_peaks() noexcept {
    each([](Stat& stat) { stat.reset_peak(); });
  }

  void reset_accumulated() noexcept {
    each([](Stat& stat) { stat.reset_accumulated(); });
    stats_.num_alloc_retries = stats_.num_ooms = rejections_ = 0;
    stats_.num_device_alloc = stats_.num_device_free = 0;
    retries_before_ = retries_;
  }

  // The child of a fork starts with nothing.
  void forked() noexcept { new (this) Figures; }

 private:
  static constexpr size_t kAll = 0, kSmall = 1, kLarge = 2, kTypes = 3;
  static constexpr StatArray DeviceStats::* kFollowed[] = {
      &DeviceStats::allocation,           &DeviceStats::segment,         &DeviceStats::active,
      &DeviceStats::inactive_split,       &DeviceStats::allocated_bytes, &DeviceStats::active_bytes,
      &DeviceStats::inactive_split_bytes, &DeviceStats::requested_bytes,
  };

  // PyTorch's figures at the last look. Its own structure holds a map, which nobody copies inside the lock of an engine.
  struct Seen {
    StatArray followed[std::size(kFollowed)];
    Stat oversize_allocations, oversize_segments;
    int64_t reserved_small = 0;
    int64_t rejections = 0;
  };
  static Seen seen(const DeviceStats& native) noexcept {
    Seen now;
    for (size_t index = 0; index < std::size(kFollowed); index++) now.followed[index] = native.*kFollowed[index];
    now.oversize_allocations = native.oversize_allocations;
    now.oversize_segments = native.oversize_segments;
    now.reserved_small = native.reserved_bytes[kSmall].current;
    now.rejections = rejections(native);
    return now;
  }

  // Our memory serves small and large requests, and counts as large. Only PyTorch's segments count as small.
  void set_reserved(uint64_t bytes) noexcept {
    const int64_t small = seen_.reserved_small;
    const int64_t all = static_cast<int64_t>(bytes);
    const int64_t before = stats_.reserved_bytes[kAll].current;
    if (all > before) stats_.num_device_alloc++;
    if (all < before) stats_.num_device_free++;
    set(stats_.reserved_bytes[kAll], all);
    set(stats_.reserved_bytes[kSmall], small);
    set(stats_.reserved_bytes[kLarge], std::max<int64_t>(all - small, 0));
  }

  static void set(Stat& stat, int64_t value) noexcept {
    if (value > stat.current) stat.increase(static_cast<size_t>(value - stat.current));
    else if (value < stat.current) stat.decrease(static_cast<size_t>(stat.current - value));
  }

  static void add(Stat& stat, const Stat& now, const Stat& before) noexcept {
    stat.current += now.current - before.current;
    stat.peak = std::max(stat.peak, stat.current);
    stat.allocated += now.allocated - before.allocated;
    stat.freed += now.freed - before.freed;
  }

  template <typename Function>
  void each(Function function) noexcept {
    for (const auto member : kFollowed) {
      for (Stat& stat : stats_.*member) function(stat);
    }
    for (Stat& stat : stats_.reserved_bytes) function(stat);
    function(stats_.oversize_allocations);
    function(stats_.oversize_segments);
  }

  DeviceStats stats_;
  Seen seen_;
  int64_t rejections_ = 0;
  int64_t retries_ = 0;
  int64_t retries_before_ = 0;
};

} // namespace weir
