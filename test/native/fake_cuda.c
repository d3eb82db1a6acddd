/* A libcuda.so.1 without a GPU: real memory behind the calls that native/backend/cuda_backend.c and cuda_ipc.c make, so that they run
 * on any machine. Two GPUs of 1 GiB; work is over at once.
 *
 * FAKE_CUDA_HAS: what the GPUs announce, of the words file, fabric, rdma, peer; all but rdma and fabric if it is not set.
 * FAKE_CUDA_REFUSES: what is refused all the same. file, fabric, rdma: memory of that kind. both: files and fabric together.
 * access: cuMemSetAccess of memory with rdma, as on WSL2. export: files of memory that is also for fabric. peer: access of another
 * GPU. synchronize: waits for the GPU, as while a graph is captured. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

typedef int result;
enum { OK = 0, INVALID = 1, NO_MEMORY = 2, NOT_PERMITTED = 800, NOT_SUPPORTED = 801, CAPTURE_UNSUPPORTED = 900 };
enum { TOTAL = 1 << 30, UNIT = 2 << 20, MOST = 1 << 16, MOST_MAPPINGS = 1 << 14, FILE_TYPE = 1, FABRIC_TYPE = 8, RDMA_FLAG = 1 };

typedef struct {
  int32_t type, handle_types;
  struct {
    int32_t type, id;
  } location;
  void *windows;
  uint8_t flags[8];
} properties;
typedef struct {
  struct {
    int32_t type, id;
  } location;
  int32_t flags;
} access_right;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct {
  int file;
  size_t bytes;
  int device, own, types, rdma;
} handles[MOST];
static size_t used[2];
/* What is mapped, and a bit for each GPU that may access it. */
static struct {
  uint64_t address;
  size_t bytes;
  int rdma;
  unsigned gpus;
} mappings[MOST_MAPPINGS];

static int said(const char *name, const char *otherwise, const char *word) {
  const char *words = getenv(name);
  return strstr(words ? words : otherwise, word) != NULL;
}
static int has(const char *word) { return said("FAKE_CUDA_HAS", "file peer", word); }
static int refuses(const char *word) { return said("FAKE_CUDA_REFUSES", "", word); }

/* For tests: the kind of memory at an address, as handle types and 256 for rdma, or -1; and whether a GPU may access it. */
int fake_cuda_kind = -1;
int fake_cuda_may_access(uint64_t address, int gpu) {
  for (size_t index = 0; index < MOST_MAPPINGS; index++) {
    if (mappings[index].bytes && address - mappings[index].address < mappings[index].bytes) return (mappings[index].gpus >> gpu) & 1;
  }
  return -1;
}

static result add(uint64_t *out, int file, size_t bytes, int device, int own, int types, int rdma) {
  for (uint64_t index = 1; index < MOST; index++) {
    if (handles[index].bytes) continue;
    handles[index].file = file;
    handles[index].bytes = bytes;
    handles[index].device = device;
    handles[index].own = own;
    handles[index].types = types;
    handles[index].rdma = rdma;
    *out = index;
    return OK;
  }
  return INVALID;
}

