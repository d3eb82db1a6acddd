// Weir's engine as PyTorch's CUDA allocator: the default pool is ours, private pools stay with PyTorch's own.
// The allocator is leaked on purpose: tensors may be freed by any thread, even after static destructors have run.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "figures.h"
#include "forwarding.h"
#include "history.h"
#include "ipc.h"
#include "pools.h"
#include "recording.h"
#include "runtime/weir_runtime.h"

namespace weir {

struct Settings {
  bool gmlake;
  bool lend;
  bool fine;
  bool planned;
  uint64_t limit;
  uint32_t faults;
  uint64_t faults_seed;
};

// The function that is asked for memory when a request finds none: see weir_torch_on_shortage.
inline std::atomic<int (*)(int device, uint64_t bytes)> relief{nullptr};

// Whether this thread only tries to get memory: see weir_torch_attempt.
inline thread_local bool attempting = false;

class WeirAllocator final : public Forwarding {
 public:
  WeirAllocator(CUDAAllocator* native, Settings settings, Recording* recording);

  void forked() override;
  bool gauges(int device, weir_gauges* out) override;
  uint32_t check(uint32_t level) override;
  bool used(int device) const override { return engine(device) != nullptr; }

  DataPtr allocate(size_t n) override;
  c10::DeleterFnPtr raw_deleter() const override { return &WeirAllocator::deleter; }
  void copy_data(void* dest, const void* src, std::size_t count) const override;
  DataPtr allocate_at(size_t n, void* address) override;
  void* raw_alloc(size_t n) override;
  void* raw_alloc_with_stream(size_t n, cudaStream_t stream) override;
  void raw_delete(void* ptr) override;
  using Forwarding::recordStream;
  void recordStream(const DataPtr& ptr, c10::cuda::CUDAStream stream) override;

  void init(int device_count) override;
  void enable(bool value) override;
  void empty_cache(MempoolId_t id) override;
  void cacheInfo(DeviceIndex device, size_t* largest) override;
  void* getBaseAllocation(void* ptr, size_t* size) override;
  double getMemoryFraction(DeviceIndex device) override;
  void setMemoryFraction(double fraction, DeviceIndex device) override;
  DeviceStats getDeviceStats(DeviceIndex device) override;
  MemoryInfo memory_info(DeviceIndex device) override;
  void resetAccumulatedStats(DeviceIndex device) override;
  void resetPeakStats(DeviceIndex device) override;

  void beginAllocateToPool(DeviceIndex device, MempoolId_t id, PoolFilter filter) override;
  void endAllocateToPool(DeviceIndex device, MempoolId_t id) override;
  void mark_capture(DeviceIndex device, bool begins) override;
  void releasePool(DeviceIndex device, MempoolId_t id) override;
  void set_use_on_oom(DeviceIndex device, MempoolId_t id, bool use) override;
  torch_alloc::CheckpointDelta setCheckpointPoolState(DeviceIndex device, std::shared_ptr<torch_alloc::AllocatorState> state) override;

  SnapshotInfo take_snapshot(MempoolId_t id, bool include_traces) override;
  bool isHistoryEnabled() override { return history_.enabled(); }
  void record_history(bool enabled, CreateContextFn context, size_t max_entries, RecordContext when, bool clear,
                      const Words& skip_actions) override;
  void push_compile_context(std::string& context) override;
  void pop_compile_context() override;
  void set_user_metadata(const std::string& metadata) override;
  std::string get_user_metadata() override { return History::metadata(); }
  void annotate(const void* ptr, const std::string& metadata) override;
  Context context_at(const void* ptr) override;
  void attachOutOfMemoryObserver(OutOfMemoryObserver observer) override;
  void attachAllocatorTraceTracker(AllocatorTraceTracker tracker) override;

  torch_alloc::ShareableHandle shareIpcHandle(void* ptr) override;
  std::shared_ptr<void> getIpcDevPtr(std::string handle) override;
  void enablePeerAccess(DeviceIndex device, DeviceIndex to) override;
  cudaError_t memcpyAsync(void* dst, int dst_device, const void* src, int src_device, size_t count, cudaStream_t stream, bool p2p) override;

 private:
  static constexpr int kDevices = 128;

