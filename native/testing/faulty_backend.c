/* A backend that fails now and then. A call chosen to fail is not passed on, so it has changed nothing.
 * Which calls fail depends only on the seed and on the number of calls before. */
#include <stdlib.h>

#include "weir_testing.h"

typedef struct faulty_backend {
  weir_backend backend;
  weir_backend *inner;
  uint32_t per_million;
  uint64_t state;
} faulty_backend;

static const char INJECTED[] = "a failure that a test has asked for";
static _Thread_local int injected;

/* Atomic, because threads wait for the device without the lock. */
static int fails(faulty_backend *self) {
  uint64_t before = __atomic_load_n(&self->state, __ATOMIC_RELAXED), state;
  do {
    state = before * 6364136223846793005u + 1442695040888963407u;
  } while (!__atomic_compare_exchange_n(&self->state, &before, state, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
  injected = (state >> 33) % 1000000 < self->per_million;
  return injected;
}

/* Passes a call on to the same function of the inner driver. */
#define PASS(self, name, ...) (fails(self) ? -1 : (self)->inner->driver.name((self)->inner->driver.context, __VA_ARGS__))

static int64_t create(void *context, uint64_t bytes) {
  faulty_backend *self = context;
  return PASS(self, create, bytes);
}
static int32_t release(void *context, uint64_t handle) {
  faulty_backend *self = context;
  return PASS(self, release, handle);
}
static int64_t reserve(void *context, uint64_t bytes) {
  faulty_backend *self = context;
  return PASS(self, reserve, bytes);
}
static int32_t unreserve(void *context, uint64_t address, uint64_t bytes) {
  faulty_backend *self = context;
  return PASS(self, unreserve, address, bytes);
}
static int32_t map(void *context, uint64_t address, uint64_t handle) {
  faulty_backend *self = context;
  return PASS(self, map, address, handle);
}
static int32_t set_access(void *context, uint64_t address, uint64_t bytes) {
  faulty_backend *self = context;
  return PASS(self, set_access, address, bytes);
}
static int32_t unmap(void *context, uint64_t address, uint64_t bytes) {
  faulty_backend *self = context;
  return PASS(self, unmap, address, bytes);
}
static int32_t event_record(void *context, uint32_t stream, uint32_t slot) {
  faulty_backend *self = context;
  return PASS(self, event_record, stream, slot);
}
static int32_t event_query(void *context, uint32_t slot) {
  faulty_backend *self = context;
  return PASS(self, event_query, slot);
}
static int32_t stream_wait(void *context, uint32_t stream, uint32_t slot) {
  faulty_backend *self = context;
  return PASS(self, stream_wait, stream, slot);
}

static int32_t name_stream(void *context, uint32_t number, uint64_t handle) {
  faulty_backend *self = context;
  return fails(self) ? -1 : self->inner->name_stream(self->inner->driver.context, number, handle);
}
static int32_t synchronize(void *context) {
  faulty_backend *self = context;
  return fails(self) ? -1 : self->inner->synchronize(self->inner->driver.context);
}
static int32_t memory(void *context, uint64_t *free_bytes, uint64_t *total_bytes) {
  faulty_backend *self = context;
  return fails(self) ? -1 : self->inner->memory(self->inner->driver.context, free_bytes, total_bytes);
}
static const char *last_error(void *context) {
  faulty_backend *self = context;
  return injected ? INJECTED : self->inner->last_error(self->inner->driver.context);
}
static int32_t share(void *context, uint64_t address, uint64_t bytes, weir_piece *pieces, uint32_t room, uint64_t *start) {
  faulty_backend *self = context;
  return fails(self) ? -1 : self->inner->share(self->inner->driver.context, address, bytes, pieces, room, start);
}
static int64_t import(void *context, const weir_piece *pieces, uint32_t count) {
  faulty_backend *self = context;
  return fails(self) ? -1 : self->inner->import(self->inner->driver.context, pieces, count);
}
static int32_t drop_import(void *context, uint64_t address) {
  faulty_backend *self = context;
  return self->inner->drop_import(self->inner->driver.context, address);
}
static void forked(void *context) {
  faulty_backend *self = context;
  self->inner->forked(self->inner->driver.context);
}
static void close_backend(void *context) {
  faulty_backend *self = context;
  self->inner->close(self->inner->driver.context);
  free(self);
}

weir_backend *weir_faulty_backend(weir_backend *inner, uint32_t per_million, uint64_t seed) {
  faulty_backend *self = calloc(1, sizeof *self);
  if (!self) return NULL;
  self->inner = inner;
  self->per_million = per_million;
  self->state = seed;
  self->backend = (weir_backend){
      {self, create, release, reserve, unreserve, map, set_access, unmap, event_record, event_query, stream_wait},
      inner->granularity,
      name_stream,
      synchronize,
      memory,
      last_error,
      close_backend,
      inner->share ? share : NULL,
      inner->import ? import : NULL,
      inner->drop_import ? drop_import : NULL,
      inner->forked ? forked : NULL,
  };
  return &self->backend;
}
