// The adapter in company, under PyTorch's real c10 libraries, without a GPU: streams of others, several GPUs, graph captures,
// caching turned off, NCCL's hook. Prints what failed; ends with 0 if nothing did.
#include <dlfcn.h>

#include <thread>

#include "harness.h"

// Calls of CUDA's runtime that a capture forbids.
extern int fake_cuda_event_calls __asm__("fake_cuda_event_calls");

// Memory that was freed on `stream` is wanted by the default stream, and no other is left. Gives how often the host waited for it.
static int lend_from(cudaStream_t stream) {
  cca::CUDAAllocator* const a = cca::get();
  a->emptyCache();
  a->setMemoryFraction(0.25, 0);
  a->raw_delete(a->raw_alloc_with_stream(200 * MIB, stream));
  const int before = watched.waits;
  {
    c10::DataPtr other = a->allocate(180 * MIB);
    CHECK(other.get() != nullptr);
  }
  const int waited = watched.waits - before;
  a->setMemoryFraction(1, 0);
  return waited;
}

// A stream that PyTorch does not own, given as a bare handle or as current stream: it may be gone when its memory is wanted.
static void foreign_streams() {
  cca::CUDAAllocator* const a = cca::get();
  const auto made = reinterpret_cast<cudaStream_t>(0xabc0);
  watched.dead = 0xabc0;
  CHECK(lend_from(made) > 0 && watched.touched == 0);
  a->emptyCache();
  const auto before = c10::cuda::getCurrentCUDAStream();
  c10::cuda::setCurrentCUDAStream(c10::cuda::getStreamFromExternal(reinterpret_cast<cudaStream_t>(0xdef0), 0));
  a->allocate(200 * MIB).clear();
  c10::cuda::setCurrentCUDAStream(before);
  watched.dead = 0xdef0;
  a->setMemoryFraction(0.25, 0);
  a->allocate(180 * MIB).clear();
  a->setMemoryFraction(1, 0);
  CHECK(watched.touched == 0);
  watched.dead = 0;
  // PyTorch's own streams lend at once, also as bare handles, of every priority. GMLake's rules know no lending.
  for (int n = 0; n < 33; n++) {
    for (const bool high : {false, true}) {
      const cudaStream_t own = c10::cuda::getStreamFromPool(high, 0).stream();
      CHECK(lend_from(own) == 0 || on_gmlake());
    }
  }
  a->emptyCache();
}

static int64_t blocks_on(int device) {
  return current(cca::get()->getDeviceStats(static_cast<c10::DeviceIndex>(device)), &Stats::allocation);
}

// A block that another GPU uses, freed while a graph is being captured: no event may be touched, and its memory stays until then.
static void freed_while_capturing() {
  cca::CUDAAllocator* const a = cca::get();
  const weir::MempoolId_t id{0, 11}, other{0, 12};
  const auto there = c10::cuda::getStreamFromPool(false, 1);
  weir::calls::add_pool(a, 0, id);
  weir::calls::add_pool(a, 1, other);
  for (const bool twice : {false, true}) {
    c10::DataPtr block = a->allocate(8 * MIB);
    void* const where = block.get();
    a->recordStream(block, there);
    a->beginAllocateToPool(0, id, [](cudaStream_t) { return false; });
    if (twice) a->beginAllocateToPool(1, other, [](cudaStream_t) { return false; });
    fake_cuda_event_calls = 0;
    block.clear();
    CHECK(fake_cuda_event_calls == 0 && blocks_on(0) == 1);
    c10::DataPtr next = a->allocate(8 * MIB);
    CHECK(next.get() != where);
    next.clear();
    a->endAllocateToPool(0, id);
    CHECK((fake_cuda_event_calls == 0) == twice && blocks_on(0) == (twice ? 1 : 0));
    if (twice) a->endAllocateToPool(1, other);
    CHECK(fake_cuda_event_calls >= 3 && blocks_on(0) == 0);
  }
  // A stream of the program may be gone by then: its GPU is waited for instead.
  {
    c10::DataPtr block = a->allocate(8 * MIB);
    a->recordStream(block, c10::cuda::getStreamFromExternal(reinterpret_cast<cudaStream_t>(0x7770), 1));
    a->beginAllocateToPool(0, id, [](cudaStream_t) { return false; });
    fake_cuda_event_calls = 0;
    block.clear();
    a->endAllocateToPool(0, id);
    CHECK(fake_cuda_event_calls == 0 && blocks_on(0) == 0);
  }
  // Otherwise it is waited for at once.
  c10::DataPtr block = a->allocate(8 * MIB);
  a->recordStream(block, there);
  fake_cuda_event_calls = 0;
  block.clear();
  CHECK(fake_cuda_event_calls >= 3 && blocks_on(0) == 0);
  a->releasePool(0, id);
  a->releasePool(1, other);
  a->emptyCache();
}

