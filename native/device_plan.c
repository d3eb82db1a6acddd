/* Plans that the supervisor has made: announced by a number in the ring, read from a file, checked and given to the engine.
 * The file is read without the lock. Nothing in it is believed: what cannot be is counted and otherwise ignored, and a plan that is
 * merely wrong does no harm, since the engine gives out a place only if it is free. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "device.h"

#define PLAN_MAGIC "WEIRPLAN"
#define PLAN_VERSION 1u
#define MOST_REQUESTS (1u << 20)
#define MOST_TURNS 16u
#define MOST_FOOTPRINT (1ull << 40)
#define PLACE_UNIT 512u
/* Plans that are looked for at once; those before them are passed over. */
#define MOST_BEHIND 16u

/* Numbers of statistics, as in engine/abi/statistics.ts. */
enum { STATISTIC_HITS = 32, STATISTIC_MISSES = 33, STATISTIC_OCCUPIED = 34, STATISTIC_ACTIVE = 35 };

/* As src/plan/files/process-plan.ts writes it; little-endian, as is every machine with such a GPU. */
typedef struct plan_header {
  char magic[8];
  uint32_t version, device;
  uint64_t stream; /* handle */
  uint32_t count, turns;
  uint64_t footprint;
} plan_header;
WEIR_RING_ASSERT(sizeof(plan_header) == 40, "as in src/plan/files/process-plan.ts");

typedef struct plan_file {
  plan_header header;
  uint64_t *sizes;   /* count */
  uint64_t *offsets; /* count * turns */
} plan_file;

static int read_all(int file, void *into, size_t bytes) {
  for (size_t done = 0; done < bytes;) {
    ssize_t got = read(file, (char *)into + done, bytes - done);
    if (got <= 0) return 0;
    done += (size_t)got;
  }
  return 1;
}

static int is_sane(const plan_header *header, off_t bytes) {
  if (memcmp(header->magic, PLAN_MAGIC, sizeof header->magic) != 0 || header->version != PLAN_VERSION) return 0;
  if (header->device >= WEIR_RING_DEVICES || header->stream == UINT64_MAX) return 0;
  if (header->count == 0 || header->count > MOST_REQUESTS || header->turns == 0 || header->turns > MOST_TURNS) return 0;
  if (header->footprint == 0 || header->footprint > MOST_FOOTPRINT) return 0;
  uint64_t words = (uint64_t)header->count * (1 + header->turns);
  return bytes >= 0 && (uint64_t)bytes == sizeof *header + words * sizeof(uint64_t);
}

static int are_places_sane(const plan_file *plan) {
  const plan_header *header = &plan->header;
  for (uint32_t index = 0; index < header->count; index++) {
    uint64_t size = plan->sizes[index];
    if (size == 0 || size % PLACE_UNIT != 0 || size > header->footprint) return 0;
    for (uint32_t turn = 0; turn < header->turns; turn++) {
      uint64_t offset = plan->offsets[(size_t)index * header->turns + turn];
      if (offset % PLACE_UNIT != 0 || offset > header->footprint - size) return 0;
    }
  }
  return 1;
}

/* 1; 0 if it is for another GPU; below 0 if it cannot be used. */
static int read_open_plan(int file, int32_t device, plan_file *plan) {
  struct stat status;
  if (fstat(file, &status) != 0 || !S_ISREG(status.st_mode) || status.st_size < (off_t)sizeof plan->header) return -1;
  if (!read_all(file, &plan->header, sizeof plan->header) || !is_sane(&plan->header, status.st_size)) return -1;
  if ((int64_t)plan->header.device != device) return 0;
  size_t bytes = (size_t)status.st_size - sizeof plan->header;
  plan->sizes = malloc(bytes);
  if (!plan->sizes) return -1;
  plan->offsets = plan->sizes + plan->header.count;
  if (read_all(file, plan->sizes, bytes) && are_places_sane(plan)) return 1;
  free(plan->sizes);
  return -1;
}

