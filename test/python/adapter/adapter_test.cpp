// The adapter under PyTorch's real c10 libraries, without a GPU: see harness.h.
// Prints what failed; ends with 0 if nothing did. `adapter_test speed` measures a pair of allocation and free instead,
// by one thread and by several at once.
#include <dirent.h>
#include <dlfcn.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <random>
#include <thread>

#include "harness.h"

struct Stack : c10::GatheredContext {};
static std::shared_ptr<c10::GatheredContext> gather() { return std::make_shared<Stack>(); }

static void basics() {
  cca::CUDAAllocator* const a = cca::get();
  CHECK(a->name() == "native" && a->initialized());
  CHECK(c10::cuda::current_device() == 0 && a->getMemoryFraction(1) == 1); // asking has not changed the GPU
  CHECK(weir::is_registered(a));
  {
    c10::DataPtr empty = a->allocate(0);
    CHECK(empty.get() == nullptr && empty.device().is_cuda());
    c10::DataPtr small = a->allocate(1000), large = a->allocate(50 * MIB + 1);
    CHECK(small.get_deleter() == a->raw_deleter() && a->is_simple_data_ptr(small));
    const Stats stats = a->getDeviceStats(0);
    CHECK(current(stats, &Stats::allocation) == 2 && current(stats, &Stats::allocation, 1) == 1 &&
          current(stats, &Stats::allocation, 2) == 1);
    CHECK(current(stats, &Stats::requested_bytes) == static_cast<int64_t>(1000 + 50 * MIB + 1));
    CHECK(current(stats, &Stats::allocated_bytes) >= static_cast<int64_t>(1024 + 50 * MIB + 512));
    CHECK(current(stats, &Stats::reserved_bytes) >= current(stats, &Stats::allocated_bytes));
    CHECK(current(stats, &Stats::reserved_bytes) == static_cast<int64_t>(held_by_weir(0)));
    size_t size = 0;
    CHECK(a->getBaseAllocation(static_cast<char*>(large.get()) + 4096, &size) == large.get() && size >= 50 * MIB + 1);
    memset(large.get(), 1, 50 * MIB);
  }
  {
    // Blocks are as large as PyTorch's would be where it has memory to cut them from.
    c10::DataPtr round = a->allocate(100 * MIB), odd = a->allocate(700);
    CHECK(current(a->getDeviceStats(0), &Stats::allocated_bytes) == static_cast<int64_t>(100 * MIB + 1024));
  }
  Stats stats = a->getDeviceStats(0);
  CHECK(current(stats, &Stats::allocated_bytes) == 0 && current(stats, &Stats::active_bytes) == 0 &&
        current(stats, &Stats::requested_bytes) == 0);
  CHECK(stats.allocated_bytes[0].peak >= static_cast<int64_t>(50 * MIB) &&
        stats.allocated_bytes[0].allocated == stats.allocated_bytes[0].freed);
  a->resetPeakStats(0);
  CHECK(a->getDeviceStats(0).allocated_bytes[0].peak == 0);
  a->resetAccumulatedStats(0);
  CHECK(a->getDeviceStats(0).allocated_bytes[0].allocated == 0);
  CHECK(a->getDeviceStats(0).reserved_bytes[0].current > 0);
  size_t largest = 0;
  a->cacheInfo(0, &largest);
  CHECK(largest >= 50 * MIB);
  a->emptyCache();
  CHECK(a->getDeviceStats(0).reserved_bytes[0].current == 0 && held_by_weir(0) == 0);
  bool thrown = false;
  try {
    a->raw_delete(reinterpret_cast<void*>(8));
  } catch (const c10::Error&) {
    thrown = true;
  }
  CHECK(thrown);
}

