/* A training job on the host backend. Its step repeats: weights stay, activations pile up and are freed backwards, one block lives
 * into the next step, and sometimes there are other requests. The stream of a block fills it, and checks it before it is freed.
 * So memory that is given out twice is found as corrupted bytes.
 *
 * Options are words `name=number`. The ring goes to `ring=DIR` or $WEIR_CHILD_RUN_DIR. With `plan=FILE` the job also plays the supervisor:
 * it puts the file in place at step `at` and announces it. With `corrupt=1` it does so with every byte flipped, and with every
 * shorter length. With `settles=STEP` it counts its steps as the swapping hooks do,
 * and says after that one that swapping has settled.
 * Prints one line of JSON. Status 0 unless a rule was broken. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "weir_abi.h"
#include "runtime/weir_runtime.h"
#include "testing/weir_testing.h"

#define MIB (1ull << 20)
#define WINDOW (16ull << 10)
#define MOST_LAYERS 64

static struct {
  uint64_t steps, seed, layers, rate, total, deviate, at, corrupt, capture, noise, change, back, pause, last, vary, streams, settles;
} options = {.steps = 40, .seed = 1, .layers = 12, .total = 2048, .last = 5};
static const char *ring, *plan_path;

static weir_backend *host;
static weir_device *device;
static weir_recorder *recorder;
static int wrong;
static uint64_t state = 1, shortages, generation;

static void must(int right, const char *what) {
  if (right) return;
  fprintf(stderr, "must hold: %s\n", what);
  wrong = 1;
}

static uint64_t draw(uint64_t below) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (state >> 33) % below;
}

typedef struct block {
  uint64_t address, bytes, pattern, stream;
} block;

static void each_window(const block *b, uint64_t stream, int (*enqueue)(weir_backend *, uint64_t, uint64_t, uint64_t, uint64_t)) {
  if (b->bytes <= 2 * WINDOW) {
    must(enqueue(host, stream, b->address, b->bytes / 8 * 8, b->pattern), "work can be enqueued");
    return;
  }
  must(enqueue(host, stream, b->address, WINDOW, b->pattern), "work can be enqueued");
  must(enqueue(host, stream, b->address + (b->bytes - WINDOW) / 8 * 8, WINDOW, b->pattern + 1), "work can be enqueued");
}

static block take(uint64_t bytes, uint64_t stream) {
  weir_allocation given;
  block b = {0};
  weir_shortage shortage;
  if (!weir_device_allocate(device, bytes, stream, &given, &shortage)) {
    must(options.rate > 0, "there is memory");
    shortages++;
    weir_device_failed(device, &shortage, stream);
    return b;
  }
  must(given.address % 512 == 0 && given.size >= bytes && given.requested == bytes && given.stream == stream, "what was asked for");
  b = (block){given.address, bytes, (state | 1) ^ given.address ^ given.size << 20, stream};
  each_window(&b, stream, weir_host_enqueue_fill);
  return b;
}

static void look(const block *b) {
  weir_allocation found;
  must(weir_device_owns(device, b->address), "ours");
  must(weir_device_find(device, b->address, &found) && found.requested == b->bytes && found.stream == b->stream, "found");
  if (draw(16) != 0) return;
  must(weir_device_find_containing(device, b->address + draw(b->bytes), &found) && found.address == b->address, "found from inside");
}

static void let_go(block *b) {
  weir_allocation freed;
  if (b->address == 0) return;
  look(b);
  each_window(b, b->stream, weir_host_enqueue_check);
  /* Sometimes another stream uses the block, after the work of its own stream so far. Then it is parked. */
  if (options.deviate && draw(50) == 0 && weir_device_record_stream(device, b->address, 0x9000)) {
    const weir_driver *driver = &host->driver;
    must(driver->event_record(driver->context, 100000, 9000) == 0 && driver->stream_wait(driver->context, 100001, 9000) == 0, "own event");
    each_window(b, 0x9000, weir_host_enqueue_check);
  }
  must(weir_device_free(device, b->address, &freed) && freed.requested == b->bytes, "freed");
  b->address = 0;
}

