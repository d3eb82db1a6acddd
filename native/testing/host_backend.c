/* Real memory on any Linux machine, without a GPU. One memfd holds all pages. A handle is a range of it, which can be mapped
 * at several addresses at once, as a GPU's driver maps physical memory. Misuse is refused. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backend/books.h"
#include "backend/file_server.h"
#include "host_queues.h"
#include "weir_testing.h"

/* As on a GPU, so that the engine behaves the same. */
#define UNIT (2ull << 20)

typedef struct host_backend {
  weir_backend backend;
  pthread_mutex_t mutex; /* tests enqueue and run work while the engine calls */
  uint64_t total;
  int file;
  uint64_t file_bytes;
  weir_books books;
  weir_map accessible; /* every unit with access set */
  weir_map names;      /* stream number + 1 -> handle */
  weir_map imports;    /* address -> bytes: memory of other processes */
  host_queues queues;
} host_backend;

static _Thread_local const char *words = "no call has failed";

static int32_t refused(const char *why) {
  words = why;
  return -1;
}

/* Runs the body of a call inside the lock and returns its result. */
#define LOCKED(self, type, body)        \
  pthread_mutex_lock(&(self)->mutex);   \
  type result = body;                   \
  pthread_mutex_unlock(&(self)->mutex); \
  return result

static int64_t create_locked(host_backend *self, uint64_t bytes) {
  if (bytes == 0 || bytes % UNIT != 0) return refused("create: not a multiple of the granularity");
  if (self->books.used + bytes > self->total) {
    words = "create: out of memory";
    return WEIR_NO_MEMORY;
  }
  /* Offsets are never used twice, so a stale mapping never shows the data of another handle. The file is sparse. */
  uint64_t offset = self->file_bytes;
  if (!weir_books_ensure_handle(&self->books) || ftruncate(self->file, (off_t)(offset + bytes)) != 0) return refused("create: no pages");
  self->file_bytes = offset + bytes;
  return weir_books_add_handle(&self->books, offset, bytes);
}

static int64_t create(void *context, uint64_t bytes) {
  host_backend *self = context;
  LOCKED(self, int64_t, create_locked(self, bytes));
}

static int32_t release_locked(host_backend *self, uint64_t handle) {
  weir_held *held = weir_books_handle(&self->books, handle);
  if (!held || held->mappings > 0) return refused("release: not held, or still mapped");
  if (fallocate(self->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)held->value, (off_t)held->bytes) != 0) {
    return refused("release: the kernel keeps the pages");
  }
  weir_books_drop_handle(&self->books, handle);
  return 0;
}

static int32_t release(void *context, uint64_t handle) {
  host_backend *self = context;
  LOCKED(self, int32_t, release_locked(self, handle));
}

static int empty(uint64_t address, uint64_t bytes, int flags) {
  return mmap((void *)address, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0) != MAP_FAILED;
}

