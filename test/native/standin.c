/* Plays PyTorch's part on the host backend. Threads with streams of their own allocate, fill, check, use blocks on other streams,
 * free, empty the cache, run out of memory and go on. A stream checks bytes when its queue gets there, which is late. So memory
 * that is given out too early is found as corrupted bytes.
 *
 * Options are words `name=number`, see `options`; `ring=DIR` records. Prints one line of JSON. Status 0 unless a rule was broken.
 * Corruption is only printed, because one test wants it. */
#define _GNU_SOURCE
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conformance.h"
#include "spy_backend.h"
#include "runtime/weir_runtime.h"
#include "testing/weir_testing.h"

#define MIB (1ull << 20)
#define MOST_THREADS 8
#define HELD 48
#define WINDOW (16ull << 10)
/* Event slots and stream numbers of the program itself, which the engine does not use. */
#define OWN_SLOTS 8192u
#define OWN_STREAMS 100000u

static struct {
  uint64_t threads, rounds, seed, rate, total, limit, gmlake, lend, fine, forget_streams, rows, reclaim, fork_at, endless, captures, lie,
      conform, foreign;
} options = {.threads = 4, .rounds = 3000, .seed = 1, .total = 512, .lend = 1, .rows = 1 << 18, .captures = 1};
static const char *ring;

static weir_device *device;
static weir_backend *host;
static spy *watched;
static weir_recorder *recorder;
static atomic_int wrong;
static atomic_ullong shortages, reclaims, reuses_of_streams;

static void must(int right, const char *what) {
  if (right) return;
  fprintf(stderr, "must hold: %s\n", what);
  atomic_store(&wrong, 1);
}

