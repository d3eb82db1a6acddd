// Weir's engine as PyTorch's CUDA allocator: snapshots, history and observers.
// PyTorch's allocator gets the same calls, because it owns the private pools.
#include "adapter.h"

#include <cstdio>

#include <algorithm>

#include "registration.h"
#include "segments.h"

namespace weir {

SnapshotInfo WeirAllocator::take_snapshot(MempoolId_t id, bool include_traces) {
  SnapshotInfo result = Forwarding::take_snapshot(id, include_traces);
  for (auto& entries : result.device_traces) {
    entries.erase(std::remove_if(entries.begin(), entries.end(), [](const TraceEntry& e) { return e.action_ == TraceEntry::SNAPSHOT; }),
                  entries.end());
  }
  const int count = std::min(initialized_.load(), kDevices);
  for (int index = 0; index < count; index++) {
    const DeviceIndex device = static_cast<DeviceIndex>(index);
    if (include_traces && static_cast<size_t>(index) < result.device_traces.size()) {
      auto& theirs = result.device_traces[index];
      std::vector<TraceEntry> ours = history_.trace(device);
      std::vector<TraceEntry> merged;
      merged.reserve(ours.size() + theirs.size());
      std::merge(std::make_move_iterator(theirs.begin()), std::make_move_iterator(theirs.end()), std::make_move_iterator(ours.begin()),
                 std::make_move_iterator(ours.end()), std::back_inserter(merged),
                 [](const TraceEntry& a, const TraceEntry& b) { return a.time_.t_ < b.time_.t_; });
      theirs = std::move(merged);
    }
    weir_device* const there = engine(index);
    uint64_t active = 0;
    if (there && id.first == 0 && id.second == 0) {
      for (auto& segment : segments_of(there, device, [this](uint64_t address) { return history_.context_of(address); })) {
        active += segment.active_size;
        result.segments.push_back(std::move(segment));
      }
    }
    if (history_.watched()) history_.snapshot_taken(device, active);
  }
  std::stable_sort(result.segments.begin(), result.segments.end(), [](const SegmentInfo& a, const SegmentInfo& b) {
    return a.device != b.device ? a.device < b.device : a.address < b.address;
  });
  return result;
}

void WeirAllocator::record_history(bool enabled, CreateContextFn context, size_t max_entries, RecordContext when, bool clear,
                                   const Words& skip_actions) {
  Forwarding::record_history(enabled, context, max_entries, when, clear, skip_actions);
  history_.configure(enabled, context, max_entries, when, clear, skip_actions);
}

void WeirAllocator::push_compile_context(std::string& context) {
  Forwarding::push_compile_context(context);
  History::push_compile_context(context);
}

void WeirAllocator::pop_compile_context() {
  Forwarding::pop_compile_context();
  History::pop_compile_context();
}

void WeirAllocator::set_user_metadata(const std::string& metadata) {
  Forwarding::set_user_metadata(metadata);
  History::set_metadata(metadata);
}

void WeirAllocator::annotate(const void* ptr, const std::string& metadata) {
  Slot* const slot = owner_of(ptr);
  if (!slot) return Forwarding::annotate(ptr, metadata);
  weir_allocation block;
  TORCH_CHECK(weir_device_find(slot->engine.load(std::memory_order_acquire), reinterpret_cast<uint64_t>(ptr), &block),
              "annotateMemory: no live allocation found at pointer ", ptr);
  if (!history_.watched()) return;
  history_.annotated(slot->device, block.address, block.requested, block.stream, history_.gather(RecordContext::ALLOC), metadata);
}

Context WeirAllocator::context_at(const void* ptr) {
  return owner_of(ptr) ? history_.context_of(reinterpret_cast<uint64_t>(ptr)) : Forwarding::context_at(ptr);
}

// Not attached to PyTorch's allocator: our memory may still serve a request that fails there.
void WeirAllocator::attachOutOfMemoryObserver(OutOfMemoryObserver observer) { history_.attach_observer(std::move(observer)); }

void WeirAllocator::attachAllocatorTraceTracker(AllocatorTraceTracker tracker) {
  // The program may have set it after the start. ProcessGroupNCCL attaches its hook before it registers anything.
  if (registers_all_memory()) {
    // Its constructor has started threads by now, so an error in it ends the process, and nobody would see the sentence.
    std::fprintf(stderr, "weir: %s\n", kRegistersAllMemory);
    TORCH_CHECK(false, "weir: ", kRegistersAllMemory, ".");
  }
  native_->attachAllocatorTraceTracker(tracker);
  history_.attach_tracker(std::move(tracker));
}

} // namespace weir