static void shortage() {
  cca::CUDAAllocator* const a = cca::get();
  static int seen = 0;
  a->attachOutOfMemoryObserver(
      [](int64_t device, size_t asked, size_t total, size_t) { seen += device == 0 && asked >= 2048 * MIB && total > 0; });
  c10::DataPtr kept = a->allocate(300 * MIB);
  bool thrown = false;
  try {
    a->allocate(2048 * MIB);
  } catch (const c10::OutOfMemoryError& error) {
    thrown = true;
    const std::string text = error.what_without_backtrace();
    CHECK(text.rfind("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 1024.00 MiB of which", 0) == 0);
    CHECK(text.find("300.00 MiB") != std::string::npos);
    printf("%s\n", text.c_str());
  }
  CHECK(thrown && seen == 1 && a->getDeviceStats(0).num_ooms == 1);
  a->setMemoryFraction(0.5, 0);
  CHECK(a->getMemoryFraction(0) == 0.5 && a->getMemoryFraction(1) == 1);
  thrown = false;
  try {
    a->allocate(400 * MIB);
  } catch (const c10::OutOfMemoryError& error) {
    thrown = true;
    const std::string text = error.what_without_backtrace();
    CHECK(text.find("This process may hold 512.00 MiB (set_per_process_memory_fraction)") != std::string::npos);
    CHECK(text.find("raise the fraction") != std::string::npos);
    printf("%s\n", text.c_str());
  }
  CHECK(thrown);
  {
    c10::DataPtr fits = a->allocate(100 * MIB);
  }
  a->setMemoryFraction(1, 0);
  {
    c10::DataPtr fits = a->allocate(400 * MIB);
  }
  kept.clear();
  a->emptyCache();
  a->resetAccumulatedStats(0);
  CHECK(a->getDeviceStats(0).num_ooms == 0);
}

// A request that finds no memory asks whoever has said that he may have some.
static void relief() {
  cca::CUDAAllocator* const a = cca::get();
  static std::vector<c10::DataPtr> spare;
  static int asked = 0;
  for (int index = 0; index < 3; index++) spare.push_back(a->allocate(300 * MIB));
  weir_torch_on_shortage([](int device, uint64_t bytes) -> int {
    CHECK(device == 0 && bytes >= 600 * MIB);
    asked++;
    if (spare.empty()) return 0;
    spare.pop_back();
    return 1;
  });
  c10::DataPtr given = a->allocate(600 * MIB);
  CHECK(given.get() != nullptr && asked >= 1 && asked <= 2 && a->getDeviceStats(0).num_ooms == 0);
  asked = 0;
  bool thrown = false;
  try {
    a->allocate(600 * MIB);
  } catch (const c10::OutOfMemoryError&) {
    thrown = true;
  }
  CHECK(thrown && asked >= 1 && spare.empty() && a->getDeviceStats(0).num_ooms == 1);
  // An attempt, such as a prefetch, asks nobody and counts for nothing.
  asked = 0;
  thrown = false;
  weir_gauges before, after;
  CHECK(weir_torch_gauges(0, &before));
  weir_torch_attempt(1);
  try {
    a->allocate(600 * MIB);
  } catch (const c10::OutOfMemoryError&) {
    thrown = true;
  }
  weir_torch_attempt(0);
  CHECK(weir_torch_gauges(0, &after));
  CHECK(thrown && asked == 0 && a->getDeviceStats(0).num_ooms == 1 && after.ooms == before.ooms && after.retries == before.retries);
  weir_torch_on_shortage(nullptr);
  given.clear();
  a->emptyCache();
  a->resetAccumulatedStats(0);
}

// After an illegal access every call is refused, which must not look like a lack of memory.
static void broken_context() {
  void* const driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  int* const refuse = driver ? static_cast<int*>(dlsym(driver, "fake_cuda_refuse")) : nullptr;
  CHECK(refuse);
  if (!refuse) return;
  cca::CUDAAllocator* const a = cca::get();
  a->emptyCache();
  *refuse = fake_cuda_error = 700;
  std::string said = "nothing";
  try {
    a->allocate(300 * MIB);
  } catch (const c10::OutOfMemoryError&) {
    said = "out of memory";
  } catch (const c10::Error& error) {
    said = error.what_without_backtrace();
  }
  *refuse = fake_cuda_error = 0;
  CHECK(said != "nothing" && said.find("out of memory") == std::string::npos && said.find("CUDA") != std::string::npos);
  weir_gauges gauges;
  CHECK(a->getDeviceStats(0).num_ooms == 0 && weir_torch_gauges(0, &gauges));
  {
    c10::DataPtr again = a->allocate(300 * MIB);
  }
  a->emptyCache();
}