typedef struct block {
  uint64_t address, bytes, pattern;
  int unrecorded; /* another stream uses it, but record_stream failed */
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

static uint64_t stream_of(uint32_t index) { return index == 0 ? 0 : 0x7000 + 64ull * index; }

/* Windows of a block: all of a small one, the ends and the middle of a large one. */
static void each_window(const block *b, uint64_t stream, int (*enqueue)(weir_backend *, uint64_t, uint64_t, uint64_t, uint64_t)) {
  if (b->bytes <= 3 * WINDOW) {
    must(enqueue(host, stream, b->address, b->bytes, b->pattern), "work can be enqueued");
    return;
  }
  uint64_t places[3] = {0, b->bytes / 2 / 8 * 8, b->bytes - WINDOW};
  for (int index = 0; index < 3; index++) {
    uint64_t length = index == 1 && places[1] + WINDOW > places[2] ? 8 : WINDOW;
    must(enqueue(host, stream, b->address + places[index], length, b->pattern + (uint64_t)index), "work can be enqueued");
  }
}

/* Another stream reads the block, after the work of its own stream so far. */
static void use_elsewhere(worker *self, block *b) {
  uint32_t other = (self->index + 1 + (uint32_t)draw(self, options.threads)) % (uint32_t)(options.threads + 1);
  uint32_t slot = OWN_SLOTS + self->index;
  const weir_driver *driver = &host->driver;
  must(driver->event_record(driver->context, OWN_STREAMS + self->index, slot) == 0, "own event");
  must(driver->stream_wait(driver->context, OWN_STREAMS + other, slot) == 0, "own wait");
  each_window(b, stream_of(other), weir_host_enqueue_check);
  if (options.forget_streams) return;
  if (weir_device_record_stream(device, b->address, stream_of(other))) atomic_fetch_add(&reuses_of_streams, 1);
  else b->unrecorded = 1;
}

static void let_go(block *b, uint64_t stream) {
  weir_allocation freed;
  each_window(b, stream, weir_host_enqueue_check);
  if (b->unrecorded) host->synchronize(host->driver.context);
  must(weir_device_free(device, b->address, &freed), "what was given can be freed");
  must(freed.address == b->address && freed.requested == b->bytes && freed.stream == stream, "what was freed is what was given");
  b->address = 0;
}

static uint64_t some_bytes(worker *self) {
  switch (draw(self, 8)) {
    case 0: return 1 + draw(self, 4096);
    case 1: return 1 + draw(self, MIB);
    case 2:
    case 3: return 1 + draw(self, 3 * MIB);
    case 4: return MIB * (1 + draw(self, 40));
    default: return 1 + draw(self, 64 << 10);
  }
}

static void take(worker *self, block *b) {
  weir_allocation given;
  weir_shortage shortage;
  uint64_t bytes = some_bytes(self), stream = stream_of(self->index);
  if (!weir_device_allocate(device, bytes, stream, &given, &shortage)) {
    must(shortage.requested == bytes, "a shortage tells of the request");
    must(options.rate > 0 || shortage.driver_error[0] == 0, "without faults only memory can be missing");
    atomic_fetch_add(&shortages, 1);
    weir_device_failed(device, &shortage, stream);
    for (int index = 0; index < HELD; index += 2)
      if (self->held[index].address) let_go(&self->held[index], stream);
    return;
  }
  must(given.size >= bytes && given.address % 512 == 0 && given.requested == bytes && given.stream == stream, "what was asked for");
  *b = (block){given.address, bytes, (self->state | 1) ^ given.address, 0};
  each_window(b, stream, weir_host_enqueue_fill);
}

static void look(worker *self, const block *b) {
  weir_allocation found;
  must(weir_device_owns(device, b->address) && weir_device_owns(device, b->address + b->bytes - 1), "live memory is ours");
  must(!weir_device_owns(device, (uint64_t)(uintptr_t)self), "other memory is not");
  must(weir_device_find(device, b->address, &found) && found.requested == b->bytes, "found by its address");
  if (draw(self, 8) != 0) return;
  uint64_t inside = b->address + draw(self, b->bytes);
  must(weir_device_find_containing(device, inside, &found) && found.address == b->address, "found by an address inside");
}

static void capture(worker *self) {
  weir_device_begin_capture(device);
  atomic_fetch_add(&watched->captures, 1);
  for (int index = 0; index < 6; index++) {
    block *b = &self->held[draw(self, HELD)];
    if (b->address) let_go(b, stream_of(self->index));
    else take(self, b);
  }
  weir_device_empty_cache(device);
  atomic_fetch_sub(&watched->captures, 1);
  weir_device_end_capture(device);
}

static void seldom(worker *self) {
  switch (draw(self, 6)) {
    case 0: weir_device_empty_cache(device); break;
    case 1:
      if (options.limit) weir_device_set_limit(device, (options.limit / 2 + draw(self, options.limit)) * MIB);
      break;
    case 2: must(weir_device_check(device, 2) == 0, "the engine's invariants"); break;
    case 3:
      if (options.captures) capture(self);
      break;
    case 4: {
      weir_gauges gauges = weir_device_gauges(device);
      must(gauges.live <= gauges.allocated && gauges.allocated <= gauges.reserved && gauges.reserved <= gauges.peak_reserved, "levels");
      must(gauges.peak_live >= gauges.live && weir_device_largest_free(device) <= gauges.reserved, "more levels");
      break;
    }
    default: weir_device_set_outside(device, draw(self, 4) * MIB); break;
  }
}

static void *work(void *argument) {
  worker *self = argument;
  uint64_t stream = stream_of(self->index);
  for (uint64_t round = 0; round < options.rounds || options.endless; round++) {
    block *b = &self->held[draw(self, HELD)];
    uint64_t choice = draw(self, 100);
    if (!b->address) take(self, b);
    else if (choice < 40) let_go(b, stream);
    else if (choice < 60) use_elsewhere(self, b);
    else if (choice < 80) look(self, b);
    else each_window(b, stream, weir_host_enqueue_check);
    if (choice % 4 == 0) weir_host_run(host, 1 + (uint32_t)draw(self, 24), self->state);
    if (draw(self, 200) == 0) seldom(self);
  }
  for (int index = 0; index < HELD; index++)
    if (self->held[index].address) let_go(&self->held[index], stream);
  return NULL;
}

static int reclaim(void *context, uint64_t bytes, int attempt) {
  (void)context, (void)bytes, (void)attempt;
  /* Reclaim is called without a lock; otherwise this would deadlock. */
  weir_device_gauges(device);
  weir_device_set_outside(device, 0);
  return atomic_fetch_add(&reclaims, 1) % 2 == 0;
}

/* Forks while other threads work. The child must not touch its parent's recording, whatever locks the threads hold. */
static void fork_child(void) {
  pid_t child = fork();
  if (child == 0) {
    weir_recorder_forget(recorder);
    weir_recorder_put(recorder, (weir_event){.kind = WEIR_MARK});
    int quiet = weir_recorder_string(recorder, "child") == 0 && weir_recorder_stream(recorder, 0, 99) == -1;
    weir_recorder_gauges(recorder, 0)->live = 12345;
    weir_recorder_close(recorder);
    _exit(quiet ? 0 : 1);
  }
  int status = 1;
  must(child > 0 && waitpid(child, &status, 0) == child && status == 0, "the child ends well");
}

static void read_options(int count, char **words) {
  static const struct {
    const char *name;
    uint64_t *value;
  } known[] = {
      {"threads", &options.threads},   {"rounds", &options.rounds},
      {"seed", &options.seed},         {"rate", &options.rate},
      {"total", &options.total},       {"limit", &options.limit},
      {"gmlake", &options.gmlake},     {"lend", &options.lend},
      {"fine", &options.fine},         {"forget_streams", &options.forget_streams},
      {"rows", &options.rows},         {"reclaim", &options.reclaim},
      {"fork", &options.fork_at},      {"endless", &options.endless},
      {"captures", &options.captures}, {"lie", &options.lie},
      {"conform", &options.conform},   {"foreign", &options.foreign},
  };
  for (int index = 1; index < count; index++) {
    char *equals = strchr(words[index], '=');
    int found = equals && strncmp(words[index], "ring=", 5) == 0;
    if (found) ring = equals + 1;
    for (size_t option = 0; equals && option < sizeof known / sizeof *known; option++) {
      size_t length = strlen(known[option].name);
      if ((size_t)(equals - words[index]) != length || strncmp(words[index], known[option].name, length) != 0) continue;
      *known[option].value = strtoull(equals + 1, NULL, 10);
      found = 1;
    }
    if (!found) exit(64);
  }
  if (options.threads < 1 || options.threads > MOST_THREADS) exit(64);
}

static void set_up(void) {
  char why[256];
  host = weir_host_backend(options.total * MIB, why, sizeof why);
  weir_backend *used = host && options.rate ? weir_faulty_backend(host, (uint32_t)options.rate, options.seed) : host;
  watched = used ? spy_on(used) : NULL;
  if (!watched) exit(65);
  watched->lie = (enum spy_lie)options.lie;
  if (ring) {
    recorder = weir_recorder_open_with_stacks(ring, "weir", "0.0.0", (uint32_t)options.rows, 1024);
    if (!recorder) exit(66);
  }
  weir_device_options given = {
      .gmlake = (int32_t)options.gmlake,
      .lend = (int32_t)options.lend,
      .fine = (int32_t)options.fine,
      .limit = options.limit * MIB,
      .recorder = recorder,
      .reclaim = options.reclaim ? reclaim : NULL,
      .stream_lasts = options.foreign ? NULL : conform_stream_lasts,
  };
  device = weir_device_new(&watched->backend, &given);
  if (!device) exit(67);
  for (uint32_t index = 0; index <= options.threads; index++) {
    must(host->name_stream(host->driver.context, OWN_STREAMS + index, stream_of(index)) == 0, "own streams");
  }
}

int main(int count, char **words) {
  read_options(count, words);
  set_up();
  if (options.conform) return conform(device, host, watched, recorder);
  static worker workers[MOST_THREADS];
  for (uint32_t index = 0; index < options.threads; index++) {
    workers[index].index = index;
    workers[index].state = options.seed * 1000003 + index;
    if (pthread_create(&workers[index].thread, NULL, work, &workers[index]) != 0) return 68;
  }
  if (options.endless) puts("running"), fflush(stdout);
  for (uint64_t child = 0; child < options.fork_at; child++) fork_child();
  for (uint32_t index = 0; index < options.threads; index++) pthread_join(workers[index].thread, NULL);

  host->synchronize(host->driver.context);
  watched->lie = NO_LIE;
  weir_device_set_limit(device, 0);
  weir_device_set_outside(device, 0);
  /* With faults, a call that gives memory back may fail. The memory is kept and given back at a later try. */
  for (int tries = 0; tries < 2000 && weir_device_gauges(device).reserved > 0; tries++) weir_device_empty_cache(device);
  must(weir_device_check(device, 3) == 0 && !weir_device_is_broken(device), "the engine's invariants at the end");
  weir_gauges gauges = weir_device_gauges(device);
  uint64_t available = 0, total = 0;
  host->memory(host->driver.context, &available, &total);
  must(gauges.live == 0 && gauges.allocated == 0 && gauges.reserved == 0 && available == total, "everything was given back");
  must(gauges.allocations == gauges.frees && gauges.ooms == atomic_load(&shortages), "counts");
  must(atomic_load(&watched->violations) == 0, "captures were left alone");
  printf("{\"corrupted\":%" PRIu64 ",\"allocations\":%" PRIu64 ",\"shortages\":%" PRIu64 ",\"failures\":%" PRIu64 ",\"waits\":%" PRIu64
         ",\"borrows\":%" PRIu64 ",\"stitches\":%" PRIu64
         ",\"recorded\":%llu,\"reclaims\":%llu,\"unmaps\":%llu,\"synchronizations\":%llu,"
         "\"peakLive\":%" PRIu64 ",\"peakReserved\":%" PRIu64 "}\n",
         weir_host_corrupted(host), gauges.allocations, gauges.ooms, gauges.driver_failures, gauges.waits, gauges.borrows, gauges.stitches,
         atomic_load(&reuses_of_streams), atomic_load(&reclaims), atomic_load(&watched->unmaps), atomic_load(&watched->waits),
         gauges.peak_live, gauges.peak_reserved);
  weir_device_delete(device);
  weir_recorder_close(recorder);
  return atomic_load(&wrong);
}
