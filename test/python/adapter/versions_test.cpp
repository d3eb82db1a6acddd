// What PyTorch has added to its allocator since 2.10, under its real c10 libraries, without a GPU: see harness.h. What a version
// lacks is not checked. `versions_test limit` has a limit; with `pytorch` as allocator PyTorch's own is behind it.
#include "harness.h"
#include "torch/versions/interface.h"

namespace calls = weir::calls;

// Calls of CUDA's runtime that a capture forbids, and questions whether a stream is being captured.
extern int fake_cuda_event_calls __asm__("fake_cuda_event_calls");
extern int fake_cuda_capture_questions __asm__("fake_cuda_capture_questions");

struct Stack : c10::GatheredContext {};
static std::shared_ptr<c10::GatheredContext> gather() { return std::make_shared<Stack>(); }

static bool throws(const std::function<void()>& call) {
  try {
    call();
  } catch (const c10::Error&) {
    return true;
  }
  return false;
}

// A block from a private pool, which PyTorch's own allocator serves.
static c10::DataPtr from_pool(uint64_t pool, size_t bytes) {
  weir::CUDAAllocator* const a = cca::get();
  const weir::MempoolId_t id{0, pool};
  calls::add_pool(a, 0, id);
  a->beginAllocateToPool(0, id, [](cudaStream_t) { return true; });
  c10::DataPtr block = a->allocate(bytes);
  a->endAllocateToPool(0, id);
  return block;
}

static void drop(uint64_t pool) {
  const weir::MempoolId_t id{0, pool};
  while (cca::get()->getPoolUseCount(0, id) > 0) cca::get()->releasePool(0, id);
  cca::get()->emptyCache();
}

static int64_t blocks_on(c10::DeviceIndex device) { return current(cca::get()->getDeviceStats(device), &Stats::allocation); }

// PyTorch's allocator hears that a capture begins and ends, and so do our engines.
static void marked_captures() {
  weir::CUDAAllocator* const a = cca::get();
  CHECK(throws([&] { calls::mark_capture(a, 0, false); })); // PyTorch's allocator counts, and knows of none
  c10::cuda::SetDevice(1);
  c10::DataPtr other = a->allocate(1 * MIB);
  c10::cuda::SetDevice(0);
  c10::DataPtr block = a->allocate(8 * MIB);
  a->recordStream(block, c10::cuda::getStreamFromPool(false, 1));
  calls::mark_capture(a, 0, true);
  fake_cuda_event_calls = fake_cuda_capture_questions = 0;
  c10::DataPtr pooled = from_pool(21, 4 * MIB);
  CHECK(fake_cuda_capture_questions > 0); // asked only while a capture is under way
  block.clear();
  CHECK(fake_cuda_event_calls == 0 && blocks_on(0) == 2);
  // An engine that is made meanwhile knows of it, too; and pools may open and close inside.
  const weir::MempoolId_t id{0, 22};
  calls::add_pool(a, 0, id);
  a->beginAllocateToPool(0, id, [](cudaStream_t) { return false; });
  a->endAllocateToPool(0, id);
  CHECK(fake_cuda_event_calls == 0 && blocks_on(0) == 2);
  calls::mark_capture(a, 0, false);
  CHECK(fake_cuda_event_calls >= 3 && blocks_on(0) == 1);
  CHECK(throws([&] { calls::mark_capture(a, 0, false); }));
  // As a CUDA graph does it: the pool is opened before the capture, and closed after it.
  block = a->allocate(8 * MIB);
  a->recordStream(block, c10::cuda::getStreamFromPool(false, 1));
  a->beginAllocateToPool(0, id, [](cudaStream_t) { return false; });
  calls::mark_capture(a, 0, true);
  fake_cuda_event_calls = 0;
  block.clear();
  calls::mark_capture(a, 0, false);
  CHECK(fake_cuda_event_calls == 0 && blocks_on(0) == 2);
  a->endAllocateToPool(0, id);
  CHECK(fake_cuda_event_calls >= 3 && blocks_on(0) == 1);
  pooled.clear();
  other.clear();
  drop(21);
  drop(22);
}