static void pools() {
  cca::CUDAAllocator* const a = cca::get();
  a->resetPeakStats(0);
  const weir::MempoolId_t id{0, 7};
  {
    c10::DataPtr ours = a->allocate(200 * MIB);
  }
  a->emptyCache();
  weir::calls::add_pool(a, 0, id);
  a->beginAllocateToPool(0, id, [](cudaStream_t) { return true; });
  c10::DataPtr theirs = a->allocate(200 * MIB);
  CHECK(theirs.get_deleter() == a->raw_deleter());
  a->recordStream(theirs, c10::cuda::getStreamFromPool());
  a->endAllocateToPool(0, id);
  Stats stats = a->getDeviceStats(0);
  CHECK(current(stats, &Stats::allocated_bytes) == static_cast<int64_t>(200 * MIB) &&
        stats.allocated_bytes[0].peak == static_cast<int64_t>(200 * MIB));
  CHECK(stats.reserved_bytes[0].peak < static_cast<int64_t>(300 * MIB) &&
        current(stats, &Stats::reserved_bytes) == static_cast<int64_t>(200 * MIB));
  CHECK(current(stats, &Stats::segment) == 1);
  weir_gauges gauges;
  CHECK(weir_torch_gauges(0, &gauges) && gauges.outside == 200 * MIB && gauges.reserved == 200 * MIB);
  auto snapshot = weir::calls::take_snapshot(a, id, true);
  CHECK(snapshot.segments.size() == 1 && snapshot.segments[0].owner_private_pool_id == id);

  // Another filter that accepts nothing: the request is ours.
  a->beginAllocateToPool(0, id, [](cudaStream_t) { return false; });
  {
    c10::DataPtr ours = a->allocate(MIB);
    CHECK(held_by_weir(0) > 0);
  }
  a->endAllocateToPool(0, id);

  // A pool gets memory that lies in our cache.
  {
    c10::DataPtr ours = a->allocate(700 * MIB);
  }
  CHECK(held_by_weir(0) >= 700 * MIB);
  a->beginAllocateToPool(0, id, [](cudaStream_t) { return true; });
  c10::DataPtr more = a->allocate(500 * MIB);
  a->endAllocateToPool(0, id);
  CHECK(more.get() != nullptr && a->getDeviceStats(0).num_ooms == 0 && held_by_weir(0) < 700 * MIB);
  // What a pool cannot have is counted once, by PyTorch's figures and by ours.
  CHECK(weir_torch_gauges(0, &gauges));
  const uint64_t failed = gauges.ooms;
  a->beginAllocateToPool(0, id, [](cudaStream_t) { return true; });
  try {
    a->allocate(2048 * MIB);
    CHECK(!"served");
  } catch (const c10::OutOfMemoryError&) {
  }
  a->endAllocateToPool(0, id);
  CHECK(a->getDeviceStats(0).num_ooms == 1 && weir_torch_gauges(0, &gauges) && gauges.ooms == failed + 1);
  a->resetAccumulatedStats(0);
  // And the other way round: what a pool has cached is asked back.
  more.clear();
  theirs.clear();
  CHECK(a->getDeviceStats(0).reserved_bytes[0].current >= static_cast<int64_t>(700 * MIB));
  while (a->getPoolUseCount(0, id) > 0) a->releasePool(0, id);
  a->setMemoryFraction(0.999, 0); // so that the engine, whose GPU is not PyTorch's here, counts both
  {
    c10::DataPtr ours = a->allocate(900 * MIB);
  }
  CHECK(a->getDeviceStats(0).num_ooms == 0);
  a->setMemoryFraction(1, 0);
  a->emptyCache();
  CHECK(a->getDeviceStats(0).reserved_bytes[0].current == 0);
}

