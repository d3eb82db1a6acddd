/* The generated engine as a C library: one mutex per engine, driver calls through a table, traps caught.
 * A trap is a defect of the engine. From then on it stays as it is, and every later call fails. */
#include "weir_engine.h"

#include <pthread.h>
#include <stdlib.h>

#include "weir_abi.h"
#include "caller.h"
#include "engine.h"
#include "wasm_runtime.h"

struct w2c_env {
  weir_driver driver;
};

struct weir_engine {
  pthread_mutex_t mutex;
  int serialized; /* the caller holds a lock of its own around every call */
  int broken;
  /* Reading all levels costs as much as a request. So the last ones are kept, and a request served by a plain fit only
   * updates `allocated`. `fits` is the count of plain fits at that time; `current` is 0 after calls that read no levels. */
  weir_levels levels;
  uint64_t fits;
  int current;
  struct w2c_env env;
  w2c_engine wasm;
};

u64 w2c_env_create(struct w2c_env *env, u64 bytes) { return (u64)env->driver.create(env->driver.context, bytes); }
u32 w2c_env_release(struct w2c_env *env, u64 handle) { return (u32)env->driver.release(env->driver.context, handle); }
u64 w2c_env_reserve(struct w2c_env *env, u64 bytes) { return (u64)env->driver.reserve(env->driver.context, bytes); }
u32 w2c_env_unreserve(struct w2c_env *env, u64 address, u64 bytes) {
  return (u32)env->driver.unreserve(env->driver.context, address, bytes);
}
u32 w2c_env_map(struct w2c_env *env, u64 address, u64 handle) { return (u32)env->driver.map(env->driver.context, address, handle); }
u32 w2c_env_setAccess(struct w2c_env *env, u64 address, u64 bytes) {
  return (u32)env->driver.set_access(env->driver.context, address, bytes);
}
u32 w2c_env_unmap(struct w2c_env *env, u64 address, u64 bytes) { return (u32)env->driver.unmap(env->driver.context, address, bytes); }

/* Without events in the driver, no release ever counts as over. */
u32 w2c_env_eventRecord(struct w2c_env *env, u32 stream, u32 slot) {
  return (u32)(env->driver.event_record ? env->driver.event_record(env->driver.context, stream, slot) : -1);
}
u32 w2c_env_eventQuery(struct w2c_env *env, u32 slot) {
  return (u32)(env->driver.event_query ? env->driver.event_query(env->driver.context, slot) : 0);
}
u32 w2c_env_streamWait(struct w2c_env *env, u32 stream, u32 slot) {
  return (u32)(env->driver.stream_wait ? env->driver.stream_wait(env->driver.context, stream, slot) : -1);
}

static void lock(weir_engine *engine) {
  if (!engine->serialized) pthread_mutex_lock(&engine->mutex);
}

static void unlock(weir_engine *engine) {
  if (!engine->serialized) pthread_mutex_unlock(&engine->mutex);
}

void engine_leave_locking_to_caller(weir_engine *engine) { engine->serialized = 1; }

/* GUARDED, for calls that change levels without reading them. */
#define CHANGING(engine, call) GUARDED(engine, (engine)->current = 0; call)

/* Runs `call` inside the mutex, unless the engine is broken. A trap breaks the engine and leaves results as they were. */
#define GUARDED(engine, call)                  \
  do {                                         \
    lock(engine);                              \
    if (!(engine)->broken) {                   \
      weir_frame frame;                        \
      weir_frame **current = &weir_trap_frame; \
      weir_frame *outer = *current;            \
      *current = &frame;                       \
      if (WEIR_MARK(frame) == 0) {             \
        call;                                  \
      } else {                                 \
        (engine)->broken = 1;                  \
      }                                        \
      *current = outer;                        \
    }                                          \
    unlock(engine);                            \
  } while (0)

/* Without events the engine cannot know what the GPU has finished with. The driver then waits before it unmaps. */
static void adapt_to_driver(weir_engine *engine) {
  if (!engine->env.driver.event_record) w2c_engine_configure(&engine->wasm, WEIR_SETTING_UNMAP_FINISHED, 0);
}

static void instantiate(weir_engine *engine) {
  GUARDED(engine, wasm2c_engine_instantiate(&engine->wasm, &engine->env); adapt_to_driver(engine));
}

