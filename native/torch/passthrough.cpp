// PyTorch's own allocator, recorded and limited: `weir run --allocator pytorch` and `expandable` install it.
// Events come from PyTorch's trace, in its order and under its lock. Blocks keep PyTorch's deleter, so frees do not pass here.
#include "passthrough.h"

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>

#include <algorithm>
#include <new>

#include "request_stack.h"

namespace weir {

namespace {

// Requests between two readings of the figures that only PyTorch knows.
constexpr uint32_t kRefreshEvery = 64;

} // namespace

RecordingAllocator::RecordingAllocator(CUDAAllocator* native, uint64_t limit, Recording* recording)
    : Forwarding(native), limit_(limit), recording_(recording) {}

void RecordingAllocator::init(int device_count) {
  native_->init(device_count);
  if (device_count > 0 && !attached_.exchange(true)) {
    native_->attachAllocatorTraceTracker([this](const TraceEntry& entry) { follow(entry); });
  }
}

void RecordingAllocator::before(DeviceIndex device) {
  if (device < 0 || device >= WEIR_RING_DEVICES) return;
  if (C10_UNLIKELY(!begun_[device].load(std::memory_order_acquire))) first_use(device);
  if (C10_UNLIKELY(since_refresh_[device].fetch_add(1, std::memory_order_relaxed) % kRefreshEvery == kRefreshEvery - 1)) refresh(device);
}

// Called for the current GPU only, so GPUs that the program does not use get no context.
void RecordingAllocator::first_use(DeviceIndex device) {
  if (begun_[device].exchange(true, std::memory_order_acq_rel)) return;
  recording_->open();
  size_t free = 0, total = 0;
  C10_CUDA_CHECK(cudaMemGetInfo(&free, &total));
  {
    std::lock_guard<std::mutex> guard(figuring_);
    levels_[device].total = total;
    levels_[device].in_use = 1;
    levels_[device].limit = limit_;
    publish(device);
  }
  const double set = native_->getMemoryFraction(device);
  if (limit_ && limit_ < total) {
    native_->setMemoryFraction(std::min(set, static_cast<double>(limit_) / static_cast<double>(total)), device);
  }
  note_fraction(device, set);
}

// What the process may hold: our limit, or the share of the GPU that the program has set.
void RecordingAllocator::note_fraction(DeviceIndex device, double fraction) {
  std::lock_guard<std::mutex> guard(figuring_);
  weir_gauges& levels = levels_[device];
  const uint64_t shared = fraction < 1 ? static_cast<uint64_t>(fraction * static_cast<double>(levels.total)) : levels.total;
  const uint64_t allowed = limit_ ? std::min(limit_, shared) : shared;
  const uint64_t before = levels.limit;
  levels.limit = allowed < levels.total ? allowed : limit_;
  publish(device);
  if (levels.limit != before || allowed < levels.total) recording_->put_plain(device, WEIR_LIMIT, allowed);
}

DataPtr RecordingAllocator::allocate(size_t n) {
  if (n) before(current_device());
  const RequestStack request(recording_, n);
  return native_->allocate(n);
}

void* RecordingAllocator::raw_alloc(size_t n) {
  if (n) before(current_device());
  const RequestStack request(recording_, n);
  return native_->raw_alloc(n);
}

void* RecordingAllocator::raw_alloc_with_stream(size_t n, cudaStream_t stream) {
  if (n) before(current_device());
  const RequestStack request(recording_, n);
  return native_->raw_alloc_with_stream(n, stream);
}

void RecordingAllocator::follow(const TraceEntry& entry) {
  recording_->put(entry);
  const int device = entry.device_;
  if (device < 0 || device >= WEIR_RING_DEVICES) return;
  std::lock_guard<std::mutex> guard(figuring_);
  weir_gauges& levels = levels_[device];
  const uint64_t rounded = weir_in_units(entry.size_);
  switch (entry.action_) {
    case TraceEntry::ALLOC:
      levels.live += rounded;
      levels.peak_live = std::max(levels.peak_live, levels.live);
      levels.allocations++;
      break;
    case TraceEntry::FREE_REQUESTED:
      levels.live -= std::min(levels.live, rounded);
      levels.frees++;
      break;
    case TraceEntry::SEGMENT_ALLOC:
    case TraceEntry::SEGMENT_MAP:
      levels.reserved += entry.size_;
      levels.peak_reserved = std::max(levels.peak_reserved, levels.reserved);
      levels.driver_calls++;
      break;
    case TraceEntry::SEGMENT_FREE:
    case TraceEntry::SEGMENT_UNMAP:
      levels.reserved -= std::min<uint64_t>(levels.reserved, entry.size_);
      levels.driver_calls++;
      break;
    case TraceEntry::OOM: levels.ooms++; break;
    default: break;
  }
  publish(device);
}

// The gauges of swapping are written elsewhere, so they are kept.
void RecordingAllocator::publish(int device) {
  weir_gauges* const shown = recording_->gauges(device);
  if (!shown) return;
  weir_gauges& levels = levels_[device];
  levels.swapped_out = shown->swapped_out;
  levels.swapped_in = shown->swapped_in;
  levels.swap_stalls = shown->swap_stalls;
  levels.swap_stall_ns = shown->swap_stall_ns;
  levels.steps = shown->steps;
  levels.swap_settled = shown->swap_settled;
  *shown = levels;
}

void RecordingAllocator::refresh(DeviceIndex device) {
  if (device < 0 || device >= WEIR_RING_DEVICES || !begun_[device].load(std::memory_order_acquire)) return;
  const auto stats = native_->getDeviceStats(device);
  std::lock_guard<std::mutex> guard(figuring_);
  weir_gauges& levels = levels_[device];
  levels.allocated = static_cast<uint64_t>(stats.allocated_bytes[0].current);
  levels.peak_allocated = std::max(levels.peak_allocated, static_cast<uint64_t>(stats.allocated_bytes[0].peak));
  levels.retries = static_cast<uint64_t>(stats.num_alloc_retries);
  publish(device);
}

DeviceStats RecordingAllocator::getDeviceStats(DeviceIndex device) {
  refresh(device);
  return native_->getDeviceStats(device);
}

MemoryInfo RecordingAllocator::memory_info(DeviceIndex device) {
  auto [free, total] = Forwarding::memory_info(device);
  if (limit_) {
    const bool started = native_->initialized() && device >= 0 && device < c10::cuda::device_count();
    const uint64_t reserved = started ? static_cast<uint64_t>(native_->getDeviceStats(device).reserved_bytes[0].current) : 0;
    free = std::min<size_t>(free, limit_ - std::min(limit_, reserved));
    total = std::min<size_t>(total, limit_);
  }
  return {free, total};
}

void RecordingAllocator::resetPeakStats(DeviceIndex device) {
  refresh(device); // our peaks are those of the whole run
  native_->resetPeakStats(device);
}

void RecordingAllocator::empty_cache(MempoolId_t id) {
  Forwarding::empty_cache(id);
  // A MemPool that ends calls this for its own memory. The recording shows that by the pool of the segments.
  if (id.first != 0 || id.second != 0) return;
  for (int device = 0; device < WEIR_RING_DEVICES; device++) {
    if (levels_[device].in_use) recording_->put_plain(device, WEIR_EMPTY_CACHE, 0);
  }
}

void RecordingAllocator::recordStream(const DataPtr& ptr, c10::cuda::CUDAStream stream) {
  native_->recordStream(ptr, stream);
  if (!ptr.get() || ptr.get_deleter() != native_deleter_ || !recording_->get()) return;
  // The block's own stream is not known here. Readers take it from the allocation at the address.
  recording_->put_record_stream(ptr.device().index(), reinterpret_cast<uint64_t>(ptr.get()), 0,
                                reinterpret_cast<uint64_t>(stream.stream()));
}

void RecordingAllocator::setMemoryFraction(double fraction, DeviceIndex device) {
  const uint64_t total = device >= 0 && device < WEIR_RING_DEVICES ? levels_[device].total : 0;
  const bool limited = limit_ && total;
  native_->setMemoryFraction(limited ? std::min(fraction, static_cast<double>(limit_) / static_cast<double>(total)) : fraction, device);
  if (total) note_fraction(device, fraction);
}

bool RecordingAllocator::gauges(int device, weir_gauges* out) {
  if (!used(device)) return false;
  refresh(static_cast<DeviceIndex>(device));
  std::lock_guard<std::mutex> guard(figuring_);
  *out = levels_[device];
  return true;
}

void RecordingAllocator::forked() {
  // Another thread of the parent may have held the lock.
  new (&figuring_) std::mutex;
  for (int device = 0; device < WEIR_RING_DEVICES; device++) {
    begun_[device] = false;
    levels_[device] = weir_gauges{};
  }
}

} // namespace weir