static int read_plan(const weir_device *device, uint32_t generation, plan_file *plan) {
  char path[PATH_MAX + 64];
  snprintf(path, sizeof path, "%s/%ld.%u.plan", weir_recorder_directory(device->recorder), (long)getpid(), generation);
  int file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0) return -1;
  int result = read_open_plan(file, device->options.device, plan);
  close(file);
  return result;
}

static void mark_plan(weir_device *device, const char *format, uint32_t number) {
  char text[64];
  snprintf(text, sizeof text, format, number);
  uint32_t name = weir_recorder_string(device->recorder, text);
  if (name != 0) device_row(device, (weir_event){.kind = WEIR_MARK, .fields = 1, .detail = (int32_t)name}, 0);
}

/* Inside the lock. 1 if the engine took it. */
static int install(weir_device *device, const plan_file *plan) {
  const plan_header *header = &plan->header;
  /* Only a stream that the program has used: a handle that somebody made up must never reach the driver. */
  const weir_entry *stream = weir_map_find(&device->stream_numbers, header->stream + 1);
  weir_plan_request *requests = stream ? malloc(header->count * sizeof *requests) : NULL;
  if (!requests) return 0;
  for (uint32_t index = 0; index < header->count; index++) {
    requests[index] = (weir_plan_request){plan->sizes[index], (uint32_t)stream->value};
  }
  uint32_t number = weir_engine_install_plan(device->engine, requests, header->count, header->turns, plan->offsets, header->footprint);
  free(requests);
  if (number == 0) return 0;
  device->has_plans = 1;
  device->gauges->plans++;
  device_count_planned(device);
  mark_plan(device, "weir plan %u installed", number);
  return 1;
}

/* Takes the plan of one number; 0 if that has to wait. */
static int take_plan(weir_device *device, uint32_t generation) {
  plan_file plan;
  int found = read_plan(device, generation, &plan);
  device_lock(&device->lock);
  int waits = device->captures > 0;
  if (!waits && found != 0 && (found < 0 || !install(device, &plan))) device->gauges->plans_refused++;
  device_unlock(&device->lock);
  if (found > 0) free(plan.sizes);
  return !waits;
}

void device_take_plans(weir_device *device) {
  device_lock(&device->lock);
  /* Another thread is at it, or the first request after the capture will be. */
  int busy = device->captures > 0 || device->takes_plans;
  if (!busy) device->takes_plans = 1;
  device_unlock(&device->lock);
  if (busy) return;
  uint32_t seen = __atomic_load_n(&device->plan_seen, __ATOMIC_RELAXED);
  uint32_t newest = weir_recorder_plan_generation(device->recorder);
  /* A number that went back, as in a child of fork whose ring is not its parent's, announces nothing. */
  if (newest < seen) seen = newest;
  if (newest - seen > MOST_BEHIND) seen = newest - MOST_BEHIND;
  while (seen != newest && take_plan(device, seen + 1)) seen++;
  device_lock(&device->lock);
  __atomic_store_n(&device->plan_seen, seen, __ATOMIC_RELAXED);
  device->takes_plans = 0;
  device_unlock(&device->lock);
}

void device_count_planned(weir_device *device) {
  device->plan_countdown = PLANNED_EVERY;
  if (!device->has_plans || weir_engine_is_broken(device->engine)) return;
  weir_engine *engine = device->engine;
  device->gauges->planned_hits = weir_engine_statistic(engine, STATISTIC_HITS);
  device->gauges->planned_misses = weir_engine_statistic(engine, STATISTIC_MISSES) + weir_engine_statistic(engine, STATISTIC_OCCUPIED);
  uint32_t active = (uint32_t)weir_engine_statistic(engine, STATISTIC_ACTIVE);
  if (active == device->active_plan) return;
  if (active != 0) mark_plan(device, "weir plan %u in use", active);
  else mark_plan(device, "weir plan %u left", device->active_plan);
  device->active_plan = active;
}