weir_engine *weir_engine_new(const weir_driver *driver) {
  weir_engine *engine = calloc(1, sizeof *engine);
  if (!engine) return NULL;
  if (pthread_mutex_init(&engine->mutex, NULL) != 0) {
    free(engine);
    return NULL;
  }
  engine->env.driver = *driver;
  instantiate(engine);
  /* A generated engine of another build would take numbers for others. */
  if (engine->broken || w2c_engine_abiDigest(&engine->wasm) != WEIR_ABI_DIGEST) {
    if (!engine->broken) wasm2c_engine_free(&engine->wasm);
    pthread_mutex_destroy(&engine->mutex);
    free(engine);
    return NULL;
  }
  return engine;
}

void weir_engine_delete(weir_engine *engine) {
  if (!engine) return;
  wasm2c_engine_free(&engine->wasm);
  pthread_mutex_destroy(&engine->mutex);
  free(engine);
}

int weir_engine_configure(weir_engine *engine, uint32_t setting, uint64_t value) {
  volatile int result = 0;
  GUARDED(engine, result = (int)w2c_engine_configure(&engine->wasm, setting, value));
  return result;
}

int weir_engine_apply_preset(weir_engine *engine, uint32_t preset) {
  volatile int result = 0;
  GUARDED(engine, result = (int)w2c_engine_preset(&engine->wasm, preset));
  return result;
}

uint64_t weir_engine_malloc(weir_engine *engine, uint64_t bytes, uint32_t stream, uint32_t pool) {
  volatile uint64_t result = 0;
  CHANGING(engine, result = w2c_engine_malloc(&engine->wasm, bytes, stream, pool));
  return result;
}

int weir_engine_free(weir_engine *engine, uint64_t address) {
  volatile int result = 0;
  CHANGING(engine, result = (int)w2c_engine_free(&engine->wasm, address));
  return result;
}

uint32_t weir_engine_let_go(weir_engine *engine, uint64_t address) {
  volatile uint32_t result = 0;
  CHANGING(engine, result = w2c_engine_letGo(&engine->wasm, address));
  return result;
}

int weir_engine_complete(weir_engine *engine, uint32_t block) {
  volatile int result = 0;
  CHANGING(engine, result = (int)w2c_engine_completeBlock(&engine->wasm, block));
  return result;
}

static void read_levels(weir_engine *engine) {
  engine->levels = (weir_levels){
      .allocated = w2c_engine_statistic(&engine->wasm, WEIR_STATISTIC_ALLOCATED),
      .stitches = w2c_engine_statistic(&engine->wasm, WEIR_STATISTIC_STITCHES),
      .borrows = w2c_engine_statistic(&engine->wasm, WEIR_STATISTIC_BORROWS),
      .waits = w2c_engine_statistic(&engine->wasm, WEIR_STATISTIC_WAITS),
      .parked = (uint32_t)w2c_engine_statistic(&engine->wasm, WEIR_STATISTIC_PARKED),
      .completed = w2c_engine_completed(&engine->wasm),
  };
  engine->fits = w2c_engine_statistic(&engine->wasm, WEIR_STATISTIC_FITS);
  engine->current = 1;
}

static int describe(weir_engine *engine, uint32_t block, weir_block *out) {
  if (block == 0) return 0;
  out->address = w2c_engine_addressOf(&engine->wasm, block);
  out->size = w2c_engine_sizeOf(&engine->wasm, block);
  out->requested = w2c_engine_requestedOf(&engine->wasm, block);
  out->stream = w2c_engine_streamOf(&engine->wasm, block);
  return 1;
}

static int allocate(weir_engine *engine, uint64_t bytes, uint32_t stream, uint32_t pool, weir_block *out) {
  uint32_t block = w2c_engine_allocate(&engine->wasm, bytes, stream, pool);
  if (block != 0) {
    out->address = w2c_engine_addressOf(&engine->wasm, block);
    out->size = w2c_engine_sizeOf(&engine->wasm, block);
    out->requested = bytes;
    out->stream = stream;
  }
  /* A plain fit changes only `allocated`, unless parked blocks had to be looked after. */
  int plain = engine->current && block != 0 && engine->levels.parked == 0 &&
              w2c_engine_statistic(&engine->wasm, WEIR_STATISTIC_FITS) == engine->fits + 1;
  if (plain) {
    engine->levels.allocated += out->size;
    engine->fits++;
  } else {
    read_levels(engine);
  }
  out->levels = engine->levels;
  return block != 0;
}