static bool says(const char* name, const char* otherwise, const char* word) {
  const char* const words = getenv(name);
  return strstr(words ? words : otherwise, word) != nullptr;
}

// NCCL enables peer access on its own, for memory of cudaMalloc. So two GPUs of one process are open to each other.
static void peers() {
  void* const driver = dlopen("libcuda.so.1", RTLD_LAZY);
  const auto may_access = driver ? reinterpret_cast<int (*)(uint64_t, int)>(dlsym(driver, "fake_cuda_may_access")) : nullptr;
  CHECK(may_access);
  if (!may_access) return;
  const int open = says("FAKE_CUDA_HAS", "file peer", "peer") && !says("FAKE_CUDA_REFUSES", "", "peer");
  cca::CUDAAllocator* const a = cca::get();
  const auto address = [](const c10::DataPtr& block) { return reinterpret_cast<uint64_t>(block.get()); };
  c10::DataPtr first = a->allocate(30 * MIB);
  CHECK(may_access(address(first), 0) == 1 && may_access(address(first), 1) == 0);
  c10::cuda::SetDevice(1);
  c10::DataPtr second = a->allocate(30 * MIB);
  CHECK(may_access(address(second), 1) == 1 && may_access(address(second), 0) == open && may_access(address(first), 1) == open);
  c10::cuda::SetDevice(0);
  c10::DataPtr later = a->allocate(60 * MIB);
  CHECK(may_access(address(later), 0) == 1 && may_access(address(later), 1) == open);
  // PyTorch's own call says what it thinks of a refusal.
  bool thrown = false;
  try {
    a->enablePeerAccess(1, 0);
  } catch (const c10::Error&) {
    thrown = true;
  }
  CHECK(thrown == says("FAKE_CUDA_REFUSES", "", "peer"));
}

// torch.cuda.caching_allocator_enable(False): nothing is cached, and every block finds its owner when it is freed.
static void uncached() {
  cca::CUDAAllocator* const a = cca::get();
  a->emptyCache();
  c10::DataPtr cached = a->allocate(10 * MIB);
  void* const raw = a->raw_alloc(5 * MIB);
  size_t before = 0, after = 0, total = 0;
  a->enable(false);
  CHECK(!a->isEnabled());
  cudaMemGetInfo(&before, &total);
  const size_t held = held_by_weir(0);
  {
    c10::DataPtr direct = a->allocate(64 * MIB), empty = a->allocate(0);
    void* const plain = a->raw_alloc_with_stream(3 * MIB, nullptr);
    cudaMemGetInfo(&after, &total);
    CHECK(before - after == 67 * MIB && held_by_weir(0) == held && direct.get_deleter() == a->raw_deleter());
    a->recordStream(direct, c10::cuda::getStreamFromPool());
    CHECK(blocks_on(0) == 2);
    a->raw_delete(plain);
    cached.clear();
    CHECK(blocks_on(0) == 1);
  }
  cudaMemGetInfo(&after, &total);
  CHECK(after == before);
  // Blocks may be freed in the other state than they were allocated in.
  c10::DataPtr direct = a->allocate(64 * MIB);
  a->raw_delete(raw);
  a->enable(true);
  CHECK(a->isEnabled() && blocks_on(0) == 0);
  c10::DataPtr again = a->allocate(10 * MIB);
  CHECK(blocks_on(0) == 1);
  direct.clear();
  again.clear();
  a->emptyCache();
  cudaMemGetInfo(&after, &total);
  CHECK(after == total && held_by_weir(0) == 0);
  // Our cache is given back if the driver has no other memory.
  a->allocate(700 * MIB).clear();
  a->enable(false);
  a->allocate(500 * MIB).clear();
  bool thrown = false;
  try {
    a->allocate(2000 * MIB);
  } catch (const c10::Error&) {
    thrown = true;
  }
  CHECK(thrown);
  a->enable(true);
}

// NCCL must not be given our memory to register: refused at the start, or when its hook is attached.
static void registration() {
  const char* const name = "TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK";
  const auto attach = []() -> std::string {
    try {
      cca::get()->attachAllocatorTraceTracker([](const TraceEntry&) {});
    } catch (const c10::Error& error) {
      return error.what_without_backtrace();
    }
    return "";
  };
  CHECK(attach() == "");
  setenv(name, "0", 1);
  CHECK(attach() == "");
  setenv(name, "TRUE", 1);
  CHECK(attach().find("unset it, or run with --allocator expandable") != std::string::npos);
  unsetenv(name);
}

