/* Counts calls, and those that are forbidden during a capture. */
#include "spy_backend.h"

#include <stdlib.h>

static void forbid(spy *self) {
  if (atomic_load(&self->captures) > 0) atomic_fetch_add(&self->violations, 1);
}

/* CUDA may crash if a destroyed stream is used. */
static void forbid_dead(spy *self, uint32_t stream) {
  uint64_t dead = atomic_load(&self->dead);
  if (dead != 0 && stream < 64 && self->names[stream] == dead) atomic_fetch_add(&self->touched, 1);
}

static int64_t create(void *context, uint64_t bytes) {
  spy *self = context;
  return self->inner->driver.create(self->inner->driver.context, bytes);
}
static int32_t release(void *context, uint64_t handle) {
  spy *self = context;
  return self->inner->driver.release(self->inner->driver.context, handle);
}
static int64_t reserve(void *context, uint64_t bytes) {
  spy *self = context;
  return self->inner->driver.reserve(self->inner->driver.context, bytes);
}
static int32_t unreserve(void *context, uint64_t address, uint64_t bytes) {
  spy *self = context;
  return self->inner->driver.unreserve(self->inner->driver.context, address, bytes);
}
static int32_t map(void *context, uint64_t address, uint64_t handle) {
  spy *self = context;
  return self->inner->driver.map(self->inner->driver.context, address, handle);
}
static int32_t set_access(void *context, uint64_t address, uint64_t bytes) {
  spy *self = context;
  return self->inner->driver.set_access(self->inner->driver.context, address, bytes);
}
static int32_t unmap(void *context, uint64_t address, uint64_t bytes) {
  spy *self = context;
  forbid(self);
  atomic_fetch_add(&self->unmaps, 1);
  return self->inner->driver.unmap(self->inner->driver.context, address, bytes);
}
static int32_t event_record(void *context, uint32_t stream, uint32_t slot) {
  spy *self = context;
  forbid(self);
  forbid_dead(self, stream);
  atomic_fetch_add(&self->records, 1);
  return self->inner->driver.event_record(self->inner->driver.context, stream, slot);
}
static int32_t event_query(void *context, uint32_t slot) {
  spy *self = context;
  forbid(self);
  atomic_fetch_add(&self->queries, 1);
  if (self->lie == LIE_QUERY) return 1;
  return self->inner->driver.event_query(self->inner->driver.context, slot);
}
static int32_t stream_wait(void *context, uint32_t stream, uint32_t slot) {
  spy *self = context;
  forbid(self);
  forbid_dead(self, stream);
  atomic_fetch_add(&self->stream_waits, 1);
  if (self->lie == LIE_WAIT) return 0;
  return self->inner->driver.stream_wait(self->inner->driver.context, stream, slot);
}
static int32_t name_stream(void *context, uint32_t number, uint64_t handle) {
  spy *self = context;
  if (number < 64) self->names[number] = handle;
  return self->inner->name_stream(self->inner->driver.context, number, handle);
}
static int32_t synchronize(void *context) {
  spy *self = context;
  forbid(self);
  atomic_fetch_add(&self->waits, 1);
  if (self->lie == LIE_SYNCHRONIZE) return 0;
  int32_t result = self->inner->synchronize(self->inner->driver.context);
  if (self->waited) self->waited();
  return result;
}
static int32_t memory(void *context, uint64_t *free_bytes, uint64_t *total_bytes) {
  spy *self = context;
  return self->inner->memory(self->inner->driver.context, free_bytes, total_bytes);
}
static const char *last_error(void *context) {
  spy *self = context;
  return self->inner->last_error(self->inner->driver.context);
}
static void close_backend(void *context) {
  spy *self = context;
  self->inner->close(self->inner->driver.context);
  free(self);
}

spy *spy_on(weir_backend *inner) {
  spy *self = calloc(1, sizeof *self);
  if (!self) return NULL;
  self->inner = inner;
  self->backend = (weir_backend){
      {self, create, release, reserve, unreserve, map, set_access, unmap, event_record, event_query, stream_wait},
      inner->granularity,
      name_stream,
      synchronize,
      memory,
      last_error,
      close_backend,
      NULL,
      NULL,
      NULL,
      NULL,
  };
  return self;
}
