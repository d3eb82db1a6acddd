// The history of our blocks for torch.cuda.memory._record_memory_history: events in order, stacks, observers.
// What is kept, and when, follows PyTorch's own allocator.
#include "history.h"

#include <c10/util/ApproximateClock.h>

#include <new>

namespace weir {

namespace {

// Per thread, as in PyTorch: metadata and compile contexts belong to the thread that allocates.
thread_local std::vector<std::string> compile_contexts;
thread_local std::string user_metadata;

} // namespace

void History::configure(bool enabled, CreateContextFn gather, size_t max_entries, RecordContext when, bool clear, const Words& skip) {
  std::array<bool, 16> skipped{};
  for (const std::string& action : skip) skipped[action_named(action)] = true;
  std::lock_guard<std::mutex> guard(mutex_);
  enabled_ = enabled;
  gather_ = enabled ? gather : nullptr;
  when_ = enabled ? when : RecordContext::NEVER;
  max_entries_ = std::max<size_t>(max_entries, 1);
  skipped_ = skipped;
  if (!enabled || clear) {
    for (auto& entries : entries_) entries.clear();
  }
  for (auto& entries : entries_) {
    while (entries.size() > max_entries_) entries.pop_front();
  }
  update_watched();
}

void History::update_watched() { watched_ = enabled_ || !trackers_.empty() || !contexts_.empty(); }

Context History::gather(RecordContext level) const {
  if (when_.load(std::memory_order_relaxed) < level) return nullptr;
  const CreateContextFn function = gather_.load(std::memory_order_relaxed);
  return function ? function() : nullptr;
}

void History::note(TraceEntry::Action action, c10::DeviceIndex device, uint64_t address, uint64_t size, uint64_t stream, Context context,
                   const std::string& metadata) {
  if (!enabled_ && trackers_.empty()) return;
  TraceEntry entry = trace_entry(action, device, address, size, stream, c10::getApproximateTime(),
                                 when_.load() >= RecordContext::ALLOC ? std::move(context) : nullptr,
                                 compile_contexts.empty() ? "N/A" : compile_contexts.back(), metadata);
  for (const auto& tracker : trackers_) tracker(entry);
  if (!enabled_ || skipped_[action] || static_cast<size_t>(device) >= kDevices) return;
  entry.time_.t_ = c10::getTimeSinceEpoch() / 1000;
  auto& entries = entries_[device];
  if (entries.size() >= max_entries_) entries.pop_front();
  entries.push_back(std::move(entry));
}

void History::allocated(c10::DeviceIndex device, uint64_t address, uint64_t requested, uint64_t stream, Context context) {
  std::lock_guard<std::mutex> guard(mutex_);
  note(TraceEntry::ALLOC, device, address, requested, stream, context, user_metadata);
  if (context) contexts_[address] = std::move(context);
  update_watched();
}

void History::freed(c10::DeviceIndex device, uint64_t address, uint64_t requested, uint64_t stream, Context context, bool parked) {
  std::lock_guard<std::mutex> guard(mutex_);
  const auto kept = contexts_.find(address);
  if (kept != contexts_.end()) {
    if (!context) context = kept->second;
    if (!parked) contexts_.erase(kept);
  }
  note(TraceEntry::FREE_REQUESTED, device, address, requested, stream, context, user_metadata);
  if (!parked) note(TraceEntry::FREE_COMPLETED, device, address, requested, stream, std::move(context), user_metadata);
  if (contexts_.empty()) update_watched();
}

void History::completed(c10::DeviceIndex device, uint64_t address, uint64_t requested, uint64_t stream) {
  std::lock_guard<std::mutex> guard(mutex_);
  Context context;
  const auto kept = contexts_.find(address);
  if (kept != contexts_.end()) {
    context = std::move(kept->second);
    contexts_.erase(kept);
  }
  note(TraceEntry::FREE_COMPLETED, device, address, requested, stream, std::move(context), user_metadata);
  if (contexts_.empty()) update_watched();
}

void History::failed(c10::DeviceIndex device, uint64_t device_free, uint64_t rounded, uint64_t stream, Context context) {
  std::lock_guard<std::mutex> guard(mutex_);
  note(TraceEntry::OOM, device, device_free, rounded, stream, std::move(context), user_metadata);
}

void History::snapshot_taken(c10::DeviceIndex device, uint64_t active) {
  std::lock_guard<std::mutex> guard(mutex_);
  note(TraceEntry::SNAPSHOT, device, 0, active, 0, nullptr, user_metadata);
}

void History::annotated(c10::DeviceIndex device, uint64_t address, uint64_t requested, uint64_t stream, Context context,
                        const std::string& metadata) {
  std::lock_guard<std::mutex> guard(mutex_);
  note(kAnnotation, device, address, requested, stream, std::move(context), metadata);
}

std::vector<TraceEntry> History::trace(c10::DeviceIndex device) {
  std::lock_guard<std::mutex> guard(mutex_);
  if (device < 0 || static_cast<size_t>(device) >= kDevices) return {};
  return {entries_[device].begin(), entries_[device].end()};
}

Context History::context_of(uint64_t address) {
  std::lock_guard<std::mutex> guard(mutex_);
  const auto kept = contexts_.find(address);
  return kept == contexts_.end() ? nullptr : kept->second;
}

void History::attach_tracker(AllocatorTraceTracker tracker) {
  std::lock_guard<std::mutex> guard(mutex_);
  trackers_.push_back(std::move(tracker));
  update_watched();
}

void History::attach_observer(OutOfMemoryObserver observer) {
  std::lock_guard<std::mutex> guard(mutex_);
  observers_.push_back(std::move(observer));
}

void History::call_observers(int64_t device, size_t asked, size_t total, size_t free) {
  std::vector<OutOfMemoryObserver> observers;
  {
    std::lock_guard<std::mutex> guard(mutex_);
    observers = observers_;
  }
  for (const auto& observer : observers) observer(device, asked, total, free);
}

void History::push_compile_context(const std::string& context) { compile_contexts.push_back(context); }
void History::pop_compile_context() {
  if (!compile_contexts.empty()) compile_contexts.pop_back();
}
void History::set_metadata(const std::string& metadata) { user_metadata = metadata; }
const std::string& History::metadata() { return user_metadata; }

void History::forked() noexcept { new (&mutex_) std::mutex; }

} // namespace weir
