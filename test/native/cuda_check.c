/* The runtime on a real GPU. Threads with streams of their own fill memory, other streams read it late, blocks are freed
 * meanwhile, a graph is captured, memory runs out. Run it by hand on a machine with a GPU:
 *   node scripts/compile-native.mjs test/native/cuda_check.c build/native/test/cuda_check
 * `cuda_check forget` omits record_stream, and then must find wrong words. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "runtime/weir_runtime.h"

#define MIB (1ull << 20)
#define GIB (1ull << 30)
#define THREADS 4
#define HELD 64
#define ROUNDS 3000
#define RESULTS (1u << 15)

typedef void *handle;
static int (*cuInit_)(unsigned), (*cuDevicePrimaryCtxRetain_)(handle *, int), (*cuCtxSetCurrent_)(handle), (*cuCtxSynchronize_)(void);
static int (*cuStreamCreate_)(handle *, unsigned), (*cuStreamWaitEvent_)(handle, handle, unsigned), (*cuEventCreate_)(handle *, unsigned);
static int (*cuEventRecord_)(handle, handle), (*cuMemsetD32Async_)(uint64_t, uint32_t, size_t, handle);
static int (*cuMemcpyDtoDAsync_)(uint64_t, uint64_t, size_t, handle), (*cuMemcpyDtoH_)(void *, uint64_t, size_t);
static int (*cuMemAlloc_)(uint64_t *, size_t), (*cuMemGetInfo_)(size_t *, size_t *);
static int (*cuStreamBeginCapture_)(handle, int), (*cuStreamEndCapture_)(handle, handle *);

static weir_device *device;
static handle context, streams[THREADS + 1], capture_stream, own_events[THREADS];
static uint64_t results, scratch;
static uint32_t expected[RESULTS];
static atomic_uint result_count;
static atomic_int wrong;
static atomic_ullong shortages;
static int forget;

static void must(int right, const char *what) {
  if (right) return;
  fprintf(stderr, "must hold: %s\n", what);
  atomic_store(&wrong, 1);
}

static void load(handle library, void *place, const char *name) {
  void *found = dlsym(library, name);
  if (!found) fprintf(stderr, "no %s\n", name), exit(2);
  memcpy(place, &found, sizeof found);
}

typedef struct block {
  uint64_t address, bytes;
  uint32_t word;
} block;

typedef struct worker {
  pthread_t thread;
  uint32_t index;
  uint64_t state;
  block held[HELD];
} worker;

static uint64_t draw(worker *self, uint64_t below) {
  self->state = self->state * 6364136223846793005u + 1442695040888963407u;
  return (self->state >> 33) % below;
}

/* The stream reads the first and last words of the block when its queue gets there. */
static void read_later(const block *b, handle stream) {
  uint64_t places[2] = {b->address, b->address + (b->bytes - 4) / 4 * 4};
  for (int index = 0; index < 2; index++) {
    uint32_t result = atomic_fetch_add(&result_count, 1);
    if (result >= RESULTS) return;
    expected[result] = b->word;
    must(cuMemcpyDtoDAsync_(results + 4ull * result, places[index], 4, stream) == 0, "copy");
  }
}

static void let_go(worker *self, block *b) {
  read_later(b, streams[self->index]);
  must(weir_device_free(device, b->address, NULL), "free");
  b->address = 0;
}

static void take(worker *self, block *b) {
  weir_allocation given;
  weir_shortage shortage;
  uint64_t bytes = draw(self, 4) == 0 ? MIB * (1 + draw(self, 200)) : 8 + draw(self, 3 * MIB) / 4 * 4;
  if (!weir_device_allocate(device, bytes, (uint64_t)(uintptr_t)streams[self->index], &given, &shortage)) {
    if (shortage.driver_error[0]) fprintf(stderr, "driver: %s\n", shortage.driver_error);
    must(shortage.driver_error[0] == 0 && shortage.device_total > 0, "only memory is missing");
    atomic_fetch_add(&shortages, 1);
    for (int index = 0; index < HELD; index += 2)
      if (self->held[index].address) let_go(self, &self->held[index]);
    return;
  }
  *b = (block){given.address, bytes, (uint32_t)(self->state >> 20) | 1};
  must(cuMemsetD32Async_(b->address, b->word, bytes / 4, streams[self->index]) == 0, "fill");
}

