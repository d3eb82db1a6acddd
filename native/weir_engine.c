/* The generated engine as a C library: one mutex per engine, driver calls through a table, traps caught.
 * A trap is a defect; the engine is then left as it is and every later call fails instead of making things worse. */
#include "weir_engine.h"

#include <pthread.h>
#include <stdlib.h>

#include "engine.h"
#include "wasm_runtime.h"

struct w2c_env {
  weir_driver driver;
};

struct weir_engine {
  pthread_mutex_t mutex;
  int broken;
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

/* A driver without events says that nothing is ever over. */
u32 w2c_env_eventRecord(struct w2c_env *env, u32 stream, u32 slot) {
  return (u32)(env->driver.event_record ? env->driver.event_record(env->driver.context, stream, slot) : -1);
}
u32 w2c_env_eventQuery(struct w2c_env *env, u32 slot) {
  return (u32)(env->driver.event_query ? env->driver.event_query(env->driver.context, slot) : 0);
}
u32 w2c_env_streamWait(struct w2c_env *env, u32 stream, u32 slot) {
  return (u32)(env->driver.stream_wait ? env->driver.stream_wait(env->driver.context, stream, slot) : -1);
}

/* Runs `call` inside the mutex with `result` as it was if the engine is broken, or breaks here. */
#define GUARDED(engine, call)                                   \
  do {                                                          \
    pthread_mutex_lock(&(engine)->mutex);                       \
    if (!(engine)->broken) {                                    \
      weir_frame frame;                                         \
      weir_frame **current = &weir_trap_frame;                  \
      weir_frame *outer = *current;                             \
      *current = &frame;                                        \
      if (WEIR_MARK(frame) == 0) {                              \
        call;                                                   \
      } else {                                                  \
        (engine)->broken = 1;                                   \
      }                                                         \
      *current = outer;                                         \
    }                                                           \
    pthread_mutex_unlock(&(engine)->mutex);                     \
  } while (0)

static void instantiate(weir_engine *engine) { GUARDED(engine, wasm2c_engine_instantiate(&engine->wasm, &engine->env)); }

weir_engine *weir_engine_new(const weir_driver *driver) {
  weir_engine *engine = calloc(1, sizeof *engine);
  if (!engine) return NULL;
  if (pthread_mutex_init(&engine->mutex, NULL) != 0) {
    free(engine);
    return NULL;
  }
  engine->env.driver = *driver;
  instantiate(engine);
  if (engine->broken) {
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

uint64_t weir_engine_malloc(weir_engine *engine, uint64_t bytes, uint32_t stream, uint32_t pool) {
  volatile uint64_t result = 0;
  GUARDED(engine, result = w2c_engine_malloc(&engine->wasm, bytes, stream, pool));
  return result;
}

int weir_engine_free(weir_engine *engine, uint64_t address) {
  volatile int result = 0;
  GUARDED(engine, result = (int)w2c_engine_free(&engine->wasm, address));
  return result;
}

uint32_t weir_engine_let_go(weir_engine *engine, uint64_t address) {
  volatile uint32_t result = 0;
  GUARDED(engine, result = w2c_engine_letGo(&engine->wasm, address));
  return result;
}

int weir_engine_complete(weir_engine *engine, uint32_t block) {
  volatile int result = 0;
  GUARDED(engine, result = (int)w2c_engine_completeBlock(&engine->wasm, block));
  return result;
}

int weir_engine_record_stream(weir_engine *engine, uint64_t address, uint32_t stream) {
  volatile int result = 0;
  if (!engine->env.driver.event_record) return 0;
  GUARDED(engine, result = (int)w2c_engine_recordStream(&engine->wasm, address, stream));
  return result;
}

int weir_engine_set_capturing(weir_engine *engine, uint32_t stream, int on) {
  volatile int result = 0;
  GUARDED(engine, result = (int)w2c_engine_setCapturing(&engine->wasm, stream, (u32)(on != 0)));
  return result;
}

void weir_engine_streams_idle(weir_engine *engine) { GUARDED(engine, w2c_engine_streamsIdle(&engine->wasm)); }

void weir_engine_empty_cache(weir_engine *engine) { GUARDED(engine, w2c_engine_emptyCache(&engine->wasm)); }

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
  pthread_mutex_lock(&engine->mutex);
  int broken = engine->broken;
  pthread_mutex_unlock(&engine->mutex);
  return broken;
}
