// Weir's engine as PyTorch's CUDA allocator: limits, statistics, private pools, sharing.
// Most functions add up the two allocators, so that programs see one.
#include "adapter.h"

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>

#include <algorithm>
#include <bitset>

namespace weir {

// ---- Limits.

uint64_t WeirAllocator::limit_of(const Slot& slot) const noexcept {
  uint64_t limit = settings_.limit;
  if (slot.fraction < 1 && slot.total) {
    const uint64_t allowed = static_cast<uint64_t>(slot.fraction * static_cast<double>(slot.total));
    // A limit of 0 would mean no limit, but a fraction of 0 allows nothing.
    limit = limit ? std::min(limit, std::max<uint64_t>(allowed, 1)) : std::max<uint64_t>(allowed, 1);
  }
  return limit;
}

void WeirAllocator::apply_limit(Slot& slot) {
  if (weir_device* const engine = slot.engine.load(std::memory_order_acquire)) weir_device_set_limit(engine, limit_of(slot));
}

// Private pools may take the part of the limit that our engine does not hold.
void WeirAllocator::fit_native_limit(Slot& slot) {
  if (C10_LIKELY(settings_.limit == 0 && slot.fraction >= 1 && slot.native_fraction >= 1)) return;
  weir_device* engine = slot.engine.load(std::memory_order_acquire);
  if (!engine) engine = make_engine(slot);
  const uint64_t limit = limit_of(slot);
  double fraction = 1;
  if (limit && slot.total) {
    const weir_gauges now = weir_device_gauges(engine);
    const uint64_t ours = now.reserved - std::min(now.reserved, now.outside);
    fraction = std::min(1.0, static_cast<double>(limit - std::min(limit, ours)) / static_cast<double>(slot.total));
  }
  if (fraction == slot.native_fraction) return;
  native_->setMemoryFraction(fraction, slot.device);
  slot.native_fraction = fraction;
}

double WeirAllocator::getMemoryFraction(DeviceIndex device) {
  TORCH_CHECK(0 <= device && device < initialized_.load(), "Allocator not initialized for device ", static_cast<int>(device),
              ": did you call init?");
  return slots_[device].fraction;
}

void WeirAllocator::setMemoryFraction(double fraction, DeviceIndex device) {
  native_->setMemoryFraction(fraction, device);
  Slot& slot = slots_[device];
  slot.native_fraction = fraction;
  slot.fraction = fraction;
  apply_limit(slot);
}

// ---- Statistics.

// Includes private pools: the engine is told of them.
uint64_t WeirAllocator::reserved_now(const Slot& slot) const noexcept {
  weir_device* const engine = slot.engine.load(std::memory_order_acquire);
  return engine ? weir_device_gauges(engine).reserved : 0;
}

// Reads PyTorch's figures again. Called after everything that changes them, so that peaks of the sum are right.
void WeirAllocator::follow_native(Slot& slot) {
  const DeviceStats native = native_->getDeviceStats(slot.device);
  uint64_t reserved = static_cast<uint64_t>(native.reserved_bytes[0].current);
  if (weir_device* const engine = slot.engine.load(std::memory_order_acquire)) {
    weir_device_set_outside(engine, reserved);
    reserved = reserved_now(slot);
  }
  with_figures(slot, [&](Figures& figures) {
    figures.follow(native);
    figures.reserved(reserved);
  });
}

// PyTorch's allocator has failed a request, but that is not a failure of the program.
void WeirAllocator::forgive_native(Slot& slot) {
  const DeviceStats native = native_->getDeviceStats(slot.device);
  with_figures(slot, [&](Figures& figures) { figures.forgive(native); });
}

void WeirAllocator::follow_native_everywhere() {
  const int count = std::min(initialized_.load(std::memory_order_acquire), kDevices);
  for (int device = 0; device < count; device++) follow_native(slots_[device]);
}

DeviceStats WeirAllocator::getDeviceStats(DeviceIndex device) {
  DeviceStats result = native_->getDeviceStats(device); // throws for a wrong device, or before CUDA has started
  Slot& slot = slots_[device];
  follow_native(slot);
  weir_device* const engine = slot.engine.load(std::memory_order_acquire);
  const uint64_t retries = engine ? weir_device_gauges(engine).retries : 0;
  with_figures(slot, [&](Figures& figures) { figures.read(result, retries); });
  return result;
}

// Where the run has a limit, that is all the memory there is for the program.
MemoryInfo WeirAllocator::memory_info(DeviceIndex device) {
  auto [free, total] = Forwarding::memory_info(device);
  if (settings_.limit) {
    const bool started = device >= 0 && device < initialized_.load();
    const uint64_t reserved = started ? static_cast<uint64_t>(getDeviceStats(device).reserved_bytes[0].current) : 0;
    free = std::min<size_t>(free, settings_.limit - std::min(settings_.limit, reserved));
    total = std::min<size_t>(total, settings_.limit);
  }
  return {free, total};
}

void WeirAllocator::resetAccumulatedStats(DeviceIndex device) {
  Slot& slot = slots_[device];
  getDeviceStats(device); // takes in all figures so far, and checks the device
  native_->resetAccumulatedStats(device);
  const DeviceStats native = native_->getDeviceStats(device);
  with_figures(slot, [&](Figures& figures) {
    figures.restart(native);
    figures.reset_accumulated();
  });
}

void WeirAllocator::resetPeakStats(DeviceIndex device) {
  Slot& slot = slots_[device];
  getDeviceStats(device);
  native_->resetPeakStats(device);
  const DeviceStats native = native_->getDeviceStats(device);
  // The gauges of the recording keep their peaks, even if the program resets PyTorch's each step.
  with_figures(slot, [&](Figures& figures) {
    figures.follow(native);
    figures.reset_peaks();
  });
}

bool WeirAllocator::gauges(int device, weir_gauges* out) {
  weir_device* const there = engine(device);
  if (there) *out = weir_device_gauges(there);
  return there != nullptr;
}

uint32_t WeirAllocator::check(uint32_t level) {
  for (int device = 0; device < used_.load(); device++) {
    weir_device* const there = engine(device);
    const uint32_t broken = there ? weir_device_check(there, level) : 0;
    if (broken) return broken;
  }
  return 0;
}

void WeirAllocator::cacheInfo(DeviceIndex device, size_t* largest) {
  native_->cacheInfo(device, largest); // starts with the free memory of the GPU
  weir_device* const there = engine(device);
  if (!there) return;
  const size_t ours = weir_device_largest_free(there);
  if (const uint64_t limit = limit_of(slots_[device])) {
    *largest = std::min<size_t>(*largest, limit - std::min<uint64_t>(limit, reserved_now(slots_[device])));
  }
  *largest = std::max(*largest, ours);
}

void* WeirAllocator::getBaseAllocation(void* ptr, size_t* size) {
  Slot* const slot = owner_of(ptr);
  if (!slot) return native_->getBaseAllocation(ptr, size);
  weir_allocation found;
  TORCH_CHECK(weir_device_find_containing(slot->engine.load(std::memory_order_acquire), reinterpret_cast<uint64_t>(ptr), &found),
              "invalid device pointer: ", ptr);
  if (size) *size = found.size;
  return reinterpret_cast<void*>(found.address);
}

void WeirAllocator::copy_data(void* dest, const void* src, std::size_t count) const {
  C10_CUDA_CHECK(cudaMemcpy(dest, src, count, cudaMemcpyDeviceToDevice));
}

// ---- Giving back.

void WeirAllocator::empty_cache(MempoolId_t id) {
  Forwarding::empty_cache(id);
  if (id.first == 0 && id.second == 0) {
    for (int device = 0; device < used_.load(); device++) {
      weir_device* const there = engine(device);
      if (!there) continue;
      weir_device_empty_cache(there);
      const uint64_t reserved = reserved_now(slots_[device]);
      with_figures(slots_[device], [&](Figures& figures) { figures.reserved(reserved); });
    }
  }
  follow_native_everywhere();
}

// For a private pool that found no memory. An open pool counts as a capture for the engine, which then gives nothing back. Here
// that is lifted for a moment, since the alternative is to fail. Waiting for the GPU ruins a capture. A request inside a capture
// would fail anyway; a capture of another thread must not be ruined.
void WeirAllocator::give_back_ours(Slot& slot, cudaStream_t stream) {
  weir_device* const there = slot.engine.load(std::memory_order_acquire);
  if (!there) return;
  cudaStreamCaptureStatus capturing = cudaStreamCaptureStatusNone;
  if (cudaStreamIsCapturing(stream, &capturing) != cudaSuccess) (void)cudaGetLastError();
  int pools = 0;
  bool alone = true;
  pools_.locked([&](int open) {
    alone = open <= 1 || capturing == cudaStreamCaptureStatusActive;
    pools = slot.captures;
  });
  if (!alone) return;
  // Without the lock of the pools, which requests of other threads need.
  weir_device_give_back(there, static_cast<uint32_t>(pools));
  const uint64_t reserved = reserved_now(slot);
  with_figures(slot, [&](Figures& figures) { figures.reserved(reserved); });
}

// How often one request may ask for relief.
static constexpr int kMostReliefs = 8;

int WeirAllocator::reclaim_for(void* slot, uint64_t bytes, int attempt) {
  if (attempting) return 0;
  Slot* const asked = static_cast<Slot*>(slot);
  // Called from C, so nothing may be thrown.
  try {
    if (attempt == 0 && asked->owner->reclaim(*asked)) return 1;
  } catch (...) {
  }
  const auto relieve = relief.load();
  // Each attempt asks for twice as much: free memory may lie in too many pieces.
  return relieve && attempt < kMostReliefs ? relieve(asked->device, bytes << attempt) : 0;
}

int WeirAllocator::reclaim(Slot& slot) {
  bool gave = false;
  for (const auto& name : c10::FreeCudaMemoryCallbacksRegistry()->Keys()) {
    gave |= c10::FreeCudaMemoryCallbacksRegistry()->Create(name)->Execute();
  }
  // While a pool is open, PyTorch's allocator must not wait for its events, and asserts that.
  if (pools_.open() == 0 && initialized_.load() > 0) {
    const int64_t before = native_->getDeviceStats(slot.device).reserved_bytes[0].current;
    if (before > 0) {
      Forwarding::empty_cache({0, 0});
      follow_native(slot);
      gave |= native_->getDeviceStats(slot.device).reserved_bytes[0].current < before;
    }
  }
  return gave;
}

// ---- Private pools.

// The engines of all GPUs stop using events: a capture forbids them to all threads of the process. `count` adds to the pools, and
// calls what it is given inside their lock.
template <typename Function>
void WeirAllocator::begin_quiet(Function count) {
  ipc_.hold();
  // A capture begins after the waits for GPUs that are under way. Requests of other threads, which the GPU may depend on, need the
  // lock of the pools meanwhile.
  std::bitset<kDevices> told;
  for (int other = 0; other < used_.load(); other++) {
    weir_device* const there = engine(other);
    if (!there) continue;
    weir_device_begin_capture(there);
    told.set(static_cast<size_t>(other));
  }
  count([&] {
    for (int other = 0; other < used_.load(); other++) {
      weir_device* const there = engine(other);
      if (!there) continue;
      if (!told.test(static_cast<size_t>(other))) weir_device_begin_capture(there); // made in between
      slots_[other].captures++;
    }
  });
}

// Called inside the lock of the pools.
void WeirAllocator::leave_quiet() {
  for (int other = 0; other < used_.load(); other++) {
    weir_device* const there = engine(other);
    if (!there || slots_[other].captures == 0) continue;
    weir_device_end_capture(there);
    slots_[other].captures--;
  }
}

void WeirAllocator::beginAllocateToPool(DeviceIndex device, MempoolId_t id, PoolFilter filter) {
  native_->beginAllocateToPool(device, id, filter);
  begin_quiet([&](auto changed) { pools_.add(device, id, std::move(filter), changed); });
}

void WeirAllocator::endAllocateToPool(DeviceIndex device, MempoolId_t id) {
  pools_.remove(device, id, [this] { leave_quiet(); });
  native_->endAllocateToPool(device, id);
  ipc_.release();
  free_late();
  follow_native(slots_[device]);
}

// PyTorch's allocator must hear of it: by these marks it decides whether it may query events. A CUDA graph opens its pool before,
// since another thread may free a block between the begin of the capture and this call.
void WeirAllocator::mark_capture(DeviceIndex device, bool begins) {
  Forwarding::mark_capture(device, begins);
  if (begins) {
    begin_quiet([this](auto changed) { pools_.mark(changed); });
    return;
  }
  pools_.unmark([this] { leave_quiet(); });
  ipc_.release();
  free_late();
}

void WeirAllocator::releasePool(DeviceIndex device, MempoolId_t id) {
  native_->releasePool(device, id);
  follow_native(slots_[device]);
}

void WeirAllocator::set_use_on_oom(DeviceIndex device, MempoolId_t id, bool use) {
  Forwarding::set_use_on_oom(device, id, use);
  if (use) fallback_pools_ = true;
}

torch_alloc::CheckpointDelta WeirAllocator::setCheckpointPoolState(DeviceIndex device, std::shared_ptr<torch_alloc::AllocatorState> state) {
  torch_alloc::CheckpointDelta delta = native_->setCheckpointPoolState(device, std::move(state));
  for (DataPtr& made : delta.dataptrs_allocd) {
    const bool swapped = made.compare_exchange_deleter(native_deleter_, raw_deleter());
    TORCH_INTERNAL_ASSERT(swapped, "weir: a block of PyTorch's allocator has an unknown deleter");
  }
  follow_native(slots_[device]);
  return delta;
}

// ---- Without a cache: torch.cuda.caching_allocator_enable(False).

void WeirAllocator::enable(bool value) {
  native_->enable(value);
  caching_ = value;
}

// As PyTorch's allocator does then: every block comes from the driver, in private pools too, and no figure counts it.
void* WeirAllocator::allocate_uncached(Slot& slot, size_t bytes, cudaStream_t stream) {
  void* ptr = nullptr;
  if (cudaMalloc(&ptr, bytes) != cudaSuccess) {
    (void)cudaGetLastError();
    give_back_ours(slot, stream);
    C10_CUDA_CHECK(cudaMalloc(&ptr, bytes));
  }
  std::lock_guard<std::mutex> guard(uncached_mutex_);
  uncached_.insert(ptr);
  uncached_count_ = uncached_.size();
  return ptr;
}

bool WeirAllocator::is_uncached(const void* ptr) {
  if (C10_LIKELY(uncached_count_.load(std::memory_order_relaxed) == 0)) return false;
  std::lock_guard<std::mutex> guard(uncached_mutex_);
  return uncached_.count(ptr) != 0;
}

bool WeirAllocator::free_uncached(void* ptr) {
  {
    std::lock_guard<std::mutex> guard(uncached_mutex_);
    uncached_.erase(ptr);
    uncached_count_ = uncached_.size();
  }
  // Waits for the GPU, so streams that use the block have passed.
  if (cudaFree(ptr) == cudaSuccess) return true;
  (void)cudaGetLastError();
  return false;
}

// ---- Between processes.

torch_alloc::ShareableHandle WeirAllocator::shareIpcHandle(void* ptr) {
  Slot* const slot = owner_of(ptr);
  if (!slot) return native_->shareIpcHandle(ptr);
  std::vector<weir_piece> pieces(16);
  uint64_t start = 0;
  for (;;) {
    char why[256] = "";
    const uint32_t count = weir_device_share(slot->engine.load(std::memory_order_acquire), reinterpret_cast<uint64_t>(ptr), pieces.data(),
                                             static_cast<uint32_t>(pieces.size()), &start, why, sizeof why);
    TORCH_CHECK(count > 0, "weir: this tensor lies in memory that cannot be sent to another process by CUDA IPC (", why,
                "); allocate what is sent inside weir_gpu.contiguous(), or run with --allocator expandable.");
    const bool all = count <= pieces.size();
    pieces.resize(count);
    if (all) break;
  }
  return {static_cast<ptrdiff_t>(reinterpret_cast<uint64_t>(ptr) - start), ipc_.pack(slot->device, pieces)};
}

std::shared_ptr<void> WeirAllocator::getIpcDevPtr(std::string handle) {
  if (!Ipc::is_ours(handle)) return native_->getIpcDevPtr(std::move(handle));
  DeviceIndex device = 0;
  C10_CUDA_CHECK(c10::cuda::GetDevice(&device));
  TORCH_CHECK(device >= 0 && device < kDevices, "weir: GPU ", static_cast<int>(device), " is beyond the ", kDevices, " it can serve");
  Slot& slot = slots_[device];
  if (!slot.engine.load(std::memory_order_acquire)) make_engine(slot);
  return ipc_.open(handle, device, slot.backend);
}

} // namespace weir
