/* The CUDA backend on a stand-in for the driver: takes memory, opens it, shares it, and prints what kind of memory it was.
 * `cuda_memory WORDS`: then the driver begins to refuse that (FAKE_CUDA_REFUSES), and more memory is taken.
 * `cuda_memory import`: the memory is imported again and dropped, at first while the driver refuses to wait for the GPU.
 * One line of JSON. Status 0 unless a call failed that must not. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "backend/weir_backend.h"

/* Whether nothing was unmapped before the driver had waited. */
static int waits_before_dropping(weir_backend *backend, const weir_piece *piece) {
  void *context = backend->driver.context;
  int64_t address = backend->import(context, piece, 1);
  if (address <= 0) return 0;
  setenv("FAKE_CUDA_REFUSES", "synchronize", 1);
  int kept = backend->drop_import(context, (uint64_t)address) < 0 && msync((void *)address, 4096, MS_ASYNC) == 0;
  setenv("FAKE_CUDA_REFUSES", "", 1);
  return kept && backend->drop_import(context, (uint64_t)address) == 0 && msync((void *)address, 4096, MS_ASYNC) != 0;
}

int main(int count, char **words) {
  char why[256] = "";
  weir_backend *backend = weir_cuda_backend(0, why, sizeof why);
  if (!backend) return printf("%s\n", why), 2;
  const weir_driver *driver = &backend->driver;
  uint64_t bytes = 2 * backend->granularity, start = 0;
  int64_t handle = driver->create(driver->context, bytes);
  int64_t address = driver->reserve(driver->context, bytes);
  if (handle < 0 || address <= 0) return printf("create: %s\n", backend->last_error(driver->context)), 3;
  if (driver->map(driver->context, (uint64_t)address, (uint64_t)handle) < 0) return 4;
  if (driver->set_access(driver->context, (uint64_t)address, bytes) < 0) return printf("%s\n", backend->last_error(driver->context)), 5;
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  const int *kind = library ? dlsym(library, "fake_cuda_kind") : NULL;
  if (!kind) return 6;
  weir_piece piece;
  int shared = backend->share(driver->context, (uint64_t)address, bytes, &piece, 1, &start) == 1;
  if (count > 1 && strcmp(words[1], "import") == 0) {
    if (!waits_before_dropping(backend, &piece)) return printf("%s\n", backend->last_error(driver->context)), 8;
  } else if (count > 1) {
    setenv("FAKE_CUDA_REFUSES", words[1], 1);
    if (driver->create(driver->context, bytes) < 0) return printf("%s\n", backend->last_error(driver->context)), 7;
  }
  printf("{\"types\":%d,\"rdma\":%d,\"shared\":%d,\"peer\":%d}\n", *kind & 255, *kind >> 8, shared, weir_cuda_can_access(backend, 1));
  backend->close(driver->context);
  return 0;
}