static void history() {
  cca::CUDAAllocator* const a = cca::get();
  static std::atomic<int> tracked{0};
  a->attachAllocatorTraceTracker([](const TraceEntry& entry) { tracked += entry.action_ == TraceEntry::ALLOC; });
  CHECK(!a->isHistoryEnabled());
  weir::calls::record_history(a, true, &gather, 1000, weir::RecordContext::ALL, true, {});
  CHECK(a->isHistoryEnabled());
  weir::calls::set_user_metadata(a, "phase");
  CHECK(weir::calls::get_user_metadata(a) == (weir::kHasMetadata ? "phase" : ""));
  std::vector<c10::DataPtr> kept;
  for (size_t size : {100ul, 5000ul, 3 * MIB, 30 * MIB}) kept.push_back(a->allocate(size));
  kept[1].clear();
  auto snapshot = weir::calls::take_snapshot(a, {0, 0}, true);
  size_t total = 0, allocated = 0, stacks = 0;
  for (const auto& segment : snapshot.segments) {
    size_t blocks = 0;
    for (const auto& block : segment.blocks) {
      blocks += block.size;
      stacks += block.context_when_allocated != nullptr;
    }
    CHECK(blocks == segment.total_size && segment.is_expandable);
    total += segment.total_size;
    allocated += segment.allocated_size;
  }
  const Stats stats = a->getDeviceStats(0);
  CHECK(total == static_cast<size_t>(current(stats, &Stats::reserved_bytes)));
  CHECK(allocated == static_cast<size_t>(current(stats, &Stats::allocated_bytes)));
  CHECK(stacks == 3);
  CHECK(snapshot.device_traces.size() == 2 && snapshot.device_traces[0].size() == 6);
  if (snapshot.device_traces[0].size() == 6) {
    const auto& trace = snapshot.device_traces[0];
    CHECK(trace[0].action_ == TraceEntry::ALLOC && trace[0].size_ == 100 &&
          weir::metadata_of(trace[0]) == (weir::kHasMetadata ? "phase" : "") && trace[0].context_);
    CHECK(trace[4].action_ == TraceEntry::FREE_REQUESTED && trace[5].action_ == TraceEntry::FREE_COMPLETED && trace[5].size_ == 5000);
    CHECK(trace[0].time_.t_ > 1500000000000000);
  }
  CHECK(weir::calls::take_snapshot(a, {0, 0}, true).device_traces[0].size() == 7);
  CHECK(tracked == 4);
  weir::calls::set_user_metadata(a, "");
  weir::calls::record_history(a, true, nullptr, 2, weir::RecordContext::NEVER, false, {"free_completed"});
  kept.clear();
  CHECK(weir::calls::take_snapshot(a, {0, 0}, true).device_traces[0].size() == 2);
  weir::calls::record_history(a, false, nullptr, 1, weir::RecordContext::NEVER, true, {});
  CHECK(weir::calls::take_snapshot(a, {0, 0}, true).device_traces[0].empty());
}

static void streams() {
  cca::CUDAAllocator* const a = cca::get();
  c10::cuda::CUDAStream side = c10::cuda::getStreamFromPool();
  {
    c10::DataPtr block = a->allocate(10 * MIB);
    a->recordStream(block, side);
  }
  void* raw = a->raw_alloc_with_stream(5 * MIB, side.stream());
  CHECK(raw != nullptr);
  a->raw_delete(raw);
  c10::DataPtr block = a->allocate(MIB);
  // Another GPU, and a stream of it that uses a block of this one.
  c10::cuda::SetDevice(1);
  c10::DataPtr other = a->allocate(MIB);
  CHECK(other.device().index() == 1 && current(a->getDeviceStats(1), &Stats::allocation) == 1);
  a->recordStream(block, c10::cuda::getStreamFromPool(false, 1));
  c10::cuda::SetDevice(0);
  block.clear();
  other.clear();
  CHECK(current(a->getDeviceStats(1), &Stats::allocation) == 0);
  CHECK(a->memcpyAsync(raw, 0, raw, 1, 1, nullptr, false) == cudaSuccess);
}

