/* The ring of this process: a mapped file that we write and the supervisor reads. Layout: abi/ring.ts.
 * All pages of the file are allocated when it is opened. So a full disk is an error then, not a signal at a later store. */
#define _GNU_SOURCE
#include "recorder.h"
#include "stack_tables.h"

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096u
#define LEAST_ROWS 64u
/* The file's size is a u32. */
#define MOST_ROWS (1u << 25)
_Static_assert((uint64_t)MOST_ROWS * sizeof(weir_event) < UINT32_MAX - (64u << 20), "no room for the header and the tables");

struct weir_recorder {
  pthread_mutex_t mutex;
  atomic_int forgotten; /* in the child of a fork: nothing is written any more */
  weir_ring_header *ring;
  size_t bytes;
  weir_event *rows;
  uint64_t mask;
  uint64_t tail;
  uint64_t known_head; /* the reader's head when last read; read again only when the ring seems full, to spare its cache line */
  int dropping;
  int finished; /* the reader has been told that there are no more rows */
  double origin_us; /* when the monotonic clock was 0, in microseconds since 1970 */
  string_table strings;
  stack_tables stacks;
  char directory[PATH_MAX];
};

static _Thread_local int32_t thread_number;
static _Thread_local int32_t held_stack; /* plus 1; 0: none */

/* For words that one process writes while the other reads them. */
static void publish(uint64_t *place, uint64_t value) { __atomic_store_n(place, value, __ATOMIC_RELEASE); }
static uint64_t observe(const uint64_t *place) { return __atomic_load_n(place, __ATOMIC_ACQUIRE); }

