/* A job on a GPU that is far behind: requests must not make the host wait for it, and nothing may be unmapped that it still uses.
 * A stream touches memory when its queue gets there. Memory that was unmapped or given out too early shows as corrupted bytes.
 *
 * late_gpu receive    a stream holds a receive that does not end until the program goes on; requests of varying lengths
 * late_gpu shortage   memory runs out; another thread frees, allocates and begins a capture during the wait for the device
 * late_gpu empty      the same, but the program empties the cache
 * late_gpu attempt    memory runs out for requests that may not wait, such as prefetches
 *
 * Prints one line of JSON. Status 0 unless a rule was broken. */
#define _GNU_SOURCE
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/weir_runtime.h"
#include "spy_backend.h"
#include "testing/weir_testing.h"

#define MIB (1ull << 20)
#define MAIN 0u
#define OTHER 0x40u
#define THIRD 0x80u
/* Blocks at a time, requests, and requests in a step. */
#define HELD 1000u
#define ROUNDS 20000
#define STEP 3000

static weir_backend *host;
static spy *watched;
static weir_device *device;
static int wrong;

static void must(int right, const char *what) {
  if (right) return;
  fprintf(stderr, "must hold: %s\n", what);
  wrong = 1;
}

/* All streams are like PyTorch's own. No events are recorded on streams that may be gone. */
static int lasts(void *unused, uint64_t stream) {
  (void)unused, (void)stream;
  return 1;
}

static void set_up(uint64_t total, weir_device_options options) {
  char why[256];
  options.stream_lasts = lasts;
  host = weir_host_backend(total, why, sizeof why);
  watched = host ? spy_on(host) : NULL;
  device = watched ? weir_device_new(&watched->backend, &options) : NULL;
  if (!device) exit(65);
}

static uint64_t take(uint64_t bytes, uint64_t stream) {
  weir_allocation given = {0};
  weir_shortage shortage;
  must(weir_device_allocate(device, bytes, stream, &given, &shortage), "the request is served");
  return given.address;
}

/* A kernel that touches the ends of a block, late. */
static void touch(uint64_t stream, uint64_t address, uint64_t bytes) {
  must(weir_host_enqueue_fill(host, stream, address, 4096, address) &&
           weir_host_enqueue_fill(host, stream, address + bytes - 4096, 4096, bytes),
       "work can be enqueued");
}

static uint64_t state = 1;

static uint64_t draw(uint64_t below) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (state >> 33) % below;
}

static uint64_t held[HELD], bytes[HELD];

/* Frees a block of MAIN. Now and then OTHER uses it, too. */
static void let_go(uint32_t index) {
  if (!held[index]) return;
  touch(MAIN, held[index], bytes[index]);
  if (draw(400) == 0) {
    touch(OTHER, held[index], bytes[index]);
    must(weir_device_record_stream(device, held[index], OTHER), "another stream is recorded");
  }
  must(weir_device_free(device, held[index], NULL), "what was given can be freed");
  held[index] = 0;
}

/* The receive on OTHER ends only after this function. OTHER also frees memory and uses blocks of MAIN: none of that is ever over.
 * MAIN is a thousand kernels behind. */
static void receive(void) {
  set_up(1ull << 40, (weir_device_options){.lend = 1, .fine = 1});
  uint64_t posted = take(8 * MIB, OTHER);
  touch(OTHER, posted, 8 * MIB);
  for (int round = 0; round < ROUNDS; round++) {
    uint32_t index = (uint32_t)draw(HELD);
    let_go(index);
    bytes[index] = draw(3) ? 4 * MIB + draw(20 * MIB) : 24 * MIB + draw(64 * MIB);
    held[index] = take(bytes[index], MAIN);
    touch(MAIN, held[index], bytes[index]);
    /* The end of a step: most blocks are freed. */
    if (round % STEP == STEP - 1) {
      for (uint32_t other = 0; other < HELD; other++)
        if (draw(8)) let_go(other);
    }
    if (draw(300) == 0) {
      uint64_t buffer = take(16 * MIB, OTHER);
      touch(OTHER, buffer, 16 * MIB);
      must(weir_device_free(device, buffer, NULL), "the buffer can be freed");
    }
    if (round > 500) weir_host_run_stream(host, MAIN, 6);
  }
  must(atomic_load(&watched->waits) == 0, "the host never waits");
  must(weir_device_check(device, 3) == 0, "the engine's invariants");
  for (uint32_t index = 0; index < HELD; index++) let_go(index);
  must(weir_device_free(device, posted, NULL), "the receive's buffer can be freed");
}

static struct {
  uint64_t block, bytes;
  pthread_t thread, captor;
  atomic_int stage, captured;
} late;