// A block that is freed while another stream uses it stays active, in the figures as in the history, until that work is over.
static void parked() {
  cca::CUDAAllocator* const a = cca::get();
  c10::cuda::CUDAStream side = c10::cuda::getStreamFromPool();
  a->emptyCache();
  weir::calls::record_history(a, true, &gather, 100, weir::RecordContext::ALL, true, {});
  const int64_t size = 8 * MIB;
  c10::DataPtr block = a->allocate(size - 100);
  void* const where = block.get();
  CHECK(weir_host_enqueue_fill(backends[0], reinterpret_cast<uint64_t>(side.stream()), reinterpret_cast<uint64_t>(where), 4096, 1));
  a->recordStream(block, side);
  block.clear();
  Stats stats = a->getDeviceStats(0);
  CHECK(current(stats, &Stats::allocated_bytes) == 0 && current(stats, &Stats::allocation, 2) == 0);
  CHECK(current(stats, &Stats::active_bytes) == size && current(stats, &Stats::active, 2) == 1 &&
        current(stats, &Stats::active_bytes, 1) == 0);
  CHECK(current(stats, &Stats::requested_bytes) == size - 100);
  auto trace = weir::calls::take_snapshot(a, {0, 0}, true).device_traces[0];
  CHECK(trace.size() == 2 && trace[1].action_ == TraceEntry::FREE_REQUESTED);
  c10::DataPtr other = a->allocate(size);
  CHECK(other.get() != where && current(a->getDeviceStats(0), &Stats::active_bytes) == 2 * size);
  weir_host_run(backends[0], 100, 1);
  c10::DataPtr again = a->allocate(size);
  CHECK(again.get() == where);
  stats = a->getDeviceStats(0);
  CHECK(current(stats, &Stats::active_bytes) == 2 * size && current(stats, &Stats::active) == 2 && stats.active_bytes[0].peak >= 2 * size);
  trace = weir::calls::take_snapshot(a, {0, 0}, true).device_traces[0];
  CHECK(trace.size() == 6); // with a snapshot and another allocation in between
  const TraceEntry* completed = nullptr;
  for (const TraceEntry& entry : trace) {
    if (entry.action_ == TraceEntry::FREE_COMPLETED) completed = &entry;
    if (entry.action_ == TraceEntry::ALLOC && &entry == &trace.back()) CHECK(completed != nullptr);
  }
  CHECK(completed && completed->addr_ == reinterpret_cast<size_t>(where) && completed->size_ == static_cast<size_t>(size - 100) &&
        completed->context_);
  other.clear();
  again.clear();
  weir::calls::record_history(a, false, nullptr, 1, weir::RecordContext::NEVER, true, {});
  stats = a->getDeviceStats(0);
  CHECK(current(stats, &Stats::active_bytes) == 0 && current(stats, &Stats::requested_bytes) == 0 && current(stats, &Stats::active) == 0);
}

static size_t open_files() {
  size_t count = 0;
  DIR* const folder = opendir("/proc/self/fd");
  while (readdir(folder)) count++;
  closedir(folder);
  return count;
}

static void fill(void* ptr, size_t bytes, uint32_t seed) {
  for (size_t n = 0; n < bytes / 4; n++) static_cast<uint32_t*>(ptr)[n] = seed + static_cast<uint32_t>(n);
}

static bool holds(const void* ptr, size_t bytes, uint32_t seed) {
  for (size_t n = 0; n < bytes / 4; n++) {
    if (static_cast<const uint32_t*>(ptr)[n] != seed + static_cast<uint32_t>(n)) return false;
  }
  return true;
}

static char* inside(const std::shared_ptr<void>& base, const cca::ShareableHandle& handle) {
  return static_cast<char*>(base.get()) + handle.offset;
}