static void use_elsewhere(worker *self, const block *b) {
  handle other = streams[(self->index + 1 + draw(self, THREADS)) % (THREADS + 1)];
  must(cuEventRecord_(own_events[self->index], streams[self->index]) == 0, "record");
  must(cuStreamWaitEvent_(other, own_events[self->index], 0) == 0, "wait");
  /* Some work first, so that the read comes late. */
  must(cuMemsetD32Async_(scratch, 1, GIB / 4, other) == 0, "delay");
  read_later(b, other);
  if (!forget) must(weir_device_record_stream(device, b->address, (uint64_t)(uintptr_t)other), "record_stream");
}

static void capture(worker *self) {
  handle graph = NULL;
  weir_device_begin_capture(device);
  /* In global mode, a forbidden call on any thread breaks the capture. */
  must(cuStreamBeginCapture_(capture_stream, 0) == 0, "capture begins");
  must(cuMemsetD32Async_(scratch, 2, 256, capture_stream) == 0, "captured work");
  weir_allocation given[8];
  int count = 0;
  /* Memory that other streams have cached cannot be given back now, so memory may be short. */
  while (count < 8 && weir_device_allocate(device, MIB * (1 + draw(self, 64)), 0, &given[count], NULL)) count++;
  while (count > 0) must(weir_device_free(device, given[--count].address, NULL), "free in a capture");
  weir_device_empty_cache(device);
  must(cuStreamEndCapture_(capture_stream, &graph) == 0 && graph, "the capture is whole");
  weir_device_end_capture(device);
}

static void *work(void *argument) {
  worker *self = argument;
  must(cuCtxSetCurrent_(context) == 0, "context");
  for (int round = 0; round < ROUNDS; round++) {
    block *b = &self->held[draw(self, HELD)];
    uint64_t choice = draw(self, 100);
    if (!b->address) take(self, b);
    else if (choice < 50) let_go(self, b);
    else if (choice < 70) use_elsewhere(self, b);
    if (draw(self, 400) == 0) weir_device_empty_cache(device);
    if (draw(self, 400) == 0) must(weir_device_check(device, 2) == 0, "invariants");
  }
  for (int index = 0; index < HELD; index++)
    if (self->held[index].address) let_go(self, &self->held[index]);
  return NULL;
}

static double now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static void fill_up(size_t available) {
  enum { MOST = 4096 };
  static weir_allocation given[MOST];
  weir_shortage shortage;
  int count = 0;
  weir_device_set_limit(device, 0);
  double start = now_ns();
  while (count < MOST && weir_device_allocate(device, GIB / 2, 0, &given[count], &shortage)) count++;
  printf("filled %.1f GiB of %.1f free in %.1f ms; then: driver error '%s', device free %.2f GiB, reserved %.1f GiB\n", count / 2.0,
         (double)available / (double)GIB, (now_ns() - start) / 1e6, shortage.driver_error, (double)shortage.device_free / (double)GIB,
         (double)shortage.reserved / (double)GIB);
  must((double)count * (double)(GIB / 2) > 0.97 * (double)available && shortage.driver_error[0] == 0, "all memory can be used");
  for (int index = 0; index < count; index++) weir_device_free(device, given[index].address, NULL);
  start = now_ns();
  weir_device_empty_cache(device);
  printf("given back in %.1f ms\n", (now_ns() - start) / 1e6);
}

static void measure(void) {
  enum { PAIRS = 300000 };
  weir_allocation given;
  double best = 1e9;
  for (int round = 0; round < 7; round++) {
    double start = now_ns();
    for (int pair = 0; pair < PAIRS; pair++) {
      weir_device_allocate(device, 4096, 0, &given, NULL);
      weir_device_free(device, given.address, NULL);
    }
    double each = (now_ns() - start) / PAIRS;
    if (each < best) best = each;
  }
  printf("allocate and free 4 KiB: %.0f ns (best of 7)\n", best);
}

static int lasts(void *context, uint64_t stream) {
  (void)context, (void)stream;
  return 1;
}

