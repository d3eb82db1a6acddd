// The recording of this process: opened at the first use of a GPU, closed at exit. After a fork the child has none.
// Callbacks come under PyTorch's lock, so nothing here waits, throws or calls PyTorch.
#include "recording.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <new>

#include "request_stack.h"

namespace weir {

namespace {

uint8_t kind_of(TraceEntry::Action action) {
  switch (action) {
    case TraceEntry::ALLOC: return WEIR_ALLOC;
    case TraceEntry::FREE_REQUESTED: return WEIR_FREE_REQUESTED;
    case TraceEntry::FREE_COMPLETED: return WEIR_FREE_COMPLETED;
    case TraceEntry::SEGMENT_ALLOC: return WEIR_SEGMENT_ALLOC;
    case TraceEntry::SEGMENT_FREE: return WEIR_SEGMENT_FREE;
    case TraceEntry::SEGMENT_MAP: return WEIR_SEGMENT_MAP;
    case TraceEntry::SEGMENT_UNMAP: return WEIR_SEGMENT_UNMAP;
    case TraceEntry::SNAPSHOT: return WEIR_SNAPSHOT;
    case TraceEntry::OOM: return WEIR_OOM;
    default: return 0; // notes of the program on its blocks
  }
}

weir_event blank(int device, uint8_t kind) {
  weir_event event{};
  event.kind = kind;
  event.device = static_cast<uint16_t>(device);
  event.stack = -1;
  return event;
}

} // namespace

Recording::Recording(std::string directory, std::string allocator, std::string torch_version, uint32_t rows)
    : directory_(std::move(directory)), allocator_(std::move(allocator)), torch_version_(std::move(torch_version)), rows_(rows) {}

bool Recording::want_stacks(bool natively, uint64_t from_bytes, char* why, size_t room) {
  stacks_ = weir_stacks_new(natively, why, room);
  stacks_from_ = from_bytes;
  autograd_.emplace();
  return stacks_ != nullptr;
}

int32_t Recording::capture_stack() noexcept {
  weir_recorder* const recorder = get();
  if (!recorder || !stacks_) return -1;
  const weir_autograd autograd = autograd_->now();
  return weir_stacks_capture(stacks_, recorder, &autograd);
}

weir_recorder* Recording::open() {
  if (directory_.empty()) return nullptr;
  std::lock_guard<std::mutex> guard(mutex_);
  if (!tried_) {
    tried_ = true;
    recorder_.store(weir_recorder_open_with_stacks(directory_.c_str(), allocator_.c_str(), torch_version_.c_str(), rows_,
                                                   stacks_ ? WEIR_RING_STACKS : 0),
                    std::memory_order_release);
    if (!get()) {
      std::fprintf(stderr,
                   "weir: process %ld is not recorded, planned or counted: its ring cannot be made in %s (no room?); a smaller --ring-rows "
                   "may help\n",
                   static_cast<long>(getpid()), directory_.c_str());
    }
  }
  return get();
}

void Recording::close() noexcept {
  // The recorder stays: engines still write gauges there, and tensors are freed even after this.
  if (weir_recorder* const recorder = recorder_.exchange(nullptr, std::memory_order_acq_rel)) weir_recorder_finish(recorder);
}

void Recording::forked() noexcept {
  new (&mutex_) std::mutex;
  weir_recorder* const recorder = recorder_.exchange(nullptr, std::memory_order_acq_rel);
  if (recorder) weir_recorder_forget(recorder);
  weir_stacks_forked(stacks_);
  tried_ = false;
}

weir_gauges* Recording::gauges(int device) const {
  weir_recorder* const recorder = get();
  return recorder && device >= 0 && device < WEIR_RING_DEVICES ? weir_recorder_gauges(recorder, device) : nullptr;
}

void Recording::put(const TraceEntry& entry, std::optional<MempoolId_t> pool) {
  weir_recorder* const recorder = get();
  const int device = entry.device_;
  const uint8_t kind = kind_of(entry.action_);
  if (!recorder || kind == 0 || device < 0 || device >= WEIR_RING_DEVICES) return;
  weir_event event = blank(device, kind);
  event.address = entry.addr_;
  event.size = entry.size_;
  event.stream = weir_recorder_stream(recorder, device, reinterpret_cast<uint64_t>(entry.stream_));
  event.pool = pool ? weir_recorder_pool(recorder, device, pool->first, pool->second) : -1;
  // Every event needs a stream. One that there is no room for appears as the default stream.
  if (event.stream < 0) event.stream = 0;
  if (const std::string metadata = metadata_of(entry); !metadata.empty()) {
    event.metadata = weir_recorder_string(recorder, metadata.c_str());
  }
  if (kind == WEIR_OOM && RequestStack::keeps(event)) return;
  weir_recorder_put(recorder, event);
}

void Recording::put_of_pool(const TraceEntry& entry) {
  switch (entry.action_) {
    case TraceEntry::SEGMENT_ALLOC:
    case TraceEntry::SEGMENT_FREE:
    case TraceEntry::SEGMENT_MAP:
    case TraceEntry::SEGMENT_UNMAP:
    case TraceEntry::OOM: return;
    // Where entries do not say which pool, all private pools count as one.
    default: put(entry, pool_of(entry).value_or(MempoolId_t{0, UINT64_MAX}));
  }
}

void Recording::put_failure(int device, uint64_t size, uint64_t device_free, uint64_t stream) {
  weir_recorder* const recorder = get();
  if (!recorder || device < 0 || device >= WEIR_RING_DEVICES) return;
  weir_event event = blank(device, WEIR_OOM);
  event.address = device_free;
  event.size = size;
  event.stream = std::max(weir_recorder_stream(recorder, device, stream), 0);
  event.pool = -1;
  weir_recorder_put(recorder, event);
}

void Recording::put_record_stream(int device, uint64_t address, uint64_t block_stream, uint64_t using_stream) {
  weir_recorder* const recorder = get();
  if (!recorder || device < 0 || device >= WEIR_RING_DEVICES) return;
  weir_event event = blank(device, WEIR_RECORD_STREAM);
  event.address = address;
  event.stream = std::max(weir_recorder_stream(recorder, device, block_stream), 0);
  event.pool = -1;
  event.detail = weir_recorder_stream(recorder, device, using_stream);
  if (event.detail < 0) return;
  event.fields = 1;
  weir_recorder_put(recorder, event);
}

void Recording::put_plain(int device, uint8_t kind, uint64_t size) {
  weir_recorder* const recorder = get();
  if (!recorder || device < 0 || device >= WEIR_RING_DEVICES) return;
  weir_event event = blank(device, kind);
  event.size = size;
  event.stream = std::max(weir_recorder_stream(recorder, device, 0), 0);
  event.pool = -1;
  weir_recorder_put(recorder, event);
}

void Recording::put_mark(int device, const char* name) {
  weir_recorder* const recorder = get();
  if (!recorder || device < 0 || device >= WEIR_RING_DEVICES) return;
  weir_event event = blank(device, WEIR_MARK);
  event.stream = std::max(weir_recorder_stream(recorder, device, 0), 0);
  event.pool = -1;
  event.detail = static_cast<int32_t>(weir_recorder_string(recorder, name));
  event.fields = 1;
  weir_recorder_put(recorder, event);
}

} // namespace weir