int weir_engine_allocate(weir_engine *engine, uint64_t bytes, uint32_t stream, uint32_t pool, weir_block *out) {
  volatile int result = 0;
  *out = (weir_block){0};
  GUARDED(engine, result = allocate(engine, bytes, stream, pool, out));
  return result;
}

static int deallocate(weir_engine *engine, uint64_t address, weir_block *out) {
  uint32_t block = w2c_engine_blockAt(&engine->wasm, address);
  /* Described before it is freed: afterwards the block may be merged into another. */
  int freed = describe(engine, block, out) ? (int)w2c_engine_deallocate(&engine->wasm, block) : 0;
  if (!engine->current) read_levels(engine);
  else if (freed) engine->levels.allocated -= out->size;
  if (freed == WEIR_FREE_RESULT_PARKED) engine->levels.parked = (uint32_t)w2c_engine_statistic(&engine->wasm, WEIR_STATISTIC_PARKED);
  out->levels = engine->levels;
  return freed;
}

int weir_engine_deallocate(weir_engine *engine, uint64_t address, weir_block *out) {
  volatile int result = 0;
  *out = (weir_block){0};
  GUARDED(engine, result = deallocate(engine, address, out));
  return result;
}

static int find(weir_engine *engine, uint64_t address, weir_block *out) {
  if (!engine->current) read_levels(engine);
  out->levels = engine->levels;
  return describe(engine, w2c_engine_blockAt(&engine->wasm, address), out);
}

int weir_engine_find(weir_engine *engine, uint64_t address, weir_block *out) {
  volatile int result = 0;
  *out = (weir_block){0};
  GUARDED(engine, result = find(engine, address, out));
  return result;
}

static int find_containing(weir_engine *engine, uint64_t address, weir_block *out) {
  uint32_t count = w2c_engine_snapshot(&engine->wasm);
  const weir_range *ranges = (const void *)(engine->wasm.w2c_memory.data + w2c_engine_snapshotAddress(&engine->wasm));
  uint64_t nearest = 0;
  for (uint32_t index = 0; index < count; index++) {
    uint64_t given = (uint64_t)ranges[index].given;
    /* Live blocks do not overlap, so only the last one that begins at or before the address can hold it. */
    if (ranges[index].state == WEIR_RANGE_LIVE && given <= address && given > nearest) nearest = given;
  }
  return nearest != 0 && find(engine, nearest, out) && address - out->address < out->size;
}

int weir_engine_find_containing(weir_engine *engine, uint64_t address, weir_block *out) {
  volatile int result = 0;
  *out = (weir_block){0};
  GUARDED(engine, result = find_containing(engine, address, out));
  return result;
}

static uint64_t largest_free(weir_engine *engine) {
  uint32_t count = w2c_engine_snapshot(&engine->wasm);
  const weir_range *ranges = (const void *)(engine->wasm.w2c_memory.data + w2c_engine_snapshotAddress(&engine->wasm));
  double largest = 0;
  for (uint32_t index = 0; index < count; index++) {
    if (ranges[index].state == WEIR_RANGE_FREE && ranges[index].small == 0 && ranges[index].size > largest) largest = ranges[index].size;
  }
  return (uint64_t)largest;
}

uint64_t weir_engine_largest_free(weir_engine *engine) {
  volatile uint64_t result = 0;
  GUARDED(engine, result = largest_free(engine));
  return result;
}

void weir_engine_levels(weir_engine *engine, weir_levels *out) {
  *out = (weir_levels){0};
  GUARDED(engine, read_levels(engine); *out = engine->levels);
}

static uint32_t drain_completed(weir_engine *engine, uint64_t *addresses, uint32_t capacity) {
  uint32_t count = w2c_engine_completed(&engine->wasm);
  uint32_t from = w2c_engine_drainCompleted(&engine->wasm);
  uint32_t copied = count < capacity ? count : capacity;
  engine->levels.completed = 0;
  if (copied > 0) memcpy(addresses, engine->wasm.w2c_memory.data + from, copied * sizeof *addresses);
  return copied;
}

