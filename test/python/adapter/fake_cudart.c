/* A libcudart.so.13 without a GPU: enough for PyTorch's allocator to hand out addresses. Two GPUs of 1 GiB.
 * What PyTorch takes with cudaMalloc counts together with what `fake_cuda_elsewhere` says Weir holds. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef int error;
enum { OK = 0, NO_MEMORY = 2, TOTAL = 1 << 30 };

static _Thread_local int device;
static size_t used[2];
static struct {
  void *address;
  size_t bytes;
  int device;
} blocks[4096];
size_t (*fake_cuda_elsewhere)(int device);
/* What calls are answered after an illegal access; 0 before. */
int fake_cuda_error;

static size_t free_on(int index) {
  size_t all = used[index] + (fake_cuda_elsewhere ? fake_cuda_elsewhere(index) : 0);
  return all < TOTAL ? TOTAL - all : 0;
}

error cudaGetDevice(int *out) {
  *out = device;
  return OK;
}
error cudaSetDevice(int index) {
  device = index;
  return OK;
}
error cudaGetDeviceCount(int *out) {
  *out = 2;
  return OK;
}
error cudaMalloc(void **out, size_t bytes) {
  if (bytes > free_on(device)) return NO_MEMORY;
  for (size_t index = 0; index < sizeof blocks / sizeof *blocks; index++) {
    if (blocks[index].address) continue;
    /* Addresses only: nobody touches them. */
    blocks[index].address = aligned_alloc(2 << 20, bytes);
    blocks[index].bytes = bytes;
    blocks[index].device = device;
    used[device] += bytes;
    *out = blocks[index].address;
    return OK;
  }
  return NO_MEMORY;
}
error cudaFree(void *address) {
  for (size_t index = 0; address && index < sizeof blocks / sizeof *blocks; index++) {
    if (blocks[index].address != address) continue;
    used[blocks[index].device] -= blocks[index].bytes;
    free(address);
    blocks[index].address = NULL;
  }
  return OK;
}
error cudaMemGetInfo(size_t *available, size_t *total) {
  *available = free_on(device);
  *total = TOTAL;
  return fake_cuda_error;
}
/* cudaDeviceProp: name 256, uuid 16, luid 8, node mask 4, then totalGlobalMem. */
error cudaGetDeviceProperties(void *out, int index) {
  (void)index;
  size_t total = TOTAL;
  memcpy((char *)out + 288, &total, sizeof total);
  return OK;
}
error cudaStreamCreateWithPriority(uintptr_t *out, unsigned flags, int priority) {
  static uintptr_t next = 0x1000;
  (void)flags, (void)priority;
  *out = next += 0x100;
  return OK;
}
error cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
  *least = 0;
  *greatest = -1;
  return OK;
}
error cudaStreamIsCapturing(void *stream, int *out) {
  (void)stream;
  *out = 0;
  return OK;
}
int fake_cuda_capture_questions;
error cudaStreamGetCaptureInfo(void *stream, int *status, ...) {
  (void)stream;
  fake_cuda_capture_questions++;
  *status = 0;
  return OK;
}
/* Calls that are forbidden while a graph is being captured. */
int fake_cuda_event_calls;
error cudaEventCreateWithFlags(uintptr_t *out, unsigned flags) {
  (void)flags;
  fake_cuda_event_calls++;
  *out = 0x77;
  return OK;
}
error cudaThreadExchangeStreamCaptureMode(int *mode) {
  (void)mode;
  return OK;
}
error cudaDriverGetVersion(int *out) {
  *out = 13000;
  return OK;
}
error cudaDeviceCanAccessPeer(int *out, int a, int b) {
  (void)a, (void)b;
  *out = 1;
  return OK;
}
const char *cudaGetErrorName(error code) { return code == NO_MEMORY ? "cudaErrorMemoryAllocation" : "cudaErrorUnknown"; }
const char *cudaGetErrorString(error code) { return code == NO_MEMORY ? "out of memory" : "unknown error"; }

#define DOES_NOTHING(name) \
  error name(void) { return OK; }
#define IS_COUNTED(name)     \
  error name(void) {         \
    fake_cuda_event_calls++; \
    return OK;               \
  }
DOES_NOTHING(cudaDeviceEnablePeerAccess)
DOES_NOTHING(cudaDeviceGetDefaultMemPool)
DOES_NOTHING(cudaDeviceSynchronize)
DOES_NOTHING(cudaEventDestroy)
DOES_NOTHING(cudaEventElapsedTime)
IS_COUNTED(cudaEventQuery)
IS_COUNTED(cudaEventRecord)
IS_COUNTED(cudaEventSynchronize)
DOES_NOTHING(cudaFreeAsync)
DOES_NOTHING(cudaGetDriverEntryPointByVersion)
DOES_NOTHING(cudaGetLastError)
DOES_NOTHING(cudaGraphNodeGetDependencies)
DOES_NOTHING(cudaIpcCloseMemHandle)
DOES_NOTHING(cudaIpcGetMemHandle)
DOES_NOTHING(cudaIpcOpenMemHandle)
DOES_NOTHING(cudaMallocAsync)
DOES_NOTHING(cudaMemPoolGetAttribute)
DOES_NOTHING(cudaMemPoolSetAccess)
DOES_NOTHING(cudaMemPoolSetAttribute)
DOES_NOTHING(cudaMemPoolTrimTo)
DOES_NOTHING(cudaMemcpy)
DOES_NOTHING(cudaMemcpyAsync)
DOES_NOTHING(cudaMemcpyPeerAsync)
IS_COUNTED(cudaStreamQuery)
IS_COUNTED(cudaStreamSynchronize)
IS_COUNTED(cudaStreamWaitEvent)
