// PyTorch's own allocator, recorded and limited: `weir run --allocator pytorch` and `expandable` install it.
#pragma once

#include <atomic>
#include <mutex>

#include "forwarding.h"
#include "recording.h"
#include "runtime/weir_runtime.h"

namespace weir {

class RecordingAllocator final : public Forwarding {
 public:
  RecordingAllocator(CUDAAllocator* native, uint64_t limit, Recording* recording);

  void forked() override;
  bool gauges(int device, weir_gauges* out) override;
  uint32_t check(uint32_t) override { return 0; }
  bool used(int device) const override { return device >= 0 && device < WEIR_RING_DEVICES && levels_[device].in_use; }

  DataPtr allocate(size_t n) override;
  void* raw_alloc(size_t n) override;
  void* raw_alloc_with_stream(size_t n, cudaStream_t stream) override;
  void init(int device_count) override;
  void empty_cache(MempoolId_t id) override;
  using Forwarding::recordStream;
  void recordStream(const DataPtr& ptr, c10::cuda::CUDAStream stream) override;
  void setMemoryFraction(double fraction, DeviceIndex device) override;
  void resetPeakStats(DeviceIndex device) override;
  DeviceStats getDeviceStats(DeviceIndex device) override;
  MemoryInfo memory_info(DeviceIndex device) override;

 private:
  void before(DeviceIndex device);
  void first_use(DeviceIndex device);
  void follow(const TraceEntry& entry);
  void refresh(DeviceIndex device);
  void publish(int device);
  void note_fraction(DeviceIndex device, double fraction);

  const uint64_t limit_;
  Recording* const recording_;
  std::atomic<bool> attached_{false};
  std::atomic<bool> begun_[WEIR_RING_DEVICES]{};
  std::atomic<uint32_t> since_refresh_[WEIR_RING_DEVICES]{};
  // May be taken while PyTorch's lock is held, never the other way round.
  std::mutex figuring_;
  weir_gauges levels_[WEIR_RING_DEVICES]{};
};

} // namespace weir
