/* The CUDA backend on a stand-in for the driver: takes memory, opens it, shares it, and prints what kind of memory it was.
 * `cuda_memory WORDS`: then the driver begins to refuse that (FAKE_CUDA_REFUSES), and more memory is taken.
 * One line of JSON. Status 0 unless a call failed that must not. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "backend/weir_backend.h"

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
  if (count > 1) {
    setenv("FAKE_CUDA_REFUSES", words[1], 1);
    if (driver->create(driver->context, bytes) < 0) return printf("%s\n", backend->last_error(driver->context)), 7;
  }
  printf("{\"types\":%d,\"rdma\":%d,\"shared\":%d,\"peer\":%d}\n", *kind & 255, *kind >> 8, shared, weir_cuda_can_access(backend, 1));
  backend->close(driver->context);
  return 0;
}