// Memory of weir_gpu.contiguous(): PyTorch's own, in one piece, and another PyTorch can open what is sent of it.
static void contiguous() {
  cca::CUDAAllocator* const a = cca::get();
  const weir::MempoolId_t id{0, 13};
  const size_t held = held_by_weir(0);
  weir::calls::add_pool(a, 0, id);
  a->beginAllocateToPool(0, id, [](cudaStream_t) { return true; });
  c10::DataPtr block = a->allocate(30 * MIB);
  a->endAllocateToPool(0, id);
  CHECK(held_by_weir(0) == held);
  size_t size = 0;
  CHECK(a->getBaseAllocation(block.get(), &size) == block.get() && size >= 30 * MIB);
  CHECK(a->shareIpcHandle(block.get()).handle.rfind("WEIR", 0) != 0);
  block.clear();
  while (a->getPoolUseCount(0, id) > 0) a->releasePool(0, id);
  CHECK(!weir_torch_expandable());
  size_t before = 0, after = 0, total = 0;
  cudaMemGetInfo(&before, &total);
  void* const plain = weir_torch_plain_alloc(4 * MIB, 0, nullptr);
  cudaMemGetInfo(&after, &total);
  CHECK(plain && before - after == 4 * MIB && !weir_torch_plain_alloc(4096 * MIB, 0, nullptr));
  weir_torch_plain_free(plain, 4 * MIB, 0, nullptr);
  cudaMemGetInfo(&after, &total);
  CHECK(after == before);
}

static std::atomic<bool> entered, over;

static bool comes_true(const std::atomic<bool>& what, int tries) {
  for (; tries > 0 && !what; tries--) usleep(1000);
  return what;
}

static void wait_until_over() {
  entered = true;
  comes_true(over, 20000);
}

// One thread waits for the GPU: `waits` does that. A capture begins only after the wait. Meanwhile others allocate.
static void capture_during(uint64_t pool, const std::function<void()>& waits) {
  cca::CUDAAllocator* const a = cca::get();
  const weir::MempoolId_t id{0, pool};
  weir::calls::add_pool(a, 0, id);
  std::atomic<bool> captures{false}, allocated{false};
  entered = over = false;
  watched.during = &wait_until_over;
  std::thread waiter(waits);
  CHECK(comes_true(entered, 20000));
  watched.during = nullptr;
  std::thread captor([&] {
    a->beginAllocateToPool(0, id, [](cudaStream_t) { return false; });
    captures = true;
  });
  CHECK(!comes_true(captures, 100));
  std::thread other([&] {
    a->raw_delete(a->raw_alloc_with_stream(MIB, nullptr));
    allocated = true;
  });
  CHECK(comes_true(allocated, 5000) && !captures);
  over = true;
  for (std::thread* const thread : {&waiter, &captor, &other}) thread->join();
  a->endAllocateToPool(0, id);
  while (a->getPoolUseCount(0, id) > 0) a->releasePool(0, id);
}

static void captures_and_waits() {
  cca::CUDAAllocator* const a = cca::get();
  a->emptyCache();
  capture_during(14, [] { CHECK(lend_from(reinterpret_cast<cudaStream_t>(0xabc0)) > 0); });
  c10::DataPtr block = a->allocate(5 * MIB);
  std::shared_ptr<void> received = a->getIpcDevPtr(a->shareIpcHandle(block.get()).handle);
  capture_during(15, [&] { received.reset(); });
  block.clear();
  // A private pool that finds no memory waits for the cache of the default pool.
  const weir::MempoolId_t id{0, 16};
  const auto stream = reinterpret_cast<cudaStream_t>(0xabc0);
  weir::calls::add_pool(a, 0, id);
  a->beginAllocateToPool(0, id, [stream](cudaStream_t asking) { return asking == stream; });
  a->allocate(700 * MIB).clear();
  capture_during(17, [&] { a->raw_delete(a->raw_alloc_with_stream(500 * MIB, stream)); });
  a->endAllocateToPool(0, id);
  while (a->getPoolUseCount(0, id) > 0) a->releasePool(0, id);
  a->emptyCache();
}

int main() {
  const weir_torch_options options = options_here();
  if (!installed(options)) return 1;
  start_cuda();
  if (on_cuda()) CHECK(in_child(&peers));
  foreign_streams();
  freed_while_capturing();
  uncached();
  registration();
  contiguous();
  captures_and_waits();
  CHECK(weir_torch_check(3) == 0);
  printf("%d failures\n", failures);
  return failures != 0;
}