result cuInit(unsigned flags) {
  (void)flags;
  return OK;
}
result cuDeviceGet(int *out, int index) {
  *out = index;
  return OK;
}
/* Says that it can be, even where it then refuses. */
result cuDeviceGetAttribute(int *out, int attribute, int device) {
  (void)device;
  *out = (attribute == 103 && has("file")) || (attribute == 110 && has("rdma")) || (attribute == 128 && has("fabric"));
  return OK;
}
result cuDeviceCanAccessPeer(int *out, int device, int peer) {
  *out = device != peer && has("peer");
  return OK;
}
result cuDevicePrimaryCtxRetain(void **out, int device) {
  *out = (void *)(uintptr_t)(0x100 + device);
  return OK;
}
result cuDevicePrimaryCtxRelease_v2(int device) {
  (void)device;
  return OK;
}
static _Thread_local int current;
result cuCtxPushCurrent_v2(void *context) {
  current = (int)(uintptr_t)context - 0x100;
  return OK;
}
result cuCtxPopCurrent_v2(void **out) {
  *out = NULL;
  return OK;
}
result cuCtxSynchronize(void) { return refuses("synchronize") ? CAPTURE_UNSUPPORTED : OK; }
result cuThreadExchangeStreamCaptureMode(int *mode) {
  (void)mode;
  return OK;
}
result cuMemGetInfo_v2(size_t *available, size_t *total) {
  *available = TOTAL - used[current];
  *total = TOTAL;
  return OK;
}
result cuMemGetAllocationGranularity(size_t *out, const properties *wanted, int option) {
  (void)wanted, (void)option;
  *out = UNIT;
  return OK;
}