  // One GPU. Its engine is made at the first use and stays. Fields that every thread reads lie on other cache lines than fields
  // that every block changes.
  struct alignas(64) Slot {
    std::atomic<weir_device*> engine{nullptr};
    weir_backend* backend = nullptr; // the CUDA backend, even if the engine uses it through a faulty one
    WeirAllocator* owner = nullptr;
    DeviceIndex device = 0;
    alignas(64) Figures figures; // used inside the lock of the engine; see with_figures
    alignas(64) std::mutex figuring;
    double fraction = 1.0;
    double native_fraction = 1.0;
    uint64_t total = 0;
    int priorities = 0; // of PyTorch's streams
    int captures = 0; // captures begun on the engine; under the lock of the pools
    std::vector<int> peers;
  };

  static void deleter(void* ptr);

  weir_device* engine(int device) const noexcept {
    return device >= 0 && device < kDevices ? slots_[device].engine.load(std::memory_order_acquire) : nullptr;
  }
  Slot* owner_of(const void* ptr) noexcept;
  weir_device* make_engine(Slot& slot);

  void* allocate_on_current(DeviceIndex device, size_t bytes);
  void* allocate_on(DeviceIndex device, size_t bytes, cudaStream_t stream);
  void* allocate_ours(Slot& slot, weir_device* engine, size_t bytes, uint64_t stream);
  void* allocate_native(Slot& slot, size_t bytes, cudaStream_t stream);
  void* fail(Slot& slot, weir_device* engine, size_t bytes, uint64_t stream, const weir_shortage& shortage, Context context);
  bool free_any(void* ptr);
  bool free_ours(Slot& slot, void* ptr);
  void free_native(void* ptr);
  void note_elsewhere(const void* ptr, c10::cuda::CUDAStream stream);
  bool await_other_gpus(Slot& slot, uint64_t address, bool late = false);
  void await(Slot& slot, uint64_t address, const std::vector<c10::cuda::CUDAStream>& streams, bool late);
  void free_late();
  void open_to_peers(Slot& slot);
  void* allocate_uncached(Slot& slot, size_t bytes, cudaStream_t stream);
  bool is_uncached(const void* ptr);
  bool free_uncached(void* ptr);

  static int stream_lasts(void* slot, uint64_t stream);
  static void changed(void* slot, weir_change change, const weir_allocation* block, uint64_t reserved);
  void note_change(Slot& slot, weir_change change, const weir_allocation& block);
  void report(Slot& slot, void* ptr, int64_t size);

  // Runs a function on the figures of a GPU, inside the lock of its engine, which changes them too.
  template <typename Function>
  void with_figures(Slot& slot, Function function) {
    // Guards the figures until the engine exists, and while it is put in place.
    std::lock_guard<std::mutex> guard(slot.figuring);
    weir_device* const engine = slot.engine.load(std::memory_order_acquire);
    if (!engine) return function(slot.figures);
    std::pair<Function*, Figures*> call{&function, &slot.figures};
    weir_device_locked(
        engine,
        [](void* context) {
          auto& [wanted, figures] = *static_cast<std::pair<Function*, Figures*>*>(context);
          (*wanted)(*figures);
        },
        &call);
  }

  uint64_t reserved_now(const Slot& slot) const noexcept;
  uint64_t limit_of(const Slot& slot) const noexcept;
  void apply_limit(Slot& slot);
  void fit_native_limit(Slot& slot);
  void follow_native(Slot& slot);
  void follow_native_everywhere();
  void forgive_native(Slot& slot);
  template <typename Function>
  void begin_quiet(Function count);
  void leave_quiet();
  void give_back_ours(Slot& slot, cudaStream_t stream);
  int reclaim(Slot& slot);
  static int reclaim_for(void* slot, uint64_t bytes, int attempt);

  const Settings settings_;
  Recording* const recording_;
  std::mutex making_;
  std::atomic<int> used_{0}; // slots below may have an engine
  std::atomic<int> initialized_{0};
  std::atomic<bool> fallback_pools_{false};
  Pools pools_;
  History history_;
  Ipc ipc_;

  // Streams of other GPUs that use a block. They are rare, so they are kept here and not in the engine.
  std::mutex elsewhere_mutex_;
  std::atomic<size_t> elsewhere_count_{0};
  std::unordered_map<uint64_t, std::vector<c10::cuda::CUDAStream>> elsewhere_;
  std::vector<uint64_t> late_; // such blocks, freed during a capture

  // Blocks from the time when the program had turned caching off.
  std::atomic<bool> caching_{true};
  std::mutex uncached_mutex_;
  std::atomic<size_t> uncached_count_{0};
  std::unordered_set<const void*> uncached_;

  std::vector<weir_device*> abandoned_; // engines of the parent process, after a fork; only used for weir_device_owns
  Slot slots_[kDevices];
};

} // namespace weir