uint32_t weir_engine_drain_completed(weir_engine *engine, uint64_t *addresses, uint32_t capacity) {
  volatile uint32_t result = 0;
  GUARDED(engine, result = drain_completed(engine, addresses, capacity));
  return result;
}

int weir_engine_record_stream(weir_engine *engine, uint64_t address, uint32_t stream) {
  volatile int result = 0;
  if (!engine->env.driver.event_record) return 0;
  GUARDED(engine, result = (int)w2c_engine_recordStream(&engine->wasm, address, stream));
  return result;
}

void weir_engine_set_capturing(weir_engine *engine, uint32_t stream, int on) {
  GUARDED(engine, w2c_engine_setCapturing(&engine->wasm, stream, (u32)(on != 0)));
}

uint64_t weir_engine_latest_release(weir_engine *engine) {
  volatile uint64_t result = 0;
  GUARDED(engine, result = w2c_engine_latestRelease(&engine->wasm));
  return result;
}

void weir_engine_streams_idle(weir_engine *engine, uint64_t release) { CHANGING(engine, w2c_engine_streamsIdle(&engine->wasm, release)); }

void weir_engine_empty_cache(weir_engine *engine) { CHANGING(engine, w2c_engine_emptyCache(&engine->wasm)); }

uint64_t weir_engine_statistic(weir_engine *engine, uint32_t index) {
  volatile uint64_t result = 0;
  GUARDED(engine, result = w2c_engine_statistic(&engine->wasm, index));
  return result;
}

uint64_t weir_engine_explanation(weir_engine *engine, uint32_t index) {
  volatile uint64_t result = 0;
  GUARDED(engine, result = w2c_engine_explanation(&engine->wasm, index));
  return result;
}

uint32_t weir_engine_check(weir_engine *engine, uint32_t level) {
  volatile uint32_t result = UINT32_MAX;
  GUARDED(engine, result = w2c_engine_check(&engine->wasm, level));
  return result;
}

static uint32_t copy_snapshot(weir_engine *engine, weir_range *ranges, uint32_t capacity) {
  uint32_t count = w2c_engine_snapshot(&engine->wasm);
  uint32_t copied = count < capacity ? count : capacity;
  if (copied > 0) memcpy(ranges, engine->wasm.w2c_memory.data + w2c_engine_snapshotAddress(&engine->wasm), copied * sizeof *ranges);
  return count;
}

uint32_t weir_engine_snapshot(weir_engine *engine, weir_range *ranges, uint32_t capacity) {
  volatile uint32_t result = 0;
  GUARDED(engine, result = copy_snapshot(engine, ranges, capacity));
  return result;
}

int weir_engine_is_broken(weir_engine *engine) {
  lock(engine);
  int broken = engine->broken;
  unlock(engine);
  return broken;
}

static uint32_t install_plan(weir_engine *engine, const weir_plan_request *requests, uint32_t count, uint32_t turns,
                             const uint64_t *offsets, uint64_t footprint) {
  uint32_t rows = w2c_engine_planBuffer(&engine->wasm, count, turns);
  if (rows == 0) return 0;
  uint8_t *row = engine->wasm.w2c_memory.data + rows;
  for (uint32_t index = 0; index < count; index++) {
    const weir_plan_row head = {.bytes = requests[index].size, .stream = requests[index].stream};
    memcpy(row, &head, sizeof head);
    memcpy(row + sizeof(weir_plan_row), offsets + (size_t)index * turns, turns * sizeof *offsets);
    row += sizeof(weir_plan_row) + turns * sizeof *offsets;
  }
  return w2c_engine_planInstall(&engine->wasm, rows, footprint);
}

uint32_t weir_engine_install_plan(weir_engine *engine, const weir_plan_request *requests, uint32_t count, uint32_t turns,
                                  const uint64_t *offsets, uint64_t footprint) {
  volatile uint32_t result = 0;
  GUARDED(engine, result = install_plan(engine, requests, count, turns, offsets, footprint));
  return result;
}

int weir_engine_forget_plan(weir_engine *engine, uint32_t plan) {
  volatile int result = 0;
  if (plan == 0) return 0;
  GUARDED(engine, result = (int)w2c_engine_planForget(&engine->wasm, plan));
  return result;
}

void weir_engine_forget_plans(weir_engine *engine) { GUARDED(engine, w2c_engine_planForget(&engine->wasm, 0)); }
