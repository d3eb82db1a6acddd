/* Measures what the runtime costs above the engine, and what a row of the recording costs, on the host backend. Takes the
 * best of many short rounds, because other programs disturb. Run:
 *   node scripts/compile-native.mjs bench/runtime.c build/native/bench/runtime && build/native/bench/runtime /dev/shm */
#define _GNU_SOURCE
#include <stddef.h>
#include <stdio.h>
#include <time.h>

#include "runtime/weir_runtime.h"
#include "testing/weir_testing.h"

enum { ROUNDS = 400, PAIRS = 1000 };

static double now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

typedef struct subject {
  weir_engine *engine;
  weir_device *device;
  weir_recorder *recorder;
} subject;

static weir_ring_header *ring_of(weir_recorder *recorder) {
  return (void *)((char *)weir_recorder_gauges(recorder, 0) - offsetof(weir_ring_header, gauges));
}

static void pair_plain(subject *s) { weir_engine_free(s->engine, weir_engine_malloc(s->engine, 4096, 0, 0)); }

static void pair_described(subject *s) {
  weir_block block;
  weir_engine_allocate(s->engine, 4096, 0, 0, &block);
  weir_engine_deallocate(s->engine, block.address, &block);
}

static void pair_device(subject *s) {
  weir_allocation given;
  weir_device_allocate(s->device, 4096, 0, &given, NULL);
  weir_device_free(s->device, given.address, NULL);
}

static void row(subject *s) { weir_recorder_put(s->recorder, (weir_event){.kind = WEIR_MARK, .stack = -1}); }

static void clock_read(subject *s) {
  (void)s;
  now_ns();
}

static void measure(const char *name, subject *s, void (*act)(subject *)) {
  double best = 1e18;
  for (int round = 0; round < ROUNDS; round++) {
    /* Plays the reader: the ring is never full. */
    if (s->recorder) ring_of(s->recorder)->head = ring_of(s->recorder)->tail;
    double start = now_ns();
    for (int pair = 0; pair < PAIRS; pair++) act(s);
    double each = (now_ns() - start) / PAIRS;
    if (each < best) best = each;
  }
  printf("%-46s %6.1f ns\n", name, best);
}

static weir_device *device_with(weir_recorder *recorder) {
  char why[256];
  weir_device_options options = {.lend = 1, .recorder = recorder};
  return weir_device_new(weir_host_backend(1ull << 30, why, sizeof why), &options);
}

int main(int count, char **words) {
  char why[256];
  weir_backend *backend = weir_host_backend(1ull << 30, why, sizeof why);
  subject engine = {.engine = weir_engine_new(&backend->driver)};
  subject bare = {.device = device_with(NULL)};
  subject recorded = {.recorder = weir_recorder_open(count > 1 ? words[1] : ".", "weir", "bench", 1 << 13)};
  if (!recorded.recorder) return 1;
  recorded.device = device_with(recorded.recorder);
  measure("clock_gettime", &engine, clock_read);
  measure("engine, malloc + free", &engine, pair_plain);
  measure("engine, allocate + deallocate", &engine, pair_described);
  measure("device, allocate + free", &bare, pair_device);
  measure("device with a recorder, allocate + free (3 rows)", &recorded, pair_device);
  measure("recorder, one row", &recorded, row);
  return 0;
}