static double monotonic_us(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

static int32_t from_environment(const char *name) {
  const char *text = getenv(name);
  char *end;
  if (!text || !*text) return -1;
  long value = strtol(text, &end, 10);
  return *end == 0 && value >= 0 && value <= INT32_MAX ? (int32_t)value : -1;
}

static uint32_t power_of_two(uint32_t rows) {
  uint32_t capacity = LEAST_ROWS;
  while (capacity < rows && capacity < MOST_ROWS) capacity *= 2;
  return capacity;
}

static void describe(weir_recorder *recorder, const char *allocator, const char *torch_version) {
  weir_ring_header *ring = recorder->ring;
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  memcpy(ring->magic, WEIR_RING_MAGIC, sizeof ring->magic);
  ring->version = WEIR_RING_VERSION;
  ring->pid = (uint32_t)getpid();
  ring->rank = from_environment("RANK");
  ring->local_rank = from_environment("LOCAL_RANK");
  ring->world_size = from_environment("WORLD_SIZE");
  ring->state = WEIR_RING_ACTIVE;
  ring->started_us = (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
  /* The time of day may be set back while we record, but rows must stay in order. */
  recorder->origin_us = ring->started_us - monotonic_us();
  snprintf(ring->allocator, sizeof ring->allocator, "%s", allocator ? allocator : "");
  snprintf(ring->torch_version, sizeof ring->torch_version, "%s", torch_version ? torch_version : "");
}

/* Makes the file under a hidden name and renames it when it is complete. */
static int make_file(weir_recorder *recorder, const char *allocator, const char *torch_version, uint32_t capacity, uint32_t stacks) {
  char hidden[PATH_MAX + 32], path[PATH_MAX + 32];
  snprintf(hidden, sizeof hidden, "%s/.%ld.new", recorder->directory, (long)getpid());
  snprintf(path, sizeof path, "%s/%ld.ring", recorder->directory, (long)getpid());
  uint32_t strings_at = (uint32_t)((sizeof(weir_ring_header) + PAGE - 1) / PAGE * PAGE);
  uint32_t rows_at = strings_at + WEIR_RING_STRING_BYTES;
  uint64_t stacks_at = rows_at + (uint64_t)capacity * sizeof(weir_event);
  uint64_t bytes = stacks_at + stacks_bytes(stacks);
  int file = open(hidden, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file < 0) return 0;
  void *mapped = posix_fallocate(file, 0, (off_t)bytes) == 0 ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
  close(file);
  if (mapped == MAP_FAILED) {
    unlink(hidden);
    return 0;
  }
  recorder->ring = mapped;
  recorder->bytes = bytes;
  recorder->ring->bytes = (uint32_t)bytes;
  recorder->ring->strings_at = strings_at;
  recorder->ring->rows_at = rows_at;
  recorder->ring->capacity = capacity;
  recorder->strings = (string_table){.area = (char *)mapped + strings_at, .used = &recorder->ring->string_bytes};
  if (stacks > 0) stacks_place(&recorder->stacks, recorder->ring, (uint32_t)stacks_at, stacks);
  recorder->rows = (void *)((char *)mapped + rows_at);
  recorder->mask = capacity - 1;
  describe(recorder, allocator, torch_version);
  /* An existing ring of that name is of an earlier process with our pid, or of ours before exec. Its reader keeps the old file. */
  if (rename(hidden, path) == 0) return 1;
  unlink(hidden);
  munmap(mapped, bytes);
  return 0;
}

weir_recorder *weir_recorder_open(const char *directory, const char *allocator, const char *torch_version, uint32_t rows) {
  return weir_recorder_open_with_stacks(directory, allocator, torch_version, rows, 0);
}

weir_recorder *weir_recorder_open_with_stacks(const char *directory, const char *allocator, const char *torch_version, uint32_t rows,
                                              uint32_t stacks) {
  weir_recorder *recorder = directory ? calloc(1, sizeof *recorder) : NULL;
  if (!recorder) return NULL;
  int length = snprintf(recorder->directory, sizeof recorder->directory, "%s", directory);
  if (length < 0 || (size_t)length >= sizeof recorder->directory || pthread_mutex_init(&recorder->mutex, NULL) != 0) {
    free(recorder);
    return NULL;
  }
  if (!make_file(recorder, allocator, torch_version, power_of_two(rows), stacks)) {
    pthread_mutex_destroy(&recorder->mutex);
    free(recorder);
    return NULL;
  }
  return recorder;
}

void weir_recorder_forget(weir_recorder *recorder) {
  if (!recorder) return;
  /* The thread that held the lock may not exist in this process, so the lock is not taken. Devices keep pointers to gauges, so
   * private memory replaces the ring at its address. */
  atomic_store(&recorder->forgotten, 1);
  weir_gauges gauges[WEIR_RING_DEVICES];
  memcpy(gauges, recorder->ring->gauges, sizeof gauges);
  void *own = mmap(recorder->ring, recorder->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  if (own != MAP_FAILED) memcpy(recorder->ring->gauges, gauges, sizeof gauges);
}

void weir_recorder_finish(weir_recorder *recorder) {
  if (!recorder || atomic_load(&recorder->forgotten)) return;
  /* Inside the lock, so that a row that is being written is complete before the reader is told of the end. */
  pthread_mutex_lock(&recorder->mutex);
  recorder->finished = 1;
  __atomic_store_n(&recorder->ring->state, WEIR_RING_CLOSED, __ATOMIC_RELEASE);
  pthread_mutex_unlock(&recorder->mutex);
}

void weir_recorder_close(weir_recorder *recorder) {
  if (!recorder) return;
  int forgotten = atomic_exchange(&recorder->forgotten, 1);
  if (!forgotten) {
    pthread_mutex_lock(&recorder->mutex);
    __atomic_store_n(&recorder->ring->state, WEIR_RING_CLOSED, __ATOMIC_RELEASE);
    munmap(recorder->ring, recorder->bytes);
    pthread_mutex_unlock(&recorder->mutex);
    pthread_mutex_destroy(&recorder->mutex);
  }
  strings_free(&recorder->strings);
  stacks_free(&recorder->stacks);
  free(recorder);
}

void recorder_put_rows(weir_recorder *recorder, weir_event *rows, uint32_t count) {
  if (!recorder || atomic_load_explicit(&recorder->forgotten, memory_order_relaxed)) return;
  if (thread_number == 0) thread_number = (int32_t)syscall(SYS_gettid);
  weir_ring_header *ring = recorder->ring;
  pthread_mutex_lock(&recorder->mutex);
  if (recorder->finished) {
    pthread_mutex_unlock(&recorder->mutex);
    return;
  }
  uint64_t tail = recorder->tail;
  if (tail + count - recorder->known_head > recorder->mask + 1) recorder->known_head = observe(&ring->head);
  if (tail + count - recorder->known_head > recorder->mask + 1) {
    publish(&ring->dropped, ring->dropped + count);
    if (!recorder->dropping) publish(&ring->gaps, ring->gaps + 1);
    recorder->dropping = 1;
  } else {
    recorder->dropping = 0;
    double now = rows[0].time_us == 0 ? recorder->origin_us + monotonic_us() : 0;
    for (uint32_t index = 0; index < count; index++) {
      if (rows[index].time_us == 0) rows[index].time_us = now;
      rows[index].thread = thread_number;
      rows[index].fields |= 2;
      if (rows[index].kind == WEIR_ALLOC || rows[index].kind == WEIR_OOM) rows[index].stack = held_stack - 1;
      recorder->rows[(tail + index) & recorder->mask] = rows[index];
    }
    recorder->tail = tail + count;
    publish(&ring->tail, tail + count);
  }
  pthread_mutex_unlock(&recorder->mutex);
}

void weir_recorder_put(weir_recorder *recorder, weir_event event) { recorder_put_rows(recorder, &event, 1); }

void weir_recorder_put_all(weir_recorder *recorder, weir_event *rows, uint32_t count) { recorder_put_rows(recorder, rows, count); }

double weir_recorder_now(const weir_recorder *recorder) { return recorder->origin_us + monotonic_us(); }

int32_t weir_recorder_stream(weir_recorder *recorder, int device, uint64_t handle) {
  if (device < 0 || device >= WEIR_RING_DEVICES || atomic_load(&recorder->forgotten)) return -1;
  weir_ring_header *ring = recorder->ring;
  pthread_mutex_lock(&recorder->mutex);
  uint32_t count = ring->stream_count[device], index = 0;
  while (index < count && ring->streams[device][index] != handle) index++;
  if (index == count && count < WEIR_RING_STREAMS) {
    ring->streams[device][count] = handle;
    __atomic_store_n(&ring->stream_count[device], count + 1, __ATOMIC_RELEASE);
  }
  pthread_mutex_unlock(&recorder->mutex);
  return index < WEIR_RING_STREAMS ? (int32_t)index : -1;
}

int32_t weir_recorder_pool(weir_recorder *recorder, int device, uint64_t first, uint64_t second) {
  if (device < 0 || device >= WEIR_RING_DEVICES || atomic_load(&recorder->forgotten)) return -1;
  weir_ring_header *ring = recorder->ring;
  pthread_mutex_lock(&recorder->mutex);
  uint32_t count = ring->pool_count[device], index = 0;
  while (index < count && (ring->pools[device][index][0] != first || ring->pools[device][index][1] != second)) index++;
  if (index == count && count < WEIR_RING_POOLS) {
    ring->pools[device][count][0] = first;
    ring->pools[device][count][1] = second;
    __atomic_store_n(&ring->pool_count[device], count + 1, __ATOMIC_RELEASE);
  }
  pthread_mutex_unlock(&recorder->mutex);
  return index < WEIR_RING_POOLS ? (int32_t)index : -1;
}

#define OWN_NAMES "weir "
enum { OWN_ROOM = 16 << 10 };

uint32_t weir_recorder_string(weir_recorder *recorder, const char *text) {
  if (!text || atomic_load(&recorder->forgotten)) return 0;
  /* A program with ever new names must not use up the room for our own marks. */
  uint32_t room = strncmp(text, OWN_NAMES, sizeof OWN_NAMES - 1) == 0 ? WEIR_RING_STRING_BYTES : WEIR_RING_STRING_BYTES - OWN_ROOM;
  pthread_mutex_lock(&recorder->mutex);
  uint32_t number = strings_intern(&recorder->strings, text, strlen(text), room);
  pthread_mutex_unlock(&recorder->mutex);
  return number;
}

int32_t weir_recorder_hold_stack(int32_t stack) {
  int32_t before = held_stack - 1;
  held_stack = stack + 1;
  return before;
}

int32_t weir_recorder_stack(weir_recorder *recorder, int32_t parent, weir_text name, weir_text filename, int32_t line) {
  if (atomic_load(&recorder->forgotten) || !recorder->stacks.stacks) return -1;
  pthread_mutex_lock(&recorder->mutex);
  int32_t stack = stacks_add(&recorder->stacks, parent, name, filename, line);
  pthread_mutex_unlock(&recorder->mutex);
  return stack;
}

void weir_recorder_lose_stack(weir_recorder *recorder) {
  if (atomic_load(&recorder->forgotten)) return;
  __atomic_fetch_add(&recorder->ring->stacks_lost, 1, __ATOMIC_RELAXED);
}

weir_gauges *weir_recorder_gauges(weir_recorder *recorder, int device) { return &recorder->ring->gauges[device]; }

uint32_t weir_recorder_plan_generation(const weir_recorder *recorder) {
  return __atomic_load_n(&recorder->ring->plan_generation, __ATOMIC_ACQUIRE);
}

const char *weir_recorder_directory(const weir_recorder *recorder) { return recorder->directory; }