// The statistics hold a table of private pools, which goes through our sums as it is.
static void statistics() {
  weir::CUDAAllocator* const a = cca::get();
  c10::DataPtr ours = a->allocate(30 * MIB), theirs = from_pool(23, 200 * MIB);
  Stats stats = a->getDeviceStats(0);
  const Stats copy = stats;
  stats = a->getDeviceStats(0);
  const int64_t pool = weir::reserved_by_pool(copy, {0, 23});
  CHECK(pool == static_cast<int64_t>(200 * MIB) || pool == -1);
  CHECK(weir::reserved_by_pool(stats, {0, 99}) <= 0);
  CHECK(current(copy, &Stats::reserved_bytes) >= static_cast<int64_t>(230 * MIB));
  a->resetPeakStats(0);
  a->resetAccumulatedStats(0);
  CHECK(weir::reserved_by_pool(a->getDeviceStats(0), {0, 23}) == pool);
  theirs.clear();
  drop(23);
  CHECK(weir::reserved_by_pool(a->getDeviceStats(0), {0, 23}) <= 0);
}

// A request of a private pool that PyTorch rejects: told to observers, and counted once although we try twice.
static void rejections() {
  weir::CUDAAllocator* const a = cca::get();
  static std::atomic<int> seen{0};
  calls::attach_rejection_observer(
      a, [](int64_t device, size_t asked, size_t, size_t total) { seen += device == 0 && asked >= 400 * MIB && total == 1024 * MIB; });
  const Stats before = a->getDeviceStats(0);
  weir::set_allocator_settings("throw_on_cudamalloc_oom:True,per_process_memory_fraction:0.25");
  const bool refused = throws([] { from_pool(24, 400 * MIB); });
  a->endAllocateToPool(0, {0, 24});
  weir::set_allocator_settings("throw_on_cudamalloc_oom:False,per_process_memory_fraction:1.0");
  for (int tries = 0; tries < 5000 && seen == 0; tries++) usleep(1000); // PyTorch calls them from another thread
  const Stats after = a->getDeviceStats(0);
  CHECK(refused && seen >= 1 && after.num_ooms == before.num_ooms);
  CHECK(weir::rejections(after) == weir::rejections(before) + 1);
  drop(24);
  a->resetAccumulatedStats(0);
  CHECK(weir::rejections(a->getDeviceStats(0)) == 0);
}

// Exact addresses: PyTorch's allocator finds them in private pools; ours gives what it would give anyway, or says no.
static void exact_addresses() {
  weir::CUDAAllocator* const a = cca::get();
  a->emptyCache();
  const int64_t blocks = blocks_on(0);
  c10::DataPtr block = a->allocate(8 * MIB);
  void* const where = block.get();
  block.clear();
  CHECK(throws([&] { calls::allocate_at(a, 8 * MIB, static_cast<char*>(where) + 2 * MIB); }) && blocks_on(0) == blocks);
  block = calls::allocate_at(a, 8 * MIB, where);
  CHECK(block.get() == where && block.get_deleter() == a->raw_deleter() && blocks_on(0) == blocks + 1);
  CHECK(throws([&] { calls::allocate_at(a, 8 * MIB, where); }) && blocks_on(0) == blocks + 1);
  CHECK(calls::allocate_at(a, 0, where).get() == nullptr);
  // Without memory for it, an address cannot be had; the program is not out of memory.
  block.clear();
  CHECK(throws([&] { calls::allocate_at(a, 4096 * MIB, where); }) && a->getDeviceStats(0).num_ooms == 0);
  block.clear();
  c10::DataPtr pooled = from_pool(25, 4 * MIB);
  void* const there = pooled.get();
  pooled.clear();
  a->beginAllocateToPool(0, {0, 25}, [](cudaStream_t) { return true; });
  pooled = calls::allocate_at(a, 4 * MIB, there);
  CHECK(pooled.get() == there && pooled.get_deleter() == a->raw_deleter() && blocks_on(0) == blocks + 1);
  CHECK(throws([&] { calls::allocate_at(a, 4 * MIB, there); }));
  a->endAllocateToPool(0, {0, 25});
  a->recordStream(pooled, c10::cuda::getStreamFromPool());
  pooled.clear();
  CHECK(blocks_on(0) == blocks);
  drop(25);
}

