// What differs between PyTorch's versions, but for the list of virtual functions (functions.h): names, signatures, settings.
// No other file asks for the version. A function that a version lacks does nothing here, or gives what was true before there was one.
#pragma once

#include "weir_abi.h"

#if __has_include(<torch/headeronly/version.h>)
#include <torch/headeronly/version.h>
#else
#include <torch/csrc/api/include/torch/version.h>
#endif
#if TORCH_VERSION_MAJOR != 2 || TORCH_VERSION_MINOR < WEIR_OLDEST_PYTORCH_MINOR
#error "weir: this PyTorch is older than any that Weir knows"
#endif
#define WEIR_TORCH_MINOR TORCH_VERSION_MINOR

// As PyTorch's own CUDA libraries for Linux are compiled. Without it, the headers take expandable segments for unsupported.
#ifndef PYTORCH_C10_DRIVER_API_SUPPORTED
#define PYTORCH_C10_DRIVER_API_SUPPORTED
#endif
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/cuda/CUDAAllocatorConfig.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace weir {

// ---- Names.

namespace torch_alloc = c10::cuda::CUDACachingAllocator;
using c10::DataPtr;
using c10::DeviceIndex;
using c10::GatheredContext;
using torch_alloc::CUDAAllocator;
using torch_alloc::OutOfMemoryObserver;
using torch_alloc::SnapshotInfo;
using Context = std::shared_ptr<GatheredContext>;
using MemoryInfo = std::pair<size_t, size_t>; // free, total
using PoolFilter = std::function<bool(cudaStream_t)>;
using Words = std::vector<std::string>;
using Annotation = std::vector<std::pair<std::string, std::string>>;
using RejectionObserver = std::function<void(int64_t device, size_t asked, size_t held, size_t total)>;
using c10::CachingDeviceAllocator::DeviceStats;
// 2.11 moved them, and keeps the old names.
using torch_alloc::AllocatorTraceTracker;
using torch_alloc::BlockInfo;
using torch_alloc::CreateContextFn;
using torch_alloc::RecordContext;
using torch_alloc::SegmentInfo;
using torch_alloc::TraceEntry;
#if WEIR_TORCH_MINOR >= 9
using c10::MempoolId_t;
#else
using c10::cuda::MempoolId_t;
#endif
#if WEIR_TORCH_MINOR >= 7
using c10::CachingAllocator::Stat;
using c10::CachingAllocator::StatArray;
#else
using c10::CachingDeviceAllocator::Stat;
using c10::CachingDeviceAllocator::StatArray;
#endif
#if WEIR_TORCH_MINOR >= 8
using c10::CachingAllocator::format_size;
#else
using c10::CachingDeviceAllocator::format_size;
#endif

// The MemPool that this thread has made active, which up to 2.7 stands for the argument of emptyCache and snapshot.
inline MempoolId_t active_pool() {
#if WEIR_TORCH_MINOR < 8
  if (c10::cuda::MemPool* const active = c10::cuda::MemPoolContext::getActiveMemPool()) return active->id();
#endif
  return {0, 0};
}

// ---- Calls of PyTorch's allocator, in the form that our own functions have.

namespace calls {

inline void empty_cache(CUDAAllocator* to, MempoolId_t id) {
#if WEIR_TORCH_MINOR >= 8
  to->emptyCache(id);
#else
  (void)id; // PyTorch asks for the thread's active pool itself
  to->emptyCache();
#endif
}

inline SnapshotInfo take_snapshot(CUDAAllocator* to, MempoolId_t id, bool include_traces) {
#if WEIR_TORCH_MINOR >= 11
  return to->snapshot(id, include_traces);
#elif WEIR_TORCH_MINOR >= 8
  (void)include_traces;
  return to->snapshot(id);
#else
  (void)id, (void)include_traces;
  return to->snapshot();
#endif
}

inline void record_history(CUDAAllocator* to, bool on, CreateContextFn gather, size_t most, RecordContext when, bool clear,
                           const Words& skip) {
#if WEIR_TORCH_MINOR >= 11
  to->recordHistory(on, gather, most, when, clear, skip);
#elif WEIR_TORCH_MINOR >= 8
  (void)skip;
  to->recordHistory(on, gather, most, when, clear);
#else
  (void)clear, (void)skip;
  to->recordHistory(on, gather, most, when);
#endif
}

inline void add_pool(CUDAAllocator* to, DeviceIndex device, MempoolId_t id) {
#if WEIR_TORCH_MINOR >= 8
  to->createOrIncrefPool(device, id, nullptr);
#else
  to->ensureExistsAndIncrefPool(device, id);
#endif
}

inline void set_use_on_oom(CUDAAllocator* to, DeviceIndex device, MempoolId_t id, bool use) {
#if WEIR_TORCH_MINOR >= 11
  to->setUseOnOOM(device, id, use);
#elif WEIR_TORCH_MINOR >= 8
  if (use) to->setUseOnOOM(device, id);
#else
  (void)to, (void)device, (void)id, (void)use;
#endif
}

inline void push_compile_context(CUDAAllocator* to, std::string& context) {
#if WEIR_TORCH_MINOR >= 8
  to->pushCompileContext(context);
#else
  (void)to, (void)context;
#endif
}

inline void pop_compile_context(CUDAAllocator* to) {
#if WEIR_TORCH_MINOR >= 8
  to->popCompileContext();
#else
  (void)to;
#endif
}

inline void set_user_metadata(CUDAAllocator* to, const std::string& metadata) {
#if WEIR_TORCH_MINOR >= 10
  to->setUserMetadata(metadata);
#else
  (void)to, (void)metadata;
#endif
}

inline std::string get_user_metadata(CUDAAllocator* to) {
#if WEIR_TORCH_MINOR >= 10
  return to->getUserMetadata();
#else
  (void)to;
  return "";
#endif
}

inline bool supports_user_metadata(CUDAAllocator* to) {
#if WEIR_TORCH_MINOR >= 14
  return to->supportsUserMetadata();
#else
  (void)to;
  return WEIR_TORCH_MINOR >= 10;
#endif
}

inline void annotate(CUDAAllocator* to, const void* ptr, const std::string& metadata) {
#if WEIR_TORCH_MINOR >= 14
  to->annotateMemory(ptr, metadata);
#else
  (void)to, (void)ptr, (void)metadata;
#endif
}

inline Context context_at(CUDAAllocator* to, const void* ptr) {
#if WEIR_TORCH_MINOR >= 12
  return to->getContextForPointer(ptr);
#else
  (void)to, (void)ptr;
  return nullptr;
#endif
}

inline MemoryInfo memory_info(CUDAAllocator* to, DeviceIndex device) {
#if WEIR_TORCH_MINOR >= 10
  return to->getMemoryInfo(device);
#else
  (void)to, (void)device;
  return {0, 0};
#endif
}

inline void mark_capture(CUDAAllocator* to, DeviceIndex device, bool begins) {
#if WEIR_TORCH_MINOR >= 13
  if (begins) to->markCaptureBegin(device);
  else to->markCaptureEnd(device);
#else
  (void)to, (void)device, (void)begins;
#endif
}

inline void attach_rejection_observer(CUDAAllocator* to, RejectionObserver observer) {
#if WEIR_TORCH_MINOR >= 12
  to->attachOomRejectionObserver(std::move(observer));
#else
  (void)to, (void)observer;
#endif
}

inline DataPtr allocate_at(CUDAAllocator* to, size_t bytes, void* address) {
#if WEIR_TORCH_MINOR >= 13
  return to->allocateWithAddress(bytes, address);
#else
  (void)bytes;
  TORCH_CHECK(false, to->name(), " cannot allocate at the address ", address);
#endif
}

} // namespace calls

// Whether a version has the function; our tests ask.
constexpr bool kMarksCaptures = WEIR_TORCH_MINOR >= 13, kAllocatesAt = WEIR_TORCH_MINOR >= 13, kTellsContext = WEIR_TORCH_MINOR >= 12,
               kTellsRejections = WEIR_TORCH_MINOR >= 12, kAnnotates = WEIR_TORCH_MINOR >= 14, kTellsMemory = WEIR_TORCH_MINOR >= 10,
               kHasMetadata = WEIR_TORCH_MINOR >= 10, kSkipsActions = WEIR_TORCH_MINOR >= 11, kEmptiesPools = WEIR_TORCH_MINOR >= 8;

// ---- Entries of the history.

inline TraceEntry trace_entry(TraceEntry::Action action, DeviceIndex device, uint64_t address, uint64_t size, uint64_t stream,
                              c10::approx_time_t time, Context context, std::string compile_context, std::string metadata) {
  const auto where = reinterpret_cast<decltype(TraceEntry::stream_)>(stream);
#if WEIR_TORCH_MINOR >= 10
  return {action, device, address, size, where, {0, 0}, time, std::move(context), std::move(compile_context), std::move(metadata)};
#elif WEIR_TORCH_MINOR >= 8
  (void)metadata;
  return {action, device, address, size, where, {0, 0}, time, std::move(context), std::move(compile_context)};
#else
  (void)compile_context, (void)metadata;
  return {action, device, address, size, where, time, std::move(context)};
#endif
}

// The pool of an entry, if it says.
inline std::optional<MempoolId_t> pool_of(const TraceEntry& entry) {
#if WEIR_TORCH_MINOR >= 8
  return entry.mempool_;
#else
  (void)entry;
  return std::nullopt;
#endif
}

inline std::string metadata_of(const TraceEntry& entry) {
#if WEIR_TORCH_MINOR >= 10
  return entry.user_metadata_;
#else
  (void)entry;
  return "";
#endif
}

inline size_t action_named(const std::string& name) {
#if WEIR_TORCH_MINOR >= 11
  return c10::CachingDeviceAllocator::parseTraceEntryAction(name);
#else
  TORCH_CHECK(false, "weir: there is no event named ", name);
#endif
}

// A note on a block that is there already. Versions without it never ask for one.
#if WEIR_TORCH_MINOR >= 14
constexpr TraceEntry::Action kAnnotation = TraceEntry::ANNOTATE;
#else
constexpr TraceEntry::Action kAnnotation = static_cast<TraceEntry::Action>(9);
#endif

// ---- Statistics.

// Requests refused at once because of throw_on_cudamalloc_oom.
inline int64_t rejections(const DeviceStats& stats) {
#if WEIR_TORCH_MINOR >= 12
  return stats.num_oom_rejections;
#else
  (void)stats;
  return 0;
#endif
}

inline void set_rejections(DeviceStats& stats, int64_t count) {
#if WEIR_TORCH_MINOR >= 12
  stats.num_oom_rejections = count;
#else
  (void)stats, (void)count;
#endif
}

// The reserved bytes of one private pool, or -1 where PyTorch does not count them.
inline int64_t reserved_by_pool(const DeviceStats& stats, MempoolId_t id) {
#if WEIR_TORCH_MINOR >= 13
  const auto found = stats.reserved_bytes_by_private_pools.find(id);
  return found == stats.reserved_bytes_by_private_pools.end() ? 0 : found->second[0].current;
#else
  (void)stats, (void)id;
  return -1;
#endif
}

// ---- Settings.

inline bool expandable_segments() { return torch_alloc::CUDAAllocatorConfig::expandable_segments(); }

inline double configured_fraction() {
#if WEIR_TORCH_MINOR >= 10
  return torch_alloc::CUDAAllocatorConfig::per_process_memory_fraction();
#else
  return 1;
#endif
}

inline std::string allocator_settings() {
#if WEIR_TORCH_MINOR >= 10
  return c10::CachingAllocator::getAllocatorSettings();
#else
  return torch_alloc::CUDAAllocatorConfig::last_allocator_settings();
#endif
}

inline void set_allocator_settings(const std::string& settings) { torch_alloc::setAllocatorSettings(settings); }

// PyTorch registers its allocator with priority 0, from 2.12 on with 1, and a lower priority than the last one is ignored.
constexpr uint8_t kRegistrationPriority = 255;

// Whether PyTorch finds this allocator by the type of device, as torch.accelerator does.
inline bool is_registered(CUDAAllocator* allocator) {
#if WEIR_TORCH_MINOR >= 9
  if (c10::getDeviceAllocator(c10::kCUDA) != allocator) return false;
#endif
  return c10::GetAllocator(c10::kCUDA) == allocator;
}

} // namespace weir