static std::string refusal(const std::string& handle) {
  try {
    cca::get()->getIpcDevPtr(handle);
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "";
}

// CUDA IPC: the memory of a block in another process.
static void sharing() {
  cca::CUDAAllocator* const a = cca::get();
  a->emptyCache();
  const size_t before = open_files();
  c10::DataPtr block = a->allocate(5 * MIB);
  char* const bytes = static_cast<char*>(block.get());
  fill(bytes, 5 * MIB, 7);
  const cca::ShareableHandle whole = a->shareIpcHandle(bytes), part = a->shareIpcHandle(bytes + 4096);
  CHECK(whole.handle.rfind("WEIRIPC1", 0) == 0 && whole.handle.size() != 64);
  CHECK(part.handle == whole.handle && part.offset == whole.offset + 4096);
  const size_t files = open_files();
  {
    // In the same process too; twice is once.
    const std::shared_ptr<void> one = a->getIpcDevPtr(whole.handle), two = a->getIpcDevPtr(part.handle);
    CHECK(one == two && inside(one, whole) != bytes && holds(inside(one, whole), 5 * MIB, 7));
    c10::cuda::SetDevice(1);
    const std::shared_ptr<void> there = a->getIpcDevPtr(whole.handle);
    c10::cuda::SetDevice(0);
    CHECK(there != one && holds(inside(there, whole), MIB, 7));
  }
  for (int n = 0; n < 300; n++) (void)a->getIpcDevPtr(a->shareIpcHandle(bytes).handle);
  CHECK(open_files() == files);

  // Another process reads and writes.
  CHECK(in_child([&] {
    const std::shared_ptr<void> base = a->getIpcDevPtr(whole.handle);
    CHECK(holds(inside(base, whole), 5 * MIB, 7));
    fill(inside(base, part), 8192, 1000);
  }));
  CHECK(holds(bytes, 4096, 7) && holds(bytes + 4096, 8192, 1000));

  // Another where the kernel forbids it to take files from others, as most containers do: it asks.
  CHECK(in_child([&] {
    sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 438, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    sock_fprog program{4, rules};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
    const std::shared_ptr<void> base = a->getIpcDevPtr(whole.handle);
    CHECK(holds(inside(base, whole), 4096, 7));
    std::string other = whole.handle; // a file that was never offered
    other[other.size() - 8] = 0;
    CHECK(refusal(other).find("does not let this process take memory") != std::string::npos);
  }));

  // A sender that ends first: the receiver keeps the memory.
  int there[2], back[2];
  CHECK(pipe(there) == 0 && pipe(back) == 0);
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    c10::DataPtr own = a->allocate(3 * MIB);
    fill(own.get(), 3 * MIB, 42);
    const cca::ShareableHandle sent = a->shareIpcHandle(own.get());
    const size_t length = sent.handle.size();
    bool said = write(there[1], &length, sizeof length) == sizeof length && write(there[1], &sent.offset, sizeof sent.offset) > 0 &&
                write(there[1], sent.handle.data(), length) == static_cast<ssize_t>(length);
    char word;
    said = said && read(back[0], &word, 1) == 1;
    _exit(!said);
  }
  close(there[1]);
  close(back[0]);
  size_t length = 0;
  cca::ShareableHandle got{};
  CHECK(read(there[0], &length, sizeof length) == sizeof length && read(there[0], &got.offset, sizeof got.offset) > 0 && length < 4096);
  got.handle.resize(length);
  CHECK(read(there[0], got.handle.data(), length) == static_cast<ssize_t>(length));
  std::shared_ptr<void> kept = a->getIpcDevPtr(got.handle);
  int status = 1;
  CHECK(write(back[1], "x", 1) == 1 && waitpid(child, &status, 0) == child && status == 0);
  CHECK(holds(inside(kept, got), 3 * MIB, 42));
  kept.reset();
  CHECK(refusal(got.handle).find("has ended or has freed it") != std::string::npos);
  for (const int file : {there[0], back[1]}) close(file);

  // While a graph is captured nothing is unmapped; afterwards it is.
  const weir::MempoolId_t id{0, 9};
  std::shared_ptr<void> late = a->getIpcDevPtr(whole.handle);
  char* const seen = inside(late, whole);
  weir::calls::add_pool(a, 0, id);
  a->beginAllocateToPool(0, id, [](cudaStream_t) { return true; });
  late.reset();
  CHECK(holds(seen, 4096, 7));
  a->endAllocateToPool(0, id);
  CHECK(msync(reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(seen) / 4096 * 4096), 4096, MS_ASYNC) != 0);
  while (a->getPoolUseCount(0, id) > 0) a->releasePool(0, id);

  CHECK(refusal(whole.handle.substr(0, 60)).find("damaged") != std::string::npos);
  CHECK(refusal(std::string(whole.handle).append("x")).find("damaged") != std::string::npos);
  bool thrown = false;
  try {
    a->shareIpcHandle(bytes + 600 * MIB);
  } catch (const c10::Error&) {
    thrown = true;
  }
  CHECK(thrown);
  block.clear();

  // A block in pieces: no new memory is left, and no free piece is large enough.
  a->emptyCache();
  a->setMemoryFraction(0.5, 0);
  std::vector<c10::DataPtr> blocks;
  for (int n = 0; n < 4; n++) blocks.push_back(a->allocate(128 * MIB));
  blocks[0].clear();
  blocks[2].clear();
  c10::DataPtr pieces = a->allocate(200 * MIB);
  fill(pieces.get(), 200 * MIB, 77);
  const cca::ShareableHandle sent = a->shareIpcHandle(pieces.get());
  CHECK(sent.handle.size() > whole.handle.size());
  CHECK(in_child([&] {
    const std::shared_ptr<void> base = a->getIpcDevPtr(sent.handle);
    CHECK(holds(inside(base, sent), 200 * MIB, 77));
  }));
  pieces.clear();
  blocks.clear();
  a->setMemoryFraction(1, 0);
  a->emptyCache();
  CHECK(held_by_weir(0) == 0 && weir_torch_check(3) == 0);
  CHECK(open_files() == before + 1); // the socket at which others may ask
}

