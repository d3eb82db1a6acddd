/* A CUDA device as the engine's driver: CUDA's virtual memory management, and events of the program's streams.
 * Every call runs in the primary context. Capture checks are relaxed, so that a capture elsewhere makes no memory call fail. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_backend.h"

static _Thread_local char words[128] = "no call has failed";

int32_t cuda_judged(const cuda_driver *cuda, int result, const char *what) {
  if (result == CUDA_SUCCESS) return 0;
  const char *name = NULL, *text = NULL;
  if (cuda->cuGetErrorName(result, &name) != CUDA_SUCCESS || !name) name = "unknown error";
  if (cuda->cuGetErrorString(result, &text) != CUDA_SUCCESS || !text) text = "";
  snprintf(words, sizeof words, "%s: %s (%s)", what, name, text);
  return -1;
}

int32_t cuda_refused(const char *why) {
  snprintf(words, sizeof words, "%s", why);
  return -1;
}

/* Creates memory of the best kind there is; `anew` finds out again which that is. CUDA's answer. */
static int create_best(cuda_backend *self, uint64_t bytes, int anew, cu_handle *handle) {
  pthread_mutex_lock(&self->mutex);
  if (anew) self->settled = 0;
  int result = self->settled ? CUDA_SUCCESS : cuda_settle(self);
  cu_memory_properties best = self->properties;
  pthread_mutex_unlock(&self->mutex);
  if (result == CUDA_SUCCESS) IN_CONTEXT(self, result, cuMemCreate(handle, bytes, &best, 0));
  return result;
}

static int64_t create(void *context, uint64_t bytes) {
  cuda_backend *self = context;
  if (!weir_books_ensure_handle(&self->books)) return cuda_refused("cuMemCreate: no host memory for its books");
  cu_handle handle;
  int result = create_best(self, bytes, 0, &handle);
  /* What was allowed no longer is: IMEX has ended, for example. */
  if (result == CUDA_ERROR_NOT_PERMITTED || result == CUDA_ERROR_NOT_SUPPORTED) result = create_best(self, bytes, 1, &handle);
  if (cuda_judged(self->cuda, result, "cuMemCreate") < 0) return result == CUDA_ERROR_OUT_OF_MEMORY ? WEIR_NO_MEMORY : -1;
  return weir_books_add_handle(&self->books, handle, bytes);
}

static int32_t release(void *context, uint64_t handle) {
  cuda_backend *self = context;
  weir_held *held = weir_books_handle(&self->books, handle);
  if (!held || held->mappings > 0) return cuda_refused("cuMemRelease: the handle is not held, or still mapped");
  int result;
  IN_CONTEXT(self, result, cuMemRelease(held->value));
  if (cuda_judged(self->cuda, result, "cuMemRelease") < 0) return -1;
  cuda_unshare(held);
  weir_books_drop_handle(&self->books, handle);
  return 0;
}

static int64_t reserve(void *context, uint64_t bytes) {
  cuda_backend *self = context;
  if (!weir_books_ensure_reservation(&self->books)) return cuda_refused("cuMemAddressReserve: no host memory for its books");
  cu_pointer address;
  int result;
  IN_CONTEXT(self, result, cuMemAddressReserve(&address, bytes, self->backend.granularity, 0, 0));
  if (cuda_judged(self->cuda, result, "cuMemAddressReserve") < 0) return -1;
  weir_books_reserve(&self->books, address, bytes);
  return (int64_t)address;
}

static int32_t unreserve(void *context, uint64_t address, uint64_t bytes) {
  cuda_backend *self = context;
  if (!weir_books_is_reserved(&self->books, address, bytes)) return cuda_refused("cuMemAddressFree: not what was reserved");
  int result;
  IN_CONTEXT(self, result, cuMemAddressFree(address, bytes));
  if (cuda_judged(self->cuda, result, "cuMemAddressFree") < 0) return -1;
  weir_books_unreserve(&self->books, address);
  return 0;
}

static int32_t map(void *context, uint64_t address, uint64_t handle) {
  cuda_backend *self = context;
  pthread_mutex_lock(&self->mutex);
  int32_t done = -1;
  if (!weir_books_may_map(&self->books, address, handle)) {
    cuda_refused("cuMemMap: the handle is not held, or the address is taken");
  } else {
    const weir_held *held = weir_books_handle(&self->books, handle);
    int result;
    IN_CONTEXT(self, result, cuMemMap(address, held->bytes, 0, held->value, 0));
    done = cuda_judged(self->cuda, result, "cuMemMap");
    if (done == 0) weir_books_map(&self->books, address, handle);
  }
  pthread_mutex_unlock(&self->mutex);
  return done;
}

static int32_t set_access(void *context, uint64_t address, uint64_t bytes) {
  cuda_backend *self = context;
  pthread_mutex_lock(&self->mutex);
  int32_t done = -1;
  if (!weir_books_tile(&self->books, address, bytes)) {
    cuda_refused("cuMemSetAccess: not whole mappings");
  } else {
    int result;
    IN_CONTEXT(self, result, cuMemSetAccess(address, bytes, self->access, self->access_count));
    done = cuda_judged(self->cuda, result, "cuMemSetAccess");
  }
  pthread_mutex_unlock(&self->mutex);
  return done;
}