/* The size of a block of a layer; the same for the same shape. */
static uint64_t size_of(uint64_t shape, uint64_t layer, uint64_t what) {
  uint64_t mixed = (shape * 131 + layer * 31 + what * 7 + options.seed * 977 + 5) * 0x9e3779b97f4a7c15u;
  mixed ^= mixed >> 29;
  return what == 2 ? 256 + mixed % 4096 : (1 + mixed % (what == 0 ? 9 : 14)) * MIB + mixed % 7 * 100 * 1024;
}

static block kept[64];

/* Requests that no plan knows of. */
static void surprise(void) {
  if (!options.deviate || draw(1000) >= options.deviate) return;
  block *slot = &kept[draw(64)];
  if (slot->address) let_go(slot);
  else *slot = take(512 + draw(3 * MIB), 0);
}

static block carried;

static void step(uint64_t shape, uint64_t number) {
  block activations[MOST_LAYERS] = {{0}}, small[MOST_LAYERS] = {{0}};
  uint64_t other = options.streams > 1 ? 0x8000 : 0;
  for (uint64_t layer = 0; layer < options.layers; layer++) {
    uint64_t stretch = options.vary ? draw(64) * 4096 : 0;
    block scratch = take(size_of(shape, layer, 1) + stretch, layer % 2 ? other : 0);
    activations[layer] = take(size_of(shape, layer, 0) + stretch, layer % 2 ? other : 0);
    small[layer] = take(size_of(shape, layer, 2), 0);
    let_go(&scratch);
    surprise();
    weir_host_run(host, 8, state);
    if (layer == 2) let_go(&carried);
  }
  for (uint64_t layer = options.layers; layer-- > 0;) {
    block gradient = take(size_of(shape, layer, 1) / 2 + MIB, 0);
    let_go(&activations[layer]);
    let_go(&small[layer]);
    surprise();
    block update = take(size_of(shape, layer, 0) / 3 + 512, 0);
    let_go(&gradient);
    let_go(&update);
    weir_host_run(host, 8, state + number);
  }
  carried = take(3 * MIB + 512, 0);
  if (options.pause) nanosleep(&(struct timespec){.tv_nsec = (long)options.pause * 1000}, NULL);
}

static void check_snapshot(void) {
  static weir_range ranges[1 << 16];
  uint32_t count = weir_device_snapshot(device, ranges, 1 << 16);
  double bytes = 0;
  for (uint32_t index = 0; index < count; index++) {
    double range = ranges[index].state;
    if (range != WEIR_RANGE_UNBACKED && range != WEIR_RANGE_CARVED && range != WEIR_RANGE_PLANNED) bytes += ranges[index].size;
  }
  weir_gauges gauges = weir_device_gauges(device);
  must(options.rate > 0 || bytes == (double)gauges.reserved, "the snapshot adds up to what is reserved");
}

/* The part of the supervisor. */
static void announce(const uint8_t *bytes, size_t length) {
  char path[4096], hidden[4200];
  snprintf(path, sizeof path, "%s/%ld.%" PRIu64 ".plan", ring, (long)getpid(), ++generation);
  snprintf(hidden, sizeof hidden, "%s.new", path);
  int file = open(hidden, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  must(file >= 0 && write(file, bytes, length) == (ssize_t)length && close(file) == 0 && rename(hidden, path) == 0, "the plan is written");
  snprintf(path, sizeof path, "%s/%ld.ring", ring, (long)getpid());
  file = open(path, O_WRONLY);
  uint32_t word = (uint32_t)generation;
  must(file >= 0 && pwrite(file, &word, sizeof word, offsetof(weir_ring_header, plan_generation)) == sizeof word, "it is announced");
  close(file);
}

static void take_back(void) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%ld.%" PRIu64 ".plan", ring, (long)getpid(), generation);
  unlink(path);
}