// Where the driver gives no memory that could be shared, all else works, and what to do is said.
static void no_sharing() {
  c10::DataPtr block = cca::get()->allocate(5 * MIB);
  std::string said;
  try {
    cca::get()->shareIpcHandle(block.get());
  } catch (const c10::Error& error) {
    said = error.what_without_backtrace();
  }
  CHECK(said.find("cannot be sent to another process by CUDA IPC") != std::string::npos &&
        said.find("weir_gpu.contiguous()") != std::string::npos && said.find("--allocator expandable") != std::string::npos);
}

static void threads() {
  cca::CUDAAllocator* const a = cca::get();
  std::vector<std::thread> all;
  for (int number = 0; number < 4; number++) {
    all.emplace_back([a, number] {
      std::mt19937 random(number);
      const c10::cuda::CUDAStream stream = c10::cuda::getStreamFromPool();
      std::vector<void*> kept(16, nullptr);
      for (int n = 0; n < 20000; n++) {
        void*& slot = kept[random() % kept.size()];
        if (slot) a->raw_delete(slot);
        slot = a->raw_alloc_with_stream(1 + (random() % 8 == 0 ? random() % (4 * MIB) : random() % 9000), stream.stream());
        if (n % 512 == 0) (void)a->getDeviceStats(0);
        if (n % 5000 == 0) a->emptyCache();
      }
      for (void* slot : kept) {
        if (slot) a->raw_delete(slot);
      }
    });
  }
  for (auto& thread : all) thread.join();
  const Stats stats = a->getDeviceStats(0);
  CHECK(current(stats, &Stats::allocated_bytes) == 0 && current(stats, &Stats::requested_bytes) == 0 &&
        current(stats, &Stats::allocation) == 0);
  CHECK(weir_torch_check(3) == 0);
}

static void forks() {
  cca::CUDAAllocator* const a = cca::get();
  c10::DataPtr inherited = a->allocate(3 * MIB);
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    const int before = failures;
    inherited.clear();
    {
      c10::DataPtr own = a->allocate(MIB);
      CHECK(own.get() != nullptr && current(a->getDeviceStats(0), &Stats::allocation) == 1);
    }
    CHECK(weir_torch_check(3) == 0);
    fflush(stdout);
    _exit(failures != before);
  }
  int status = 0;
  waitpid(child, &status, 0);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  inherited.clear();
  CHECK(current(a->getDeviceStats(0), &Stats::allocation) == 0);
}

static void speed() {
  cca::CUDAAllocator* const a = cca::get();
  for (size_t size : {4096ul, 2 * MIB, 64 * MIB}) {
    double best = 1e9;
    for (int round = 0; round < 5; round++) {
      const auto start = std::chrono::steady_clock::now();
      for (int n = 0; n < 200000; n++) c10::DataPtr block = a->allocate(size);
      best = std::min(best, std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count() / 200000);
    }
    printf("pair of %zu KiB: %.0f ns\n", size / 1024, best);
  }
}

// Threads that each have a stream of their own, as in test/gpu/torch/pair.cpp: wall time per pair of one thread, processor
// time per pair, each the best of some rounds, and how often a thread slept for each thousand pairs.
static void contention() {
  cca::CUDAAllocator* const a = cca::get();
  for (const int count : {1, 2, 4}) {
    std::vector<c10::cuda::CUDAStream> streams;
    for (int n = 0; n < count; n++) streams.push_back(c10::cuda::getStreamFromPool());
    double best = 1e9, work = 1e9, sleeps = 0;
    const int pairs = 50000, rounds = 15;
    for (int round = 0; round < rounds; round++) {
      std::vector<std::thread> all;
      rusage before, after;
      getrusage(RUSAGE_SELF, &before);
      const auto start = std::chrono::steady_clock::now();
      for (int number = 0; number < count; number++) {
        all.emplace_back([&, number] {
          for (int n = 0; n < pairs; n++) a->raw_delete(a->raw_alloc_with_stream(4096, streams[number].stream()));
        });
      }
      for (auto& thread : all) thread.join();
      const double took = std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count();
      getrusage(RUSAGE_SELF, &after);
      const auto spent = [](const rusage& r) {
        return (r.ru_utime.tv_sec + r.ru_stime.tv_sec) * 1e9 + (r.ru_utime.tv_usec + r.ru_stime.tv_usec) * 1e3;
      };
      best = std::min(best, took / pairs);
      work = std::min(work, (spent(after) - spent(before)) / pairs / count);
      sleeps += static_cast<double>(after.ru_nvcsw - before.ru_nvcsw) / pairs / count * 1000 / rounds;
    }
    printf("%d threads, pair of 4 KiB: %.0f ns, %.0f ns of processor time, %.2f sleeps in 1000 pairs\n", count, best, work, sleeps);
  }
}