result cuMemAddressReserve(uint64_t *out, size_t bytes, size_t alignment, uint64_t hint, unsigned long long flags) {
  (void)hint, (void)flags;
  char *found = mmap(NULL, bytes + alignment, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (found == MAP_FAILED) return NO_MEMORY;
  char *first = (char *)(((uintptr_t)found + alignment - 1) / alignment * alignment);
  if (first > found) munmap(found, (size_t)(first - found));
  if (found + alignment > first) munmap(first + bytes, (size_t)(found + alignment - first));
  *out = (uint64_t)(uintptr_t)first;
  return OK;
}
result cuMemAddressFree(uint64_t address, size_t bytes) { return munmap((void *)(uintptr_t)address, bytes) == 0 ? OK : INVALID; }

/* What it answers instead of doing anything; 0: it does. */
int fake_cuda_refuse;

result cuMemCreate(uint64_t *out, size_t bytes, const properties *wanted, unsigned long long flags) {
  if (fake_cuda_refuse) return fake_cuda_refuse;
  (void)flags;
  int device = wanted->location.id;
  if (bytes == 0 || bytes % UNIT != 0 || device > 1) return INVALID;
  int types = wanted->handle_types, rdma = wanted->flags[RDMA_FLAG];
  if (types & ~(FILE_TYPE | FABRIC_TYPE)) return INVALID;
  if ((types & FILE_TYPE) && refuses("file")) return NOT_PERMITTED;
  if ((types & FABRIC_TYPE) && refuses("fabric")) return NOT_PERMITTED;
  if (types == (FILE_TYPE | FABRIC_TYPE) && refuses("both")) return NOT_SUPPORTED;
  if (rdma && refuses("rdma")) return INVALID;
  pthread_mutex_lock(&mutex);
  result done = used[device] + bytes > TOTAL ? NO_MEMORY : OK;
  int file = done == OK ? memfd_create("gpu", MFD_CLOEXEC) : -1;
  if (done == OK && (file < 0 || ftruncate(file, (off_t)bytes) != 0)) done = INVALID;
  if (done == OK) done = add(out, file, bytes, device, 1, types, rdma);
  if (done == OK) used[device] += bytes;
  if (done == OK) fake_cuda_kind = types | rdma << 8;
  pthread_mutex_unlock(&mutex);
  return done;
}
result cuMemRelease(uint64_t handle) {
  pthread_mutex_lock(&mutex);
  result done = handle < MOST && handles[handle].bytes ? OK : INVALID;
  if (done == OK) {
    if (handles[handle].own) used[handles[handle].device] -= handles[handle].bytes;
    close(handles[handle].file);
    handles[handle].bytes = 0;
  }
  pthread_mutex_unlock(&mutex);
  return done;
}
result cuMemExportToShareableHandle(void *out, uint64_t handle, int type, unsigned long long flags) {
  (void)flags;
  if (type != FILE_TYPE || handle >= MOST || !handles[handle].bytes || !(handles[handle].types & FILE_TYPE)) return INVALID;
  if ((handles[handle].types & FABRIC_TYPE) && refuses("export")) return NOT_SUPPORTED;
  int file = dup(handles[handle].file);
  if (file < 0) return NOT_PERMITTED;
  memcpy(out, &file, sizeof file);
  return OK;
}
result cuMemImportFromShareableHandle(uint64_t *out, void *given, int type) {
  struct stat about;
  int file = dup((int)(uintptr_t)given);
  if (type != FILE_TYPE || file < 0 || fstat(file, &about) != 0) return INVALID;
  pthread_mutex_lock(&mutex);
  result done = add(out, file, (size_t)about.st_size, 0, 0, FILE_TYPE, 0);
  pthread_mutex_unlock(&mutex);
  return done;
}
result cuMemMap(uint64_t address, size_t bytes, size_t offset, uint64_t handle, unsigned long long flags) {
  (void)flags;
  if (handle >= MOST || bytes != handles[handle].bytes || offset != 0) return INVALID;
  void *mapped = mmap((void *)(uintptr_t)address, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, handles[handle].file, 0);
  pthread_mutex_lock(&mutex);
  size_t index = 0;
  while (index < MOST_MAPPINGS && mappings[index].bytes) index++;
  if (index < MOST_MAPPINGS) {
    mappings[index].address = address;
    mappings[index].bytes = bytes;
    mappings[index].rdma = handles[handle].rdma;
    mappings[index].gpus = 0;
  }
  pthread_mutex_unlock(&mutex);
  return mapped == MAP_FAILED || index == MOST_MAPPINGS ? INVALID : OK;
}
result cuMemSetAccess(uint64_t address, size_t bytes, const access_right *rights, size_t count) {
  if (count == 0 || rights->flags != 3) return INVALID;
  result done = OK;
  pthread_mutex_lock(&mutex);
  for (size_t index = 0; index < MOST_MAPPINGS; index++) {
    if (!mappings[index].bytes || mappings[index].address - address >= bytes) continue;
    if (mappings[index].rdma && refuses("access")) done = NOT_SUPPORTED;
    for (size_t right = 0; right < count; right++) {
      if (rights[right].location.id != current && refuses("peer")) done = INVALID;
      else mappings[index].gpus |= 1u << rights[right].location.id;
    }
  }
  pthread_mutex_unlock(&mutex);
  if (done != OK) return done;
  return mprotect((void *)(uintptr_t)address, bytes, PROT_READ | PROT_WRITE) == 0 ? OK : INVALID;
}
result cuMemUnmap(uint64_t address, size_t bytes) {
  pthread_mutex_lock(&mutex);
  for (size_t index = 0; index < MOST_MAPPINGS; index++) {
    if (mappings[index].bytes && mappings[index].address - address < bytes) mappings[index].bytes = 0;
  }
  pthread_mutex_unlock(&mutex);
  void *left = mmap((void *)(uintptr_t)address, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  return left == MAP_FAILED ? INVALID : OK;
}
result cuEventCreate(void **out, unsigned flags) {
  (void)flags;
  *out = (void *)0x77;
  return OK;
}
result cuEventDestroy_v2(void *event) {
  (void)event;
  return OK;
}
result cuEventRecord(void *event, void *stream) {
  (void)event, (void)stream;
  return OK;
}
result cuEventQuery(void *event) {
  (void)event;
  return OK;
}
result cuStreamWaitEvent(void *stream, void *event, unsigned flags) {
  (void)stream, (void)event, (void)flags;
  return OK;
}
result cuGetErrorName(result code, const char **out) {
  *out = code == NOT_PERMITTED ? "CUDA_ERROR_NOT_PERMITTED" : "CUDA_ERROR_INVALID_VALUE";
  return OK;
}
result cuGetErrorString(result code, const char **out) {
  (void)code;
  *out = "a stand-in says no";
  return OK;
}