static uint8_t *plan_bytes;
static size_t plan_length;

static void read_plan(void) {
  int file = open(plan_path, O_RDONLY);
  plan_bytes = malloc(1 << 20);
  ssize_t length = file < 0 || !plan_bytes ? -1 : read(file, plan_bytes, 1 << 20);
  if (length < 0) exit(69);
  plan_length = (size_t)length;
  close(file);
}

/* Announces the plan with every byte flipped, and with every shorter length. The steps in between must not be affected. */
static void corrupt(void) {
  uint8_t *copy = malloc(plan_length);
  for (size_t at = 0; at < 2 * plan_length; at++) {
    memcpy(copy, plan_bytes, plan_length);
    size_t length = plan_length;
    if (at < plan_length) copy[at] ^= (uint8_t)(at % 3 == 0 ? 0xff : 1 << draw(8));
    else length = at - plan_length;
    announce(copy, length);
    step(0, at);
    if (at % 64 == 0) must(weir_device_check(device, 2) == 0, "the engine's invariants");
    take_back();
  }
  free(copy);
}

static void capture(void) {
  uint64_t before = weir_device_gauges(device).plans;
  weir_device_begin_capture(device);
  announce(plan_bytes, plan_length);
  block b = take(MIB, 0);
  let_go(&b);
  must(weir_device_gauges(device).plans == before, "no plan is taken during a capture");
  weir_device_end_capture(device);
  b = take(MIB, 0);
  let_go(&b);
  must(weir_device_gauges(device).plans == before + 1, "it is taken after the capture");
}

static int stopping;

/* Another thread with a stream of its own. */
static void *noise(void *argument) {
  (void)argument;
  for (uint64_t round = 0; !__atomic_load_n(&stopping, __ATOMIC_ACQUIRE); round++) {
    weir_allocation given;
    if (!weir_device_allocate(device, 512 + round % 97 * 40000, 0x7000, &given, NULL)) continue;
    weir_device_free(device, given.address, NULL);
    if (round % 64 == 0) weir_device_gauges(device);
  }
  return NULL;
}

static void read_options(int count, char **words) {
  static const struct {
    const char *name;
    uint64_t *value;
  } known[] = {
      {"steps", &options.steps},     {"seed", &options.seed},       {"layers", &options.layers}, {"rate", &options.rate},
      {"total", &options.total},     {"deviate", &options.deviate}, {"at", &options.at},         {"corrupt", &options.corrupt},
      {"capture", &options.capture}, {"noise", &options.noise},     {"change", &options.change}, {"back", &options.back},
      {"pause", &options.pause},     {"last", &options.last},       {"vary", &options.vary},     {"streams", &options.streams},
      {"settles", &options.settles},
  };
  ring = getenv(WEIR_CHILD_RUN_DIR);
  for (int index = 1; index < count; index++) {
    char *equals = strchr(words[index], '=');
    if (!equals) exit(64);
    *equals = 0;
    int found = 1;
    if (strcmp(words[index], "ring") == 0) ring = equals + 1;
    else if (strcmp(words[index], "plan") == 0) plan_path = equals + 1;
    else found = 0;
    for (size_t option = 0; option < sizeof known / sizeof *known; option++) {
      if (strcmp(words[index], known[option].name) != 0) continue;
      *known[option].value = strtoull(equals + 1, NULL, 10);
      found = 1;
    }
    if (!found) exit(64);
  }
  if (!ring || options.layers < 4 || options.layers > MOST_LAYERS) exit(64);
}

static int lasts(void *context, uint64_t stream) {
  (void)context, (void)stream;
  return 1;
}

