// Passes every virtual method of torch 2.11's CUDAAllocator on to PyTorch's own allocator.
// The two classes derived from this one override what Weir does differently.
#pragma once

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>

#include <memory>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "runtime/weir_runtime.h"

namespace weir {

using c10::DataPtr;
using c10::DeviceIndex;
using c10::MempoolId_t;
namespace torch_alloc = c10::cuda::CUDACachingAllocator;

inline DeviceIndex current_device() {
  DeviceIndex device = 0;
  C10_CUDA_CHECK(c10::cuda::GetDevice(&device));
  return device;
}

class Forwarding : public torch_alloc::CUDAAllocator {
 public:
  explicit Forwarding(torch_alloc::CUDAAllocator* native) : native_(native), native_deleter_(native->raw_deleter()) {}

  // Called in the child of a fork, which has its parent's memory but none of its threads, and no CUDA.
  virtual void forked() = 0;
  virtual bool gauges(int device, weir_gauges* out) = 0;
  virtual uint32_t check(uint32_t level) = 0;
  virtual bool used(int device) const = 0;

  DataPtr allocate(size_t n) override { return native_->allocate(n); }
  c10::DeleterFnPtr raw_deleter() const override { return native_->raw_deleter(); }
  void copy_data(void* dest, const void* src, std::size_t count) const override { native_->copy_data(dest, src, count); }

  bool initialized() override { return native_->initialized(); }
  void emptyCache(MempoolId_t id = {0, 0}) override { native_->emptyCache(id); }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(DeviceIndex device) override { return native_->getDeviceStats(device); }
  void resetAccumulatedStats(DeviceIndex device) override { native_->resetAccumulatedStats(device); }
  void resetPeakStats(DeviceIndex device) override { native_->resetPeakStats(device); }

  void* raw_alloc(size_t n) override { return native_->raw_alloc(n); }
  void* raw_alloc_with_stream(size_t n, cudaStream_t stream) override { return native_->raw_alloc_with_stream(n, stream); }
  void raw_delete(void* ptr) override { native_->raw_delete(ptr); }
  void init(int device_count) override { native_->init(device_count); }
  double getMemoryFraction(DeviceIndex device) override { return native_->getMemoryFraction(device); }
  void setMemoryFraction(double fraction, DeviceIndex device) override { native_->setMemoryFraction(fraction, device); }
  std::vector<torch_alloc::StreamSegmentSize> getExpandableSegmentSizes(DeviceIndex device) override {
    return native_->getExpandableSegmentSizes(device);
  }
  void enable(bool value) override { native_->enable(value); }
  bool isEnabled() const override { return native_->isEnabled(); }
  void cacheInfo(DeviceIndex device, size_t* largest) override { native_->cacheInfo(device, largest); }
  void* getBaseAllocation(void* ptr, size_t* size) override { return native_->getBaseAllocation(ptr, size); }
  using CUDAAllocator::recordStream;
  void recordStream(const DataPtr& ptr, c10::cuda::CUDAStream stream) override { native_->recordStream(ptr, stream); }

  torch_alloc::SnapshotInfo snapshot(MempoolId_t id = {0, 0}, bool include_traces = true) override {
    return native_->snapshot(id, include_traces);
  }
  void beginAllocateToPool(DeviceIndex device, MempoolId_t id, std::function<bool(cudaStream_t)> filter) override {
    native_->beginAllocateToPool(device, id, std::move(filter));
  }
  void endAllocateToPool(DeviceIndex device, MempoolId_t id) override { native_->endAllocateToPool(device, id); }
  void releasePool(DeviceIndex device, MempoolId_t id) override { native_->releasePool(device, id); }
  int getPoolUseCount(DeviceIndex device, MempoolId_t id) override { return native_->getPoolUseCount(device, id); }
  void createOrIncrefPool(DeviceIndex device, MempoolId_t id, std::shared_ptr<CUDAAllocator> allocator = nullptr) override {
    native_->createOrIncrefPool(device, id, std::move(allocator));
  }
  void setUseOnOOM(DeviceIndex device, MempoolId_t id, bool use) override { native_->setUseOnOOM(device, id, use); }
  void setNoSplit(DeviceIndex device, MempoolId_t id) override { native_->setNoSplit(device, id); }
  bool checkPoolLiveAllocations(DeviceIndex device, MempoolId_t id, const std::unordered_set<void*>& expected) override {
    return native_->checkPoolLiveAllocations(device, id, expected);
  }
  std::shared_ptr<torch_alloc::AllocatorState> getCheckpointState(DeviceIndex device, MempoolId_t id) override {
    return native_->getCheckpointState(device, id);
  }
  torch_alloc::CheckpointDelta setCheckpointPoolState(DeviceIndex device, std::shared_ptr<torch_alloc::AllocatorState> state) override {
    return native_->setCheckpointPoolState(device, std::move(state));
  }

  torch_alloc::ShareableHandle shareIpcHandle(void* ptr) override { return native_->shareIpcHandle(ptr); }
  std::shared_ptr<void> getIpcDevPtr(std::string handle) override { return native_->getIpcDevPtr(std::move(handle)); }
  bool isHistoryEnabled() override { return native_->isHistoryEnabled(); }
  void recordHistory(bool enabled, torch_alloc::CreateContextFn context, size_t max_entries, torch_alloc::RecordContext when, bool clear,
                     const std::vector<std::string>& skip_actions) override {
    native_->recordHistory(enabled, context, max_entries, when, clear, skip_actions);
  }
  void recordAnnotation(const std::vector<std::pair<std::string, std::string>>& annotation) override {
    native_->recordAnnotation(annotation);
  }
  void pushCompileContext(std::string& context) override { native_->pushCompileContext(context); }
  void popCompileContext() override { native_->popCompileContext(); }
  void setUserMetadata(const std::string& metadata) override { native_->setUserMetadata(metadata); }
  std::string getUserMetadata() override { return native_->getUserMetadata(); }
  void attachOutOfMemoryObserver(torch_alloc::OutOfMemoryObserver observer) override {
    native_->attachOutOfMemoryObserver(std::move(observer));
  }
  void attachAllocatorTraceTracker(torch_alloc::AllocatorTraceTracker tracker) override {
    native_->attachAllocatorTraceTracker(std::move(tracker));
  }

  void enablePeerAccess(DeviceIndex device, DeviceIndex to) override { native_->enablePeerAccess(device, to); }
  cudaError_t memcpyAsync(void* dst, int dst_device, const void* src, int src_device, size_t count, cudaStream_t stream,
                          bool p2p) override {
    return native_->memcpyAsync(dst, dst_device, src, src_device, count, stream, p2p);
  }
  // When PyTorch reads its settings again and they name a backend, it asserts this name.
  std::string name() override { return native_->name(); }

 protected:
  torch_alloc::CUDAAllocator* const native_;
  const c10::DeleterFnPtr native_deleter_;
};

} // namespace weir