static int32_t unmap(void *context, uint64_t address, uint64_t bytes) {
  cuda_backend *self = context;
  pthread_mutex_lock(&self->mutex);
  int32_t done = -1;
  if (!weir_books_tile(&self->books, address, bytes)) {
    cuda_refused("cuMemUnmap: not whole mappings");
  } else {
    int result;
    IN_CONTEXT(self, result, cuMemUnmap(address, bytes));
    done = cuda_judged(self->cuda, result, "cuMemUnmap");
    if (done == 0) weir_books_unmap(&self->books, address, bytes);
  }
  pthread_mutex_unlock(&self->mutex);
  return done;
}

/* Makes room for entry `index` of an array, with new entries zero; 0 if there is no memory. */
static int make_room(void **array, uint32_t *room, size_t entry, uint32_t index) {
  if (index < *room) return 1;
  uint32_t grown = *room ? *room : 64;
  while (grown <= index) {
    if (grown > UINT32_MAX / 2) return 0;
    grown *= 2;
  }
  char *larger = realloc(*array, grown * entry);
  if (!larger) return 0;
  memset(larger + *room * entry, 0, (grown - *room) * entry);
  *array = larger;
  *room = grown;
  return 1;
}

static int32_t name_stream(void *context, uint32_t number, uint64_t handle) {
  cuda_backend *self = context;
  if (!make_room((void **)&self->streams, &self->stream_room, sizeof *self->streams, number)) {
    return cuda_refused("no host memory for another stream");
  }
  self->streams[number] = (cu_stream)(uintptr_t)handle;
  return 0;
}

static int32_t event_record(void *context, uint32_t stream, uint32_t slot) {
  cuda_backend *self = context;
  if (stream >= self->stream_room) return cuda_refused("cuEventRecord: a stream without a name");
  if (!make_room((void **)&self->events, &self->event_room, sizeof *self->events, slot)) return cuda_refused("no host memory for an event");
  int result = CUDA_SUCCESS;
  if (!self->events[slot]) {
    cu_event made = NULL;
    IN_CONTEXT(self, result, cuEventCreate(&made, CU_EVENT_NO_TIMING));
    if (cuda_judged(self->cuda, result, "cuEventCreate") < 0) return -1;
    self->events[slot] = made;
  }
  IN_CONTEXT(self, result, cuEventRecord(self->events[slot], self->streams[stream]));
  return cuda_judged(self->cuda, result, "cuEventRecord");
}

static int32_t event_query(void *context, uint32_t slot) {
  cuda_backend *self = context;
  if (slot >= self->event_room || !self->events[slot]) return cuda_refused("cuEventQuery: an event that was never recorded");
  int result;
  IN_CONTEXT(self, result, cuEventQuery(self->events[slot]));
  if (result == CUDA_ERROR_NOT_READY) return 0;
  return cuda_judged(self->cuda, result, "cuEventQuery") < 0 ? -1 : 1;
}

static int32_t stream_wait(void *context, uint32_t stream, uint32_t slot) {
  cuda_backend *self = context;
  if (stream >= self->stream_room || slot >= self->event_room || !self->events[slot]) {
    return cuda_refused("cuStreamWaitEvent: an event that was never recorded");
  }
  int result;
  IN_CONTEXT(self, result, cuStreamWaitEvent(self->streams[stream], self->events[slot], 0));
  return cuda_judged(self->cuda, result, "cuStreamWaitEvent");
}

int32_t cuda_synchronize(void *context) {
  cuda_backend *self = context;
  int result;
  IN_CONTEXT(self, result, cuCtxSynchronize());
  return cuda_judged(self->cuda, result, "cuCtxSynchronize");
}

static int32_t memory(void *context, uint64_t *free_bytes, uint64_t *total_bytes) {
  cuda_backend *self = context;
  size_t available = 0, total = 0;
  int result;
  IN_CONTEXT(self, result, cuMemGetInfo_v2(&available, &total));
  if (cuda_judged(self->cuda, result, "cuMemGetInfo") < 0) return -1;
  *free_bytes = available;
  *total_bytes = total;
  return 0;
}

static const char *last_error(void *context) {
  (void)context;
  return words;
}

int weir_cuda_can_access(weir_backend *backend, int peer) {
  if (backend->driver.create != create) return 0;
  const cuda_backend *self = backend->driver.context;
  int other = 0, can = 0;
  return self->cuda->cuDeviceGet(&other, peer) == CUDA_SUCCESS &&
         self->cuda->cuDeviceCanAccessPeer(&can, other, self->device) == CUDA_SUCCESS && can != 0;
}