// Stacks and notes of blocks, whichever allocator they are from.
static void told_of_blocks() {
  weir::CUDAAllocator* const a = cca::get();
  CHECK(calls::supports_user_metadata(a) == weir::kHasMetadata);
  calls::record_history(a, true, &gather, 1000, weir::RecordContext::ALL, true, {});
  c10::DataPtr ours = a->allocate(3 * MIB), theirs = from_pool(26, 5 * MIB);
  for (const c10::DataPtr* const block : {&ours, &theirs}) {
    CHECK((calls::context_at(a, block->get()) != nullptr) == weir::kTellsContext);
    calls::annotate(a, block->get(), "weights");
  }
  CHECK(!calls::context_at(a, &failures));
  int notes = 0;
  const auto snapshot = calls::take_snapshot(a, {0, 0}, true);
  for (const TraceEntry& entry : snapshot.device_traces[0]) {
    if (entry.action_ != weir::kAnnotation) continue;
    CHECK(weir::metadata_of(entry) == "weights");
    CHECK(entry.addr_ == reinterpret_cast<size_t>(ours.get()) ? entry.size_ == 3 * MIB : entry.size_ == 5 * MIB);
    notes++;
  }
  CHECK(notes == (weir::kAnnotates ? 2 : 0));
  if (weir::kAnnotates) CHECK(throws([&] { calls::annotate(a, static_cast<char*>(ours.get()) + 512, "inside"); }));
  calls::record_history(a, false, nullptr, 1, weir::RecordContext::NEVER, true, {});
  ours.clear();
  theirs.clear();
  drop(26);
}

// Up to 2.7 a thread has an active MemPool instead of the argument that later versions have: its snapshot has no other memory, and
// its end gives no other memory back.
static void active_pools() {
#if WEIR_TORCH_MINOR < 8
  weir::CUDAAllocator* const a = cca::get();
  c10::DataPtr ours = a->allocate(30 * MIB);
  const size_t segments = a->snapshot().segments.size();
  ours.clear();
  const int64_t reserved = current(a->getDeviceStats(0), &Stats::reserved_bytes);
  {
    c10::cuda::MemPool pool;
    const c10::cuda::MemPoolContext active(&pool);
    CHECK(segments > 0 && a->snapshot().segments.empty());
  }
  CHECK(reserved > 0 && current(a->getDeviceStats(0), &Stats::reserved_bytes) == reserved);
  a->emptyCache();
  CHECK(current(a->getDeviceStats(0), &Stats::reserved_bytes) < reserved);
#endif
}

// The GPU's memory as torch.accelerator tells it: no more than the run's limit.
static void told_memory(size_t limit) {
  weir::CUDAAllocator* const a = cca::get();
  const auto [free, total] = calls::memory_info(a, 0);
  CHECK(total == (limit ? limit : 1024 * MIB) && free == total);
  c10::DataPtr ours = a->allocate(100 * MIB), theirs = from_pool(27, 60 * MIB);
  const int64_t reserved = current(a->getDeviceStats(0), &Stats::reserved_bytes);
  const auto [left, still] = calls::memory_info(a, 0);
  CHECK(reserved >= static_cast<int64_t>(160 * MIB) && still == total && left == total - static_cast<size_t>(reserved));
  ours.clear();
  theirs.clear();
  drop(27);
  CHECK(calls::memory_info(a, 0).first == total);
}

int main(int count, char** words) {
  weir_torch_options options = options_here();
  if (count > 1 && !strcmp(words[1], "limit")) options.limit = 512 * MIB;
  const bool ours = strcmp(options.allocator, WEIR_ALLOCATOR_PYTORCH) != 0;
  CHECK(weir::interface_differs() == nullptr);
  if (!installed(options)) return 1;
  start_cuda();
  if (!ours) fake_cuda_elsewhere = nullptr; // what PyTorch holds is counted already
  if (weir::kTellsMemory) told_memory(options.limit);
  told_of_blocks();
  active_pools();
  if (ours) {
    statistics();
    if (weir::kMarksCaptures) marked_captures();
    if (weir::kTellsRejections && !options.limit) rejections();
    if (weir::kAllocatesAt) exact_addresses();
  }
  CHECK(weir_torch_check(3) == 0);
  printf("%d failures\n", failures);
  return failures != 0;
}
