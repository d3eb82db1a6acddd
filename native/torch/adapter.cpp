// Weir's engine as PyTorch's CUDA allocator: requests and frees.
// No lock of ours is held while PyTorch's allocator, an observer, the profiler or Python is called.
#include "adapter.h"

#include <c10/core/impl/GPUTrace.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>

#include <new>

#include "faults.h"
#include "request_stack.h"
#include "shortage.h"

namespace weir {

namespace {

// A deleter is a plain function, so it needs a global to find its allocator.
WeirAllocator* the_allocator = nullptr;

// The stack of the request or free that this thread is executing, gathered before the lock of the device is taken.
thread_local Context* at_hand = nullptr;
struct AtHand {
  explicit AtHand(Context* context) : before(at_hand) { at_hand = context; }
  ~AtHand() { at_hand = before; } // a request may ask the program for memory, which then frees blocks
  AtHand(const AtHand&) = delete;
  AtHand& operator=(const AtHand&) = delete;
  Context* const before;
};

struct Attempt {
  Attempt() { attempting = true; }
  ~Attempt() { attempting = before; }
  Attempt(const Attempt&) = delete;
  Attempt& operator=(const Attempt&) = delete;
  const bool before = attempting;
};

uint64_t handle_of(cudaStream_t stream) { return reinterpret_cast<uint64_t>(stream); }
uint64_t address_of(const void* ptr) { return reinterpret_cast<uint64_t>(ptr); }
c10::Device cuda_device(DeviceIndex index) { return {c10::DeviceType::CUDA, index}; }

// PyTorch's streams by their ids, as c10/cuda/CUDAStream.cpp makes them: index, priority from 1 on, 1. Reading a stream by its id
// makes none: where the pool was never used, it is null.
constexpr int kStreamsPerPool = 32;
cudaStream_t pooled(DeviceIndex device, int priority, int index) {
  return c10::cuda::CUDAStream::unpack3((index << 5) | (priority << 1) | 1, device, c10::DeviceType::CUDA).stream();
}

// How many priorities PyTorch's streams have.
int pool_priorities(DeviceIndex device) {
  int count = 0;
  try {
    (void)c10::cuda::getCurrentCUDAStream(device); // PyTorch counts them at the first use of streams
    for (; count < c10::cuda::max_compile_time_stream_priorities; count++) (void)pooled(device, count + 1, 0);
  } catch (const c10::Error&) {
    // There is no stream of the next priority.
  }
  return count;
}

} // namespace

WeirAllocator::WeirAllocator(CUDAAllocator* native, Settings settings, Recording* recording)
    : Forwarding(native), settings_(settings), recording_(recording) {
  for (int device = 0; device < kDevices; device++) {
    slots_[device].device = static_cast<DeviceIndex>(device);
    slots_[device].owner = this;
  }
  the_allocator = this;
}

void WeirAllocator::init(int device_count) {
  native_->init(device_count);
  int before = initialized_.load();
  if (device_count <= before || !initialized_.compare_exchange_strong(before, device_count)) return;
  for (int device = before; device < std::min(device_count, kDevices); device++) {
    // PyTorch's allocator has set this fraction for itself. Asking the allocator would make each GPU current and so start it.
    slots_[device].fraction = slots_[device].native_fraction = configured_fraction();
  }
  // PyTorch attaches a tracker to the devices that exist now. That is all of them, since init runs once.
  if (before == 0) native_->attachAllocatorTraceTracker([this](const TraceEntry& entry) { recording_->put_of_pool(entry); });
}

weir_device* WeirAllocator::make_engine(Slot& slot) {
  const int priorities = pool_priorities(slot.device);
  std::lock_guard<std::mutex> guard(making_);
  weir_device* made = slot.engine.load(std::memory_order_acquire);
  if (made) return made;
  char why[256] = "";
  weir_backend* backend = weir_cuda_backend(slot.device, why, sizeof why);
  TORCH_CHECK(backend, "weir: ", why);
  slot.backend = backend;
  uint64_t free = 0;
  backend->memory(backend->driver.context, &free, &slot.total);
  for (const int peer : slot.peers) weir_cuda_allow_peer(backend, peer);
  if (settings_.faults) backend = with_faults(backend, settings_.faults, settings_.faults_seed + slot.device);
  slot.priorities = priorities;
  weir_recorder* const recorder = recording_->open();
  weir_device_options options{};
  options.device = slot.device;
  options.gmlake = settings_.gmlake;
  options.lend = settings_.lend;
  options.fine = settings_.fine;
  options.planned = settings_.planned;
  options.limit = limit_of(slot);
  options.recorder = slot.device < WEIR_RING_DEVICES ? recorder : nullptr;
  options.reclaim = &WeirAllocator::reclaim_for;
  options.reclaim_context = &slot;
  options.may_wait = [](void*) { return attempting ? 0 : 1; };
  options.changed = &WeirAllocator::changed;
  options.changed_context = &slot;
  options.stream_lasts = &WeirAllocator::stream_lasts;
  options.stream_lasts_context = &slot;
  made = weir_device_new(backend, &options);
  TORCH_CHECK(made, "weir: there is no host memory for the engine of GPU ", static_cast<int>(slot.device));
  pools_.locked([&](int open) {
    // Before the engine is visible: a thread that has a block of it must find the engine.
    for (int before = used_.load(); before <= slot.device && !used_.compare_exchange_weak(before, slot.device + 1);) {
    }
    for (slot.captures = 0; slot.captures < open; slot.captures++) weir_device_begin_capture(made);
    std::lock_guard<std::mutex> figuring(slot.figuring);
    slot.engine.store(made, std::memory_order_release);
  });
  open_to_peers(slot);
  return made;
}

// Whether the stream is one of PyTorch's, which are never destroyed. Streams come as bare handles, perhaps of the program's own
// streams. Runs inside the lock of the device, so nothing here may throw: an error could ask for Python's lock.
int WeirAllocator::stream_lasts(void* context, uint64_t stream) {
  const Slot& slot = *static_cast<const Slot*>(context);
  for (int priority = 1; priority <= slot.priorities; priority++) {
    for (int index = 0; index < kStreamsPerPool; index++) {
      if (handle_of(pooled(slot.device, priority, index)) == stream) return 1;
    }
  }
  return 0;
}

WeirAllocator::Slot* WeirAllocator::owner_of(const void* ptr) noexcept {
  const int used = used_.load(std::memory_order_acquire);
  for (int device = 0; device < used; device++) {
    const weir_device* const engine = slots_[device].engine.load(std::memory_order_acquire);
    if (engine && weir_device_owns(engine, address_of(ptr))) return &slots_[device];
  }
  return nullptr;
}

// ---- Allocating.

DataPtr WeirAllocator::allocate(size_t n) {
  const DeviceIndex device = current_device();
  void* const ptr = n == 0 ? nullptr : allocate_on_current(device, n);
  return {ptr, ptr, &WeirAllocator::deleter, cuda_device(device)};
}

void* WeirAllocator::raw_alloc(size_t n) { return n == 0 ? nullptr : allocate_on_current(current_device(), n); }

void* WeirAllocator::allocate_on_current(DeviceIndex device, size_t bytes) {
  return allocate_on(device, bytes, c10::cuda::getCurrentCUDAStream(device).stream());
}

void* WeirAllocator::raw_alloc_with_stream(size_t n, cudaStream_t stream) {
  return n == 0 ? nullptr : allocate_on(current_device(), n, stream);
}

void* WeirAllocator::allocate_on(DeviceIndex device, size_t bytes, cudaStream_t stream) {
  TORCH_CHECK_WITH(OutOfMemoryError, bytes < (1ull << 60), "CUDA out of memory. Tried to allocate more than 1EB memory.");
  TORCH_CHECK(device >= 0 && device < kDevices, "weir: GPU ", static_cast<int>(device), " is beyond the ", kDevices, " it can serve");
  Slot& slot = slots_[device];
  void* ptr;
  if (C10_UNLIKELY(!caching_.load(std::memory_order_relaxed))) {
    ptr = allocate_uncached(slot, bytes, stream);
  } else if (C10_UNLIKELY(pools_.takes(device, stream))) {
    ptr = allocate_native(slot, bytes, stream);
  } else {
    weir_device* engine = slot.engine.load(std::memory_order_acquire);
    if (C10_UNLIKELY(!engine)) {
      engine = make_engine(slot);
      if (device < initialized_.load()) follow_native(slot); // existing private pools count as reserved
    }
    ptr = allocate_ours(slot, engine, bytes, handle_of(stream));
    if (const c10::impl::PyInterpreter* const interpreter = c10::impl::GPUTrace::get_trace(); C10_UNLIKELY(interpreter)) {
      (*interpreter)->trace_gpu_memory_allocation(c10::kCUDA, address_of(ptr));
    }
  }
  return ptr;
}

void* WeirAllocator::allocate_ours(Slot& slot, weir_device* engine, size_t bytes, uint64_t stream) {
  Context context;
  if (C10_UNLIKELY(history_.watched())) context = history_.gather(RecordContext::STATE);
  const AtHand stack(&context);
  const RequestStack request(recording_, bytes);
  weir_allocation given;
  weir_shortage shortage;
  if (C10_UNLIKELY(!weir_device_allocate(engine, bytes, stream, &given, &shortage))) {
    return fail(slot, engine, bytes, stream, shortage, std::move(context));
  }
  void* const ptr = reinterpret_cast<void*>(given.address);
  if (C10_UNLIKELY(c10::memoryProfilingEnabled())) report(slot, ptr, static_cast<int64_t>(given.size));
  return ptr;
}

// Called inside the lock of the device, so that figures and history have the order of the engine.
void WeirAllocator::changed(void* context, weir_change change, const weir_allocation* block, uint64_t reserved) {
  Slot& slot = *static_cast<Slot*>(context);
  Figures& figures = slot.figures;
  if (change == WEIR_GIVEN) figures.given(block->size, block->requested, reserved);
  if (change == WEIR_FREED || change == WEIR_PARKED) figures.let_go(block->size, block->requested);
  if (change == WEIR_FREED || change == WEIR_COMPLETED) figures.completed(block->size, block->requested);
  if (C10_UNLIKELY(slot.owner->history_.watched())) slot.owner->note_change(slot, change, *block);
}

void WeirAllocator::note_change(Slot& slot, weir_change change, const weir_allocation& block) {
  // Called from C, so nothing may be thrown.
  try {
    Context context;
    if (at_hand && change != WEIR_COMPLETED) context = std::move(*at_hand);
    if (change == WEIR_GIVEN) history_.allocated(slot.device, block.address, block.requested, block.stream, std::move(context));
    else if (change == WEIR_COMPLETED) history_.completed(slot.device, block.address, block.requested, block.stream);
    else history_.freed(slot.device, block.address, block.requested, block.stream, std::move(context), change == WEIR_PARKED);
  } catch (...) {
    // The history loses one event.
  }
}

void WeirAllocator::report(Slot& slot, void* ptr, int64_t size) {
  Figures::Levels levels{};
  with_figures(slot, [&](Figures& figures) { levels = figures.levels(); });
  c10::reportMemoryUsageToProfiler(ptr, size, levels.allocated, levels.reserved, cuda_device(slot.device));
}

void* WeirAllocator::fail(Slot& slot, weir_device* engine, size_t bytes, uint64_t stream, const weir_shortage& shortage, Context context) {
  TORCH_CHECK(!weir_device_is_broken(engine),
              "weir: the engine has found a defect in itself and stopped; run again with --allocator expandable, and please report it");
  if (shortage.driver_error[0]) {
    // After an illegal access or a failed device assertion every call fails. The program must see that error, not ours.
    size_t free = 0, total = 0;
    C10_CUDA_CHECK(cudaMemGetInfo(&free, &total));
  }
  // MemPools made with use_on_oom=True serve this case; PyTorch's allocator knows how to use them.
  if (fallback_pools_.load(std::memory_order_relaxed)) {
    try {
      fit_native_limit(slot);
      void* const ptr = native_->raw_alloc_with_stream(bytes, reinterpret_cast<cudaStream_t>(stream));
      follow_native(slot);
      return ptr;
    } catch (const c10::OutOfMemoryError&) {
      forgive_native(slot);
      follow_native(slot);
    }
  }
  TORCH_CHECK_WITH(OutOfMemoryError, !attempting, explain_shortage(slot.device, shortage, settings_.limit));
  RequestStack::before_failure();
  weir_device_failed(engine, &shortage, stream);
  const uint64_t reserved = reserved_now(slot);
  Figures::Levels levels{};
  with_figures(slot, [&](Figures& figures) {
    figures.reserved(reserved);
    figures.failed();
    levels = figures.levels();
  });
  const uint64_t rounded = weir_in_units(bytes);
  if (history_.watched()) history_.failed(slot.device, shortage.device_free, rounded, stream, std::move(context));
  c10::reportOutOfMemoryToProfiler(static_cast<int64_t>(rounded), levels.allocated, levels.reserved, cuda_device(slot.device));
  history_.call_observers(slot.device, rounded, shortage.limit ? shortage.limit : shortage.device_total, shortage.device_free);
  TORCH_CHECK_WITH(OutOfMemoryError, false, explain_shortage(slot.device, shortage, settings_.limit));
}

void* WeirAllocator::allocate_native(Slot& slot, size_t bytes, cudaStream_t stream) {
  void* ptr = nullptr;
  const RequestStack request(recording_, bytes);
  fit_native_limit(slot);
  try {
    ptr = native_->raw_alloc_with_stream(bytes, stream);
  } catch (const c10::OutOfMemoryError&) {
    // We may hold free memory that PyTorch's allocator does not know of.
    give_back_ours(slot, stream);
    fit_native_limit(slot);
    try {
      ptr = native_->raw_alloc_with_stream(bytes, stream);
      forgive_native(slot);
    } catch (const c10::OutOfMemoryError&) {
      forgive_native(slot); // the two attempts are one failure
      follow_native(slot);
      size_t free = 0, total = 0;
      if (cudaMemGetInfo(&free, &total) != cudaSuccess) (void)cudaGetLastError();
      RequestStack::before_failure();
      recording_->put_failure(slot.device, weir_in_units(bytes), free, handle_of(stream));
      if (weir_device* const engine = slot.engine.load(std::memory_order_acquire)) weir_device_count_failure(engine);
      history_.call_observers(slot.device, bytes, total, free);
      throw;
    }
  }
  follow_native(slot);
  return ptr;
}

// PyTorch finds exact addresses in its list of free blocks. Our engine chooses the address itself, but often takes the block that was
// freed last, so one attempt is worth it. It makes no room, and is no failure of the program.
DataPtr WeirAllocator::allocate_at(size_t n, void* address) {
  const DeviceIndex device = current_device();
  if (n != 0 && pools_.takes(device, c10::cuda::getCurrentCUDAStream(device).stream())) {
    const RequestStack request(recording_, n);
    fit_native_limit(slots_[device]);
    DataPtr given = Forwarding::allocate_at(n, address);
    const bool swapped = given.compare_exchange_deleter(native_deleter_, raw_deleter());
    TORCH_INTERNAL_ASSERT(swapped, "weir: a block of PyTorch's allocator has an unknown deleter");
    follow_native(slots_[device]);
    return given;
  }
  const Attempt attempt;
  DataPtr given = allocate(n);
  TORCH_CHECK(n == 0 || given.get() == address, "Could not allocate CUDA storage at exact address ", address,
              ": Weir chooses addresses itself; run with --allocator expandable.");
  return given;
}

// ---- Freeing.

void WeirAllocator::deleter(void* ptr) {
  // Called by a destructor, on any thread, perhaps while the process ends. A failure to free is ignored.
  if (ptr) the_allocator->free_any(ptr);
}

void WeirAllocator::raw_delete(void* ptr) {
  if (ptr) TORCH_CHECK(free_any(ptr), "invalid device pointer: ", ptr);
}

bool WeirAllocator::free_any(void* ptr) {
  if (Slot* const slot = owner_of(ptr); C10_LIKELY(slot != nullptr)) return free_ours(*slot, ptr);
  for (const weir_device* const engine : abandoned_) {
    if (weir_device_owns(engine, address_of(ptr))) return true;
  }
  if (C10_UNLIKELY(is_uncached(ptr))) return free_uncached(ptr);
  free_native(ptr);
  return true;
}

bool WeirAllocator::free_ours(Slot& slot, void* ptr) {
  weir_device* const engine = slot.engine.load(std::memory_order_acquire);
  Context context;
  if (C10_UNLIKELY(history_.watched())) context = history_.gather(RecordContext::ALL);
  if (C10_UNLIKELY(elsewhere_count_.load(std::memory_order_relaxed) != 0) && !await_other_gpus(slot, address_of(ptr))) return true;
  if (const c10::impl::PyInterpreter* const interpreter = c10::impl::GPUTrace::get_trace(); C10_UNLIKELY(interpreter)) {
    (*interpreter)->trace_gpu_memory_deallocation(c10::kCUDA, address_of(ptr));
  }
  const AtHand stack(&context);
  weir_allocation freed;
  if (C10_UNLIKELY(!weir_device_free(engine, address_of(ptr), &freed))) return weir_device_is_broken(engine);
  if (C10_UNLIKELY(c10::memoryProfilingEnabled())) report(slot, ptr, -static_cast<int64_t>(freed.size));
  return true;
}

void WeirAllocator::free_native(void* ptr) {
  native_deleter_(ptr);
  follow_native_everywhere();
}

void WeirAllocator::recordStream(const DataPtr& ptr, c10::cuda::CUDAStream stream) {
  if (!ptr.get()) return;
  if (ptr.get_deleter() != &WeirAllocator::deleter) {
    // Allocated before Weir was installed, or by another process. PyTorch's allocator knows which.
    native_->recordStream(ptr, stream);
    return;
  }
  Slot* const slot = owner_of(ptr.get());
  if (!slot) {
    if (C10_UNLIKELY(is_uncached(ptr.get()))) return;
    // PyTorch's allocator recognises its blocks by their deleter, and this one has ours.
    DataPtr lent(ptr.get(), ptr.get(), native_deleter_, ptr.device());
    try {
      native_->recordStream(lent, stream);
    } catch (...) {
      lent.release_context();
      throw;
    }
    lent.release_context();
    return;
  }
  if (C10_UNLIKELY(stream.device_index() != slot->device)) {
    note_elsewhere(ptr.get(), stream);
    return;
  }
  weir_device* const engine = slot->engine.load(std::memory_order_acquire);
  if (C10_UNLIKELY(!weir_device_record_stream(engine, address_of(ptr.get()), handle_of(stream.stream()))))
    note_elsewhere(ptr.get(), stream);
}

// ---- After a fork.

void WeirAllocator::forked() {
  new (&making_) std::mutex;
  new (&elsewhere_mutex_) std::mutex;
  new (&uncached_mutex_) std::mutex;
  elsewhere_.clear();
  elsewhere_count_ = 0;
  late_.clear();
  pools_.forked();
  history_.forked();
  ipc_.forked();
  for (Slot& slot : slots_) {
    weir_device* const engine = slot.engine.exchange(nullptr);
    if (engine) abandoned_.push_back(engine);
    new (&slot.figuring) std::mutex;
    if (slot.backend && slot.backend->forked) slot.backend->forked(slot.backend->driver.context);
    slot.backend = nullptr;
    slot.captures = 0;
    slot.figures.forked();
  }
  used_ = 0;
}

} // namespace weir