int weir_cuda_allow_peer(weir_backend *backend, int peer) {
  if (backend->driver.create != create) return 0;
  cuda_backend *self = backend->driver.context;
  cu_access access = {{CU_LOCATION_DEVICE, peer}, CU_READ_WRITE};
  int32_t done = 0;
  pthread_mutex_lock(&self->mutex);
  for (size_t index = 0; index < self->access_count; index++) {
    if (self->access[index].location.id == peer) goto out;
  }
  if (self->access_count > MOST_PEERS) {
    done = cuda_refused("too many peers");
    goto out;
  }
  int tried = cuda_try_access(self, &access);
  /* Without memory to try it with, the driver's word has to do. */
  if (tried != CUDA_ERROR_OUT_OF_MEMORY) done = cuda_judged(self->cuda, tried, "cuMemSetAccess for a peer");
  for (size_t index = 0; done == 0 && index < self->books.mappings.room; index++) {
    const weir_entry *entry = &self->books.mappings.entries[index];
    if (entry->address == 0) continue;
    int result;
    IN_CONTEXT(self, result, cuMemSetAccess(entry->address, entry->other, &access, 1));
    done = cuda_judged(self->cuda, result, "cuMemSetAccess for a peer");
  }
  for (size_t index = 0; done == 0 && index < self->imports.room; index++) {
    const weir_entry *entry = &self->imports.entries[index];
    if (entry->address == 0) continue;
    int result;
    IN_CONTEXT(self, result, cuMemSetAccess(entry->address, entry->value, &access, 1));
    done = cuda_judged(self->cuda, result, "cuMemSetAccess for a peer");
  }
  /* If one mapping was refused, those before it stay accessible to the peer, which does no harm. */
  if (done == 0) self->access[self->access_count++] = access;
out:
  pthread_mutex_unlock(&self->mutex);
  return done == 0;
}

static void close_backend(void *context) {
  cuda_backend *self = context;
  cuda_synchronize(self);
  int result;
  for (size_t index = 0; index < self->books.mappings.room; index++) {
    const weir_entry *entry = &self->books.mappings.entries[index];
    if (entry->address) IN_CONTEXT(self, result, cuMemUnmap(entry->address, entry->other));
  }
  for (size_t index = 0; index < self->imports.room; index++) {
    const weir_entry *entry = &self->imports.entries[index];
    if (!entry->address) continue;
    IN_CONTEXT(self, result, cuMemUnmap(entry->address, entry->value));
    IN_CONTEXT(self, result, cuMemAddressFree(entry->address, entry->value));
  }
  for (size_t index = 0; index < self->books.handle_count; index++) {
    if (!self->books.handles[index].bytes) continue;
    IN_CONTEXT(self, result, cuMemRelease(self->books.handles[index].value));
    cuda_unshare(&self->books.handles[index]);
  }
  for (size_t index = 0; index < self->books.reservations.room; index++) {
    const weir_entry *entry = &self->books.reservations.entries[index];
    if (entry->address) IN_CONTEXT(self, result, cuMemAddressFree(entry->address, entry->value));
  }
  for (uint32_t slot = 0; slot < self->event_room; slot++) {
    if (self->events[slot]) IN_CONTEXT(self, result, cuEventDestroy_v2(self->events[slot]));
  }
  (void)result;
  self->cuda->cuDevicePrimaryCtxRelease_v2(self->device);
  weir_books_free(&self->books);
  weir_map_free(&self->imports);
  pthread_mutex_destroy(&self->mutex);
  free(self->streams);
  free(self->events);
  free(self);
}

weir_backend *weir_cuda_backend(int device, char *why, size_t room) {
  const char *missing;
  const cuda_driver *cuda = cuda_driver_load(&missing);
  if (!cuda) {
    snprintf(why, room, "there is no CUDA driver here that we can use (%s is missing)", missing);
    return NULL;
  }
  cuda_backend *self = calloc(1, sizeof *self);
  if (!self || pthread_mutex_init(&self->mutex, NULL) != 0) {
    snprintf(why, room, "there is no memory for the books of GPU %d", device);
    free(self);
    return NULL;
  }
  self->cuda = cuda;
  self->properties = (cu_memory_properties){.type = CU_PINNED, .location = {CU_LOCATION_DEVICE, device}};
  self->access[self->access_count++] = (cu_access){self->properties.location, CU_READ_WRITE};
  int retained = 0;
  int result = cuda->cuInit(0);
  if (result == CUDA_SUCCESS) result = cuda->cuDeviceGet(&self->device, device);
  if (result == CUDA_SUCCESS) result = cuda->cuDevicePrimaryCtxRetain(&self->context, self->device);
  retained = result == CUDA_SUCCESS;
  if (retained) result = cuda_granularity(self);
  if (cuda_judged(cuda, result, "start") < 0) {
    snprintf(why, room, "GPU %d cannot be used: %s", device, words);
    if (retained) cuda->cuDevicePrimaryCtxRelease_v2(self->device);
    pthread_mutex_destroy(&self->mutex);
    free(self);
    return NULL;
  }
  self->backend = (weir_backend){
      {self, create, release, reserve, unreserve, map, set_access, unmap, event_record, event_query, stream_wait},
      self->backend.granularity,
      name_stream,
      cuda_synchronize,
      memory,
      last_error,
      close_backend,
      cuda_share,
      cuda_import,
      cuda_drop_import,
      cuda_forked,
  };
  return &self->backend;
}