static int64_t reserve_locked(host_backend *self, uint64_t bytes) {
  if (bytes == 0 || bytes % UNIT != 0 || !weir_books_ensure_reservation(&self->books)) return refused("reserve: no such size");
  void *found = mmap(NULL, bytes + UNIT, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (found == MAP_FAILED) return refused("reserve: no addresses");
  uint64_t first = (uint64_t)found;
  uint64_t address = (first + UNIT - 1) / UNIT * UNIT;
  if (address > first) munmap(found, address - first);
  if (first + UNIT > address) munmap((void *)(address + bytes), first + UNIT - address);
  weir_books_reserve(&self->books, address, bytes);
  return (int64_t)address;
}

static int64_t reserve(void *context, uint64_t bytes) {
  host_backend *self = context;
  LOCKED(self, int64_t, reserve_locked(self, bytes));
}

static int32_t unreserve_locked(host_backend *self, uint64_t address, uint64_t bytes) {
  if (!weir_books_is_reserved(&self->books, address, bytes)) return refused("unreserve: not what was reserved");
  if (munmap((void *)address, bytes) != 0) return refused("unreserve: the kernel keeps the addresses");
  weir_books_unreserve(&self->books, address);
  return 0;
}

static int32_t unreserve(void *context, uint64_t address, uint64_t bytes) {
  host_backend *self = context;
  LOCKED(self, int32_t, unreserve_locked(self, address, bytes));
}

static int32_t map_locked(host_backend *self, uint64_t address, uint64_t handle) {
  if (!weir_books_may_map(&self->books, address, handle)) return refused("map: not held, or the address is taken");
  const weir_held *held = weir_books_handle(&self->books, handle);
  void *mapped = mmap((void *)address, held->bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, self->file, (off_t)held->value);
  if (mapped == MAP_FAILED) return refused("map: the kernel refuses");
  weir_books_map(&self->books, address, handle);
  return 0;
}

static int32_t map(void *context, uint64_t address, uint64_t handle) {
  host_backend *self = context;
  LOCKED(self, int32_t, map_locked(self, address, handle));
}

static int32_t set_access_locked(host_backend *self, uint64_t address, uint64_t bytes) {
  if (!weir_books_tile(&self->books, address, bytes)) return refused("set_access: not whole mappings");
  if (!weir_map_ensure(&self->accessible, bytes / UNIT)) return refused("set_access: no memory for its books");
  if (mprotect((void *)address, bytes, PROT_READ | PROT_WRITE) != 0) return refused("set_access: the kernel refuses");
  for (uint64_t at = address; at < address + bytes; at += UNIT) {
    if (!weir_map_find(&self->accessible, at)) weir_map_put(&self->accessible, at, 1, 0);
  }
  return 0;
}

static int32_t set_access(void *context, uint64_t address, uint64_t bytes) {
  host_backend *self = context;
  LOCKED(self, int32_t, set_access_locked(self, address, bytes));
}

static int32_t unmap_locked(host_backend *self, uint64_t address, uint64_t bytes) {
  if (!weir_books_tile(&self->books, address, bytes)) return refused("unmap: not whole mappings");
  /* An empty mapping replaces the memory, so that the addresses stay reserved. */
  if (!empty(address, bytes, MAP_FIXED)) return refused("unmap: the kernel refuses");
  weir_books_unmap(&self->books, address, bytes);
  for (uint64_t at = address; at < address + bytes; at += UNIT) weir_map_remove(&self->accessible, at);
  return 0;
}

static int32_t unmap(void *context, uint64_t address, uint64_t bytes) {
  host_backend *self = context;
  LOCKED(self, int32_t, unmap_locked(self, address, bytes));
}

static int32_t name_stream(void *context, uint32_t number, uint64_t handle) {
  host_backend *self = context;
  pthread_mutex_lock(&self->mutex);
  int named = weir_map_ensure(&self->names, 1);
  weir_entry *entry = named ? weir_map_find(&self->names, number + 1ull) : NULL;
  if (entry) entry->value = handle;
  else if (named) weir_map_put(&self->names, number + 1ull, handle, 0);
  pthread_mutex_unlock(&self->mutex);
  return named ? 0 : refused("no memory for another stream");
}

static int32_t event_record(void *context, uint32_t stream, uint32_t slot) {
  host_backend *self = context;
  pthread_mutex_lock(&self->mutex);
  const weir_entry *name = weir_map_find(&self->names, stream + 1ull);
  int32_t result = name ? weir_queue_record(&self->queues, name->value, slot) : refused("record: a stream without a name");
  pthread_mutex_unlock(&self->mutex);
  return result;
}

static int32_t event_query(void *context, uint32_t slot) {
  host_backend *self = context;
  LOCKED(self, int32_t, weir_queue_query(&self->queues, slot));
}

static int32_t stream_wait(void *context, uint32_t stream, uint32_t slot) {
  host_backend *self = context;
  pthread_mutex_lock(&self->mutex);
  const weir_entry *name = weir_map_find(&self->names, stream + 1ull);
  int32_t result = name ? weir_queue_wait(&self->queues, name->value, slot) : refused("wait: a stream without a name");
  pthread_mutex_unlock(&self->mutex);
  return result;
}

static int32_t synchronize(void *context) {
  host_backend *self = context;
  pthread_mutex_lock(&self->mutex);
  weir_queues_finish(&self->queues);
  pthread_mutex_unlock(&self->mutex);
  return 0;
}

static int32_t memory(void *context, uint64_t *free_bytes, uint64_t *total_bytes) {
  host_backend *self = context;
  pthread_mutex_lock(&self->mutex);
  *free_bytes = self->total - self->books.used;
  *total_bytes = self->total;
  pthread_mutex_unlock(&self->mutex);
  return 0;
}

static int32_t share(void *context, uint64_t address, uint64_t bytes, weir_piece *pieces, uint32_t room, uint64_t *start) {
  host_backend *self = context;
  int32_t count = 0;
  pthread_mutex_lock(&self->mutex);
  const weir_entry *entry = weir_books_around(&self->books, address, UNIT);
  if (entry) *start = entry->address;
  for (uint64_t at = entry ? entry->address : address; at < address + bytes; at += entry->other) {
    entry = weir_map_find(&self->books.mappings, at);
    if (!entry) {
      count = refused("share: there is no memory at this address");
      break;
    }
    const weir_held *held = &self->books.handles[entry->value];
    /* Offsets are never used twice, so they identify handles forever. */
    if ((uint32_t)count < room) pieces[count] = (weir_piece){held->value / UNIT + 1, held->value, held->bytes, self->file, 0};
    count++;
  }
  if (count > 0) files_offer(self->file);
  pthread_mutex_unlock(&self->mutex);
  return count;
}

static int64_t import_locked(host_backend *self, const weir_piece *pieces, uint32_t count) {
  uint64_t bytes = 0;
  for (uint32_t index = 0; index < count; index++) bytes += pieces[index].bytes;
  if (!weir_map_ensure(&self->imports, 1)) return refused("import: no memory for its books");
  void *place = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (place == MAP_FAILED) return refused("import: no addresses");
  char *at = place;
  for (uint32_t index = 0; index < count; index++) {
    const weir_piece *piece = &pieces[index];
    void *mapped = mmap(at, piece->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, piece->file, (off_t)piece->offset);
    if (mapped == MAP_FAILED) {
      munmap(place, bytes);
      return refused("import: the kernel refuses");
    }
    at += piece->bytes;
  }
  weir_map_put(&self->imports, (uint64_t)place, bytes, 0);
  return (int64_t)(uint64_t)place;
}

static int64_t import(void *context, const weir_piece *pieces, uint32_t count) {
  host_backend *self = context;
  LOCKED(self, int64_t, import_locked(self, pieces, count));
}

static int32_t drop_import_locked(host_backend *self, uint64_t address) {
  const weir_entry *entry = weir_map_find(&self->imports, address);
  if (!entry) return refused("drop_import: nothing was imported there");
  weir_queues_finish(&self->queues);
  munmap((void *)address, entry->value);
  weir_map_remove(&self->imports, address);
  return 0;
}

static int32_t drop_import(void *context, uint64_t address) {
  host_backend *self = context;
  LOCKED(self, int32_t, drop_import_locked(self, address));
}

static void forked(void *context) {
  host_backend *self = context;
  files_withdraw(self->file);
  self->file = -1;
}

static const char *last_error(void *context) {
  (void)context;
  return words;
}

static void close_backend(void *context) {
  host_backend *self = context;
  for (size_t index = 0; index < self->books.reservations.room; index++) {
    const weir_entry *entry = &self->books.reservations.entries[index];
    if (entry->address) munmap((void *)entry->address, entry->value);
  }
  for (size_t index = 0; index < self->imports.room; index++) {
    const weir_entry *entry = &self->imports.entries[index];
    if (entry->address) munmap((void *)entry->address, entry->value);
  }
  files_withdraw(self->file);
  weir_books_free(&self->books);
  weir_map_free(&self->imports);
  weir_map_free(&self->accessible);
  weir_map_free(&self->names);
  weir_queues_free(&self->queues);
  pthread_mutex_destroy(&self->mutex);
  free(self);
}

/* Words differ by position, so that shifted data is found to be wrong. */
static uint64_t word_at(uint64_t pattern, uint64_t index) { return pattern ^ (index * 0x9e3779b97f4a7c15u); }

static uint64_t touch(void *context, const host_piece *piece) {
  host_backend *self = context;
  for (uint64_t at = piece->address / UNIT * UNIT; at < piece->address + piece->bytes; at += UNIT) {
    /* A GPU would stop the program here, or overwrite other memory. */
    if (!weir_map_find(&self->accessible, at)) return piece->bytes;
  }
  char *bytes = (char *)piece->address;
  uint64_t wrong = 0;
  for (uint64_t done = 0; done < piece->bytes; done += 8) {
    uint64_t word = word_at(piece->pattern, done / 8);
    uint64_t length = piece->bytes - done < 8 ? piece->bytes - done : 8;
    if (piece->work == HOST_FILL) memcpy(bytes + done, &word, length);
    else if (memcmp(bytes + done, &word, length) != 0) wrong += length;
  }
  return wrong;
}

static int enqueue(weir_backend *backend, uint64_t stream, host_piece piece) {
  host_backend *self = backend->driver.context;
  pthread_mutex_lock(&self->mutex);
  host_queue *queue = weir_queue_of(&self->queues, stream);
  int added = queue && weir_queue_add(queue, piece);
  pthread_mutex_unlock(&self->mutex);
  return added;
}

int weir_host_enqueue_fill(weir_backend *backend, uint64_t stream, uint64_t address, uint64_t bytes, uint64_t pattern) {
  return enqueue(backend, stream, (host_piece){HOST_FILL, 0, address, bytes, pattern});
}

int weir_host_enqueue_check(weir_backend *backend, uint64_t stream, uint64_t address, uint64_t bytes, uint64_t pattern) {
  return enqueue(backend, stream, (host_piece){HOST_CHECK, 0, address, bytes, pattern});
}

void weir_host_run(weir_backend *backend, uint32_t pieces, uint64_t seed) {
  host_backend *self = backend->driver.context;
  pthread_mutex_lock(&self->mutex);
  weir_queues_run(&self->queues, pieces, seed);
  pthread_mutex_unlock(&self->mutex);
}

void weir_host_run_stream(weir_backend *backend, uint64_t stream, uint32_t pieces) {
  host_backend *self = backend->driver.context;
  pthread_mutex_lock(&self->mutex);
  weir_queue_run(&self->queues, stream, pieces);
  pthread_mutex_unlock(&self->mutex);
}

uint64_t weir_host_corrupted(weir_backend *backend) {
  host_backend *self = backend->driver.context;
  LOCKED(self, uint64_t, self->queues.corrupted);
}

weir_backend *weir_host_backend(uint64_t total_bytes, char *why, size_t room) {
  host_backend *self = calloc(1, sizeof *self);
  int file = memfd_create("weir", MFD_CLOEXEC);
  if (!self || file < 0 || pthread_mutex_init(&self->mutex, NULL) != 0) {
    snprintf(why, room, "the kernel gives no memfd, or there is no memory");
    if (file >= 0) close(file);
    free(self);
    return NULL;
  }
  self->total = total_bytes;
  self->file = file;
  self->queues.touch = touch;
  self->queues.context = self;
  self->backend = (weir_backend){
      {self, create, release, reserve, unreserve, map, set_access, unmap, event_record, event_query, stream_wait},
      UNIT,
      name_stream,
      synchronize,
      memory,
      last_error,
      close_backend,
      share,
      import,
      drop_import,
      forked,
  };
  return &self->backend;
}