int main(int count, char **words) {
  char why[256];
  forget = count > 1 && strcmp(words[1], "forget") == 0;
  weir_backend *backend = weir_cuda_backend(0, why, sizeof why);
  if (!backend) return printf("%s\n", why), 77;
  handle cuda = dlopen("libcuda.so.1", RTLD_NOW);
#define LOAD(name, real) load(cuda, &name##_, #real)
  LOAD(cuInit, cuInit), LOAD(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain), LOAD(cuCtxSetCurrent, cuCtxSetCurrent);
  LOAD(cuCtxSynchronize, cuCtxSynchronize), LOAD(cuStreamCreate, cuStreamCreate), LOAD(cuStreamWaitEvent, cuStreamWaitEvent);
  LOAD(cuEventCreate, cuEventCreate), LOAD(cuEventRecord, cuEventRecord), LOAD(cuMemsetD32Async, cuMemsetD32Async);
  LOAD(cuMemcpyDtoDAsync, cuMemcpyDtoDAsync_v2), LOAD(cuMemcpyDtoH, cuMemcpyDtoH_v2), LOAD(cuMemAlloc, cuMemAlloc_v2);
  LOAD(cuMemGetInfo, cuMemGetInfo_v2), LOAD(cuStreamBeginCapture, cuStreamBeginCapture_v2), LOAD(cuStreamEndCapture, cuStreamEndCapture);
  must(cuDevicePrimaryCtxRetain_(&context, 0) == 0 && cuCtxSetCurrent_(context) == 0, "context");
  for (int index = 0; index <= THREADS; index++) must(cuStreamCreate_(&streams[index], 1) == 0, "stream");
  for (int index = 0; index < THREADS; index++) must(cuEventCreate_(&own_events[index], 2) == 0, "event");
  must(cuStreamCreate_(&capture_stream, 1) == 0 && cuMemAlloc_(&results, 4ull * RESULTS) == 0 && cuMemAlloc_(&scratch, GIB) == 0, "memory");
  size_t before = 0, after = 0, total = 0;
  weir_recorder *recorder = weir_recorder_open("/tmp", "weir", "none", 1 << 18);
  weir_device_options options = {.lend = 1, .limit = 6 * GIB, .recorder = recorder, .stream_lasts = lasts};
  device = weir_device_new(backend, &options);
  if (!device) return 3;
  must(weir_cuda_allow_peer(backend, 0), "a GPU may use its own memory");
  must(cuMemGetInfo_(&before, &total) == 0, "free memory");

  static worker workers[THREADS];
  double start = now_ns();
  for (uint32_t index = 0; index < THREADS; index++) {
    workers[index].index = index;
    workers[index].state = 77 + index;
    pthread_create(&workers[index].thread, NULL, work, &workers[index]);
  }
  for (uint32_t index = 0; index < THREADS; index++) pthread_join(workers[index].thread, NULL);
  for (int times = 0; times < 20; times++) capture(&workers[0]);
  must(cuCtxSynchronize_() == 0, "the GPU is well");
  static uint32_t found[RESULTS];
  uint32_t checked = atomic_load(&result_count) < RESULTS ? atomic_load(&result_count) : RESULTS;
  must(cuMemcpyDtoH_(found, results, 4ull * RESULTS) == 0, "results");
  uint32_t corrupted = 0;
  for (uint32_t index = 0; index < checked; index++) corrupted += found[index] != expected[index];
  weir_gauges gauges = weir_device_gauges(device);
  printf("%.1f s: %" PRIu32 " words read, %" PRIu32 " wrong; %" PRIu64 " allocations, %llu shortages, %" PRIu64 " waits, %" PRIu64
         " borrows, %" PRIu64 " stitches; %" PRIu64 " driver calls, %.1f us each, %" PRIu64 " refused\n",
         (now_ns() - start) / 1e9, checked, corrupted, gauges.allocations, atomic_load(&shortages), gauges.waits, gauges.borrows,
         gauges.stitches, gauges.driver_calls, (double)gauges.driver_ns / (double)gauges.driver_calls / 1e3, gauges.driver_failures);
  must(forget ? corrupted > 0 : corrupted == 0, "words are what they should be");
  weir_device_empty_cache(device);
  gauges = weir_device_gauges(device);
  must(gauges.reserved == 0 && gauges.live == 0 && weir_device_check(device, 3) == 0, "everything was given back");
  must(cuMemGetInfo_(&after, &total) == 0, "free memory");
  printf("free before %zu MiB, after %zu MiB\n", before >> 20, after >> 20);
  must(after + 64 * MIB >= before, "the GPU has its memory again");
  if (!forget) fill_up(after), measure();
  weir_device_delete(device);
  weir_recorder_close(recorder);
  printf("%s\n", atomic_load(&wrong) ? "wrong" : "right");
  return atomic_load(&wrong);
}