// Lives past main: its deleter runs while the process ends.
static c10::DataPtr global;

int main(int count, char** words) {
  weir_torch_options options = options_here();
  char why[256] = "";
  if (!installed(options)) return 1;
  CHECK(weir_torch_install(&options, why, sizeof why) == WEIR_TORCH_ALREADY);
  start_cuda();
  if (count > 1 && !strcmp(words[1], "speed")) {
    speed();
    contention();
    return 0;
  }
  if (count > 1 && !strcmp(words[1], "passthrough")) {
    {
      c10::DataPtr block = cca::get()->allocate(3 * MIB);
      cca::get()->recordStream(block, c10::cuda::getStreamFromPool());
    }
    weir_gauges gauges;
    CHECK(weir_torch_gauges(0, &gauges) && gauges.allocations == 1 && gauges.frees == 1 && gauges.live == 0 && gauges.peak_live == 3 * MIB);
    CHECK(gauges.reserved == 20 * MIB && gauges.peak_allocated >= 3 * MIB);
    weir_torch_swapped(0, 1000, 900, 2, 30);
    weir_torch_steps(7, 1);
    {
      c10::DataPtr block = cca::get()->allocate(3 * MIB);
    }
    CHECK(weir_torch_gauges(0, &gauges) && gauges.swapped_out == 1000 && gauges.swapped_in == 900 && gauges.swap_stalls == 2 &&
          gauges.swap_stall_ns == 30);
    CHECK(gauges.steps == 7 && gauges.swap_settled == 1);
    // What the program allows itself is recorded, too.
    if (const uint64_t before = gauges.limit; before == 0) {
      cca::get()->setMemoryFraction(0.25, 0);
      CHECK(weir_torch_gauges(0, &gauges) && gauges.limit == gauges.total / 4);
      cca::get()->setMemoryFraction(1, 0);
      CHECK(weir_torch_gauges(0, &gauges) && gauges.limit == before);
    }
    // A MemPool that ends gives its own memory back, and no other.
    const weir::MempoolId_t id{0, 7};
    weir::calls::add_pool(cca::get(), 0, id);
    cca::get()->releasePool(0, id);
    if (weir::kEmptiesPools) weir::calls::empty_cache(cca::get(), id);
    weir_torch_mark("pool");
    cca::get()->emptyCache();
    weir_torch_mark("end");
    {
      c10::DataPtr block = cca::get()->allocate(3 * MIB);
      // More than fit into one piece, and a GPU that is not in use.
      std::vector<uint64_t> addresses(300, reinterpret_cast<uint64_t>(block.get()));
      std::vector<uint8_t> categories(300, 3), writes(300, 0);
      writes[299] = 1;
      weir_torch_categories(0, addresses.data(), categories.data(), 300);
      weir_torch_categories(9, addresses.data(), categories.data(), 300);
      weir_torch_categories(-1, addresses.data(), categories.data(), 300);
      weir_torch_operator("aten::mm", 0, 12.5, addresses.data(), writes.data(), 300);
      weir_torch_operator("aten::mm", 0, -1, addresses.data(), writes.data(), 300);
    }
    return failures != 0;
  }
  basics();
  shortage();
  relief();
  if (on_cuda()) broken_context();
  pools();
  history();
  streams();
  if (!on_cuda()) parked(); // there, no work is ever under way
  if (getenv("FAKE_CUDA_REFUSES")) no_sharing();
  else sharing();
  threads();
  forks();
  global = cca::get()->allocate(MIB);
  weir_torch_mark("end");
  printf("%d failures\n", failures);
  return failures != 0;
}
