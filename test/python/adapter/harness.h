// What the programs here share: checks, a GPU that is none, and putting the adapter in place.
// A stand-in for CUDA's runtime, and the host backend as GPU. With TEST_CUDA the CUDA backend is under it instead, on a stand-in
// for the driver.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "testing/weir_testing.h"
#include "torch/options.h"
#include "torch/versions/versions.h"

namespace cca = c10::cuda::CUDACachingAllocator;
using weir::TraceEntry;

// Set by ATen's CUDA part, which is not here.
namespace c10::cuda::_internal {
C10_CUDA_API void setHasPrimaryContext(bool (*)(c10::DeviceIndex));
}

extern int fake_cuda_error __asm__("fake_cuda_error");
extern size_t (*fake_cuda_elsewhere)(int) __asm__("fake_cuda_elsewhere");

// The adapter is compiled with this in the place of weir_cuda_backend.
inline weir_backend* backends[2];
inline bool on_gmlake() { return getenv(WEIR_CHILD_ALLOCATOR) && !strcmp(getenv(WEIR_CHILD_ALLOCATOR), WEIR_ALLOCATOR_GMLAKE); }
inline bool on_cuda() { return getenv("TEST_CUDA") != nullptr; }

// What the engine of GPU 0 asks of streams: calls on one that the program has destroyed, and waits for the whole GPU. `during` is
// called in such a wait, also in that before memory of another process is unmapped.
inline struct Watched {
  weir_backend inner;
  std::vector<uint64_t> names;
  uint64_t dead;
  std::atomic<int> touched, waits;
  void (*during)();
} watched;
inline void watch(weir_backend* backend) {
  watched.inner = *backend;
  backend->name_stream = [](void* context, uint32_t number, uint64_t handle) {
    if (number >= watched.names.size()) watched.names.resize(number + 1);
    watched.names[number] = handle;
    return watched.inner.name_stream(context, number, handle);
  };
  backend->driver.event_record = [](void* context, uint32_t stream, uint32_t slot) {
    watched.touched += watched.dead && watched.names[stream] == watched.dead;
    return watched.inner.driver.event_record(context, stream, slot);
  };
  backend->driver.stream_wait = [](void* context, uint32_t stream, uint32_t slot) {
    watched.touched += watched.dead && watched.names[stream] == watched.dead;
    return watched.inner.driver.stream_wait(context, stream, slot);
  };
  backend->synchronize = [](void* context) {
    watched.waits++;
    if (watched.during) watched.during();
    return watched.inner.synchronize(context);
  };
  backend->drop_import = [](void* context, uint64_t address) {
    if (watched.during) watched.during();
    return watched.inner.drop_import(context, address);
  };
}

extern "C" weir_backend* test_backend(int device, char* why, size_t room) {
  backends[device] = on_cuda() ? weir_cuda_backend(device, why, room) : weir_host_backend(1 << 30, why, room);
  if (device == 0 && backends[device]) watch(backends[device]);
  return backends[device];
}

inline int failures = 0;
#define CHECK(condition)                                  \
  do {                                                    \
    if (!(condition)) {                                   \
      printf("FAIL line %d: %s\n", __LINE__, #condition); \
      failures++;                                         \
    }                                                     \
  } while (0)

inline constexpr size_t MIB = 1 << 20;

inline size_t held_by_weir(int device) {
  weir_gauges gauges;
  return weir_torch_gauges(device, &gauges) ? gauges.reserved - gauges.outside : 0;
}

inline int64_t current(const weir::DeviceStats& stats, weir::StatArray weir::DeviceStats::* member, int type = 0) {
  return (stats.*member)[type].current;
}

using Stats = weir::DeviceStats;

inline bool in_child(const std::function<void()>& work) {
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    failures = 0;
    work();
    fflush(stdout);
    _exit(failures != 0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

inline weir_torch_options options_here() {
  weir_torch_options options{};
  options.digest = WEIR_ABI_DIGEST;
  options.allocator = getenv(WEIR_CHILD_ALLOCATOR) ? getenv(WEIR_CHILD_ALLOCATOR) : WEIR_ALLOCATOR_WEIR;
  options.directory = getenv(WEIR_CHILD_RUN_DIR);
  options.torch_version = TORCH_VERSION;
  options.ring_rows = 1 << 16;
  options.lend = 1;
  return options;
}

inline bool installed(const weir_torch_options& options) {
  char why[256] = "";
  const int result = weir_torch_install(&options, why, sizeof why);
  if (result != 0) printf("FAIL not installed: %s\n", why);
  return result == 0;
}

inline void start_cuda() {
  c10::cuda::_internal::setHasPrimaryContext([](c10::DeviceIndex) { return true; });
  fake_cuda_elsewhere = &held_by_weir;
  cca::get()->init(2);
}