int main(int count, char **words) {
  char why[256];
  read_options(count, words);
  state = options.seed * 1000003;
  host = weir_host_backend(options.total * MIB, why, sizeof why);
  weir_backend *used = host && options.rate ? weir_faulty_backend(host, (uint32_t)options.rate, options.seed) : host;
  recorder = weir_recorder_open(ring, "weir", "0.0.0", 1 << 18);
  if (!used || !recorder) exit(66);
  weir_device_options given = {.lend = 1, .recorder = recorder, .stream_lasts = lasts};
  device = weir_device_new(used, &given);
  if (!device) exit(67);
  must(host->name_stream(host->driver.context, 100000, 0) == 0 && host->name_stream(host->driver.context, 100001, 0x9000) == 0,
       "own streams");
  if (plan_path) read_plan();
  pthread_t thread;
  if (options.noise && pthread_create(&thread, NULL, noise, NULL) != 0) exit(68);

  block weights[16];
  for (int index = 0; index < 16; index++) weights[index] = take((2 + (uint64_t)index % 5) * MIB + 4096, 0);
  uint64_t calls = 0, hits = 0, first_hits = 0;
  for (uint64_t number = 0; number < options.steps; number++) {
    uint64_t shape = options.change && number >= options.change && !(options.back && number >= options.back);
    if (plan_path && number == options.at && !options.corrupt && !options.capture) announce(plan_bytes, plan_length);
    if (plan_path && number == options.at && options.corrupt) corrupt();
    if (plan_path && number == options.at && options.capture) capture();
    if (number + options.last == options.steps) {
      weir_gauges gauges = weir_device_gauges(device);
      calls = gauges.driver_calls;
      hits = gauges.planned_hits;
      first_hits = gauges.planned_hits + gauges.planned_misses;
    }
    step(shape, number);
    if (options.settles) {
      weir_gauges *levels = weir_recorder_gauges(recorder, 0);
      levels->steps = number + 1;
      levels->swap_settled = number >= options.settles;
    }
    if (number % 8 == 7) {
      must(weir_device_check(device, 2) == 0, "the engine's invariants");
      if (!options.noise) check_snapshot();
    }
    if (number == options.steps / 2 && options.deviate) weir_device_empty_cache(device);
  }
  weir_gauges gauges = weir_device_gauges(device);
  printf("{\"hits\":%" PRIu64 ",\"misses\":%" PRIu64 ",\"plans\":%" PRIu64 ",\"refused\":%" PRIu64 ",\"peakReserved\":%" PRIu64
         ",\"reserved\":%" PRIu64 ",\"lastCalls\":%" PRIu64 ",\"lastHits\":%" PRIu64 ",\"lastRequests\":%" PRIu64 ",\"failures\":%" PRIu64
         ",\"peakLive\":%" PRIu64 ",",
         gauges.planned_hits, gauges.planned_misses, gauges.plans, gauges.plans_refused, gauges.peak_reserved, gauges.reserved,
         gauges.driver_calls - calls, gauges.planned_hits - hits, gauges.planned_hits + gauges.planned_misses - first_hits,
         gauges.driver_failures, gauges.peak_live);

  __atomic_store_n(&stopping, 1, __ATOMIC_RELEASE);
  if (options.noise) pthread_join(thread, NULL);
  let_go(&carried);
  for (int index = 0; index < 64; index++) let_go(&kept[index]);
  for (int index = 0; index < 16; index++) let_go(&weights[index]);
  host->synchronize(host->driver.context);
  for (int tries = 0; tries < 2000 && weir_device_gauges(device).reserved > 0; tries++) weir_device_empty_cache(device);
  must(weir_device_check(device, 3) == 0 && !weir_device_is_broken(device), "the engine's invariants at the end");
  gauges = weir_device_gauges(device);
  must(gauges.live == 0 && gauges.reserved == 0, "everything was given back");
  must(gauges.allocations == gauges.frees && gauges.ooms == shortages, "counts");
  printf("\"corrupted\":%" PRIu64 "}\n", weir_host_corrupted(host));
  must(weir_host_corrupted(host) == 0, "nothing was overwritten");
  weir_device_delete(device);
  weir_recorder_close(recorder);
  free(plan_bytes);
  return wrong;
}