/* Waits for a stage that another thread sets. A thread that is blocked for good fails the test. */
static void await_stage(int stage) {
  for (int tries = 0; tries < 200000 && atomic_load(&late.stage) < stage; tries++) {
    sched_yield();
    struct timespec moment = {0, 100000};
    nanosleep(&moment, NULL);
  }
  must(atomic_load(&late.stage) >= stage, "no thread is blocked");
}

/* Frees a block while the other thread waits for the device. The block's last use comes after that wait. */
static void *free_meanwhile(void *unused) {
  await_stage(1);
  touch(THIRD, late.block, late.bytes);
  must(weir_device_free(device, late.block, NULL), "a thread can free during the wait");
  uint64_t small = take(1000, THIRD);
  must(weir_device_free(device, small, NULL), "a thread can allocate during the wait");
  atomic_store(&late.stage, 2);
  return unused;
}

static void *begin_capture(void *unused) {
  weir_device_begin_capture(device);
  atomic_store(&late.captured, 1);
  weir_device_end_capture(device);
  return unused;
}

static void during_wait(void) {
  watched->waited = NULL;
  atomic_store(&late.stage, 1);
  await_stage(2);
  must(pthread_create(&late.captor, NULL, begin_capture, NULL) == 0, "a thread");
  for (int tries = 0; tries < 100; tries++) {
    struct timespec moment = {0, 200000};
    nanosleep(&moment, NULL);
  }
  must(!atomic_load(&late.captured), "no capture begins during a wait");
}

static void shortage(int empties) {
  /* Without lending, only memory that was given back serves another stream. */
  set_up(1ull << 30, (weir_device_options){.limit = 128 * MIB});
  late.bytes = 24 * MIB;
  late.block = take(late.bytes, THIRD);
  uint64_t cached = take(80 * MIB, OTHER);
  touch(OTHER, cached, 80 * MIB);
  must(weir_device_free(device, cached, NULL), "the memory of another stream is cached");
  must(pthread_create(&late.thread, NULL, free_meanwhile, NULL) == 0, "a thread");
  watched->waited = during_wait;
  if (empties) weir_device_empty_cache(device);
  uint64_t wanted = take(80 * MIB, MAIN);
  must(atomic_load(&watched->waits) == 1, "one wait is enough");
  pthread_join(late.thread, NULL);
  pthread_join(late.captor, NULL);
  /* The late block was not given back, since the GPU still uses it. */
  must(weir_device_gauges(device).reserved >= 104 * MIB, "memory that was freed during the wait stays");
  touch(MAIN, wanted, 80 * MIB);
  must(weir_device_free(device, wanted, NULL), "the block can be freed");
}

static int refuse_waits(void *allowed) { return *(int *)allowed; }

/* A prefetch that finds no memory must not wait for the device: it can be left out. */
static void attempt(void) {
  int allowed = 0;
  set_up(1ull << 30, (weir_device_options){.limit = 128 * MIB, .may_wait = refuse_waits, .may_wait_context = &allowed});
  uint64_t cached = take(80 * MIB, OTHER);
  touch(OTHER, cached, 80 * MIB);
  must(weir_device_free(device, cached, NULL), "the memory of another stream is cached");
  weir_allocation given;
  weir_shortage shortage;
  must(!weir_device_allocate(device, 80 * MIB, MAIN, &given, &shortage), "without a wait there is no memory");
  must(atomic_load(&watched->waits) == 0, "an attempt does not wait");
  must(weir_device_gauges(device).retries == 0, "an attempt is no retry");
  allowed = 1;
  uint64_t wanted = take(80 * MIB, MAIN);
  touch(MAIN, wanted, 80 * MIB);
  must(weir_device_gauges(device).retries == 1, "a request is one");
  must(weir_device_free(device, wanted, NULL), "the block can be freed");
}

int main(int count, char **words) {
  if (count != 2) return 64;
  if (strcmp(words[1], "receive") == 0) receive();
  else if (strcmp(words[1], "shortage") == 0) shortage(0);
  else if (strcmp(words[1], "empty") == 0) shortage(1);
  else if (strcmp(words[1], "attempt") == 0) attempt();
  else return 64;
  unsigned long long waits = atomic_load(&watched->waits), unmaps = atomic_load(&watched->unmaps), records = atomic_load(&watched->records);
  weir_gauges gauges = weir_device_gauges(device);
  host->synchronize(host->driver.context);
  uint64_t corrupted = weir_host_corrupted(host);
  weir_device_empty_cache(device);
  must(weir_device_gauges(device).reserved == 0 && weir_device_check(device, 3) == 0, "everything is given back");
  printf("{\"corrupted\":%" PRIu64 ",\"waits\":%llu,\"unmaps\":%llu,\"records\":%llu,\"requests\":%" PRIu64 ",\"stitches\":%" PRIu64 "}\n",
         corrupted, waits, unmaps, records, gauges.allocations, gauges.stitches);
  weir_device_delete(device);
  return wrong;
}
