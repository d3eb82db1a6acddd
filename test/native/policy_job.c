/* A job that makes the requests of a file, as `weir run` would have them made: the runtime with the allocator, limit and lending
 * that the run has set. Its recording shows which policy really ran. Its backend only counts: addresses ascend and are never
 * used again, as in the simulated backend that replays the recording, since equal ranges are told apart by address.
 *
 * The file: rows of three u64, little-endian: slot, bytes (0: free the slot), stream. Prints one line of JSON. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/weir_runtime.h"

#define UNIT (2ull << 20)
#define MOST_HANDLES (1u << 20)

typedef struct row {
  uint64_t slot, bytes, stream;
} row;

static struct {
  uint64_t total, used, next_address;
  uint64_t *bytes; /* by handle; 0: not in use */
} books = {.next_address = 1ull << 40};

static int64_t create(void *context, uint64_t bytes) {
  (void)context;
  if (books.used + bytes > books.total) return WEIR_NO_MEMORY;
  for (uint32_t handle = 0; handle < MOST_HANDLES; handle++) {
    if (books.bytes[handle] != 0) continue;
    books.bytes[handle] = bytes;
    books.used += bytes;
    return handle;
  }
  return -1;
}

static int32_t release(void *context, uint64_t handle) {
  (void)context;
  books.used -= books.bytes[handle];
  books.bytes[handle] = 0;
  return 0;
}

static int64_t reserve(void *context, uint64_t bytes) {
  (void)context;
  uint64_t address = books.next_address;
  books.next_address += (bytes + UNIT - 1) / UNIT * UNIT;
  return (int64_t)address;
}

static int32_t done(void *context, uint64_t address, uint64_t bytes) {
  (void)context, (void)address, (void)bytes;
  return 0;
}

static int32_t event_record(void *context, uint32_t stream, uint32_t slot) {
  (void)context, (void)stream, (void)slot;
  return 0;
}

static int32_t event_query(void *context, uint32_t slot) {
  (void)context, (void)slot;
  return 1;
}

static int32_t name_stream(void *context, uint32_t number, uint64_t handle) {
  (void)context, (void)number, (void)handle;
  return 0;
}

static int32_t synchronize(void *context) {
  (void)context;
  return 0;
}

static int32_t memory(void *context, uint64_t *free_bytes, uint64_t *total_bytes) {
  (void)context;
  *free_bytes = books.total - books.used;
  *total_bytes = books.total;
  return 0;
}

static const char *last_error(void *context) {
  (void)context;
  return "";
}

static void close_backend(void *context) { (void)context; }

static weir_backend counting = {
    .driver = {NULL, create, release, reserve, done, done, done, done, event_record, event_query, event_record},
    .granularity = UNIT,
    .name_stream = name_stream,
    .synchronize = synchronize,
    .memory = memory,
    .last_error = last_error,
    .close = close_backend,
};

static const char *text(const char *name, const char *otherwise) {
  const char *value = getenv(name);
  return value && *value ? value : otherwise;
}

static int lasts(void *context, uint64_t stream) {
  (void)context, (void)stream;
  return 1;
}

int main(int count, char **words) {
  if (count != 4) {
    fprintf(stderr, "usage: policy_job FILE SLOTS TOTAL_BYTES\n");
    return 64;
  }
  FILE *file = fopen(words[1], "rb");
  uint64_t *addresses = calloc(strtoull(words[2], NULL, 10), sizeof *addresses);
  books.total = strtoull(words[3], NULL, 10);
  books.bytes = calloc(MOST_HANDLES, sizeof *books.bytes);
  const char *allocator = text(WEIR_CHILD_ALLOCATOR, WEIR_ALLOCATOR_WEIR);
  weir_recorder *recorder = weir_recorder_open(text(WEIR_CHILD_RUN_DIR, "."), allocator, "0.0.0", 1 << 20);
  if (!file || !addresses || !books.bytes || !recorder) return 66;
  weir_device_options options = {
      .gmlake = strcmp(allocator, WEIR_ALLOCATOR_GMLAKE) == 0,
      .lend = strcmp(text(WEIR_CHILD_LEND, "1"), "0") != 0,
      .planned = strcmp(text(WEIR_CHILD_PLAN, "0"), "1") == 0,
      .fine = strtoull(text(WEIR_CHILD_SWAP, "0"), NULL, 10) > 0,
      .limit = strtoull(text(WEIR_CHILD_LIMIT, "0"), NULL, 10),
      .recorder = recorder,
      .stream_lasts = lasts,
  };
  weir_device *device = weir_device_new(&counting, &options);
  if (!device) return 67;
  row next;
  uint64_t requests = 0, failures = 0;
  while (fread(&next, sizeof next, 1, file) == 1) {
    uint64_t *address = &addresses[next.slot];
    if (next.bytes == 0) {
      if (*address && !weir_device_free(device, *address, NULL)) return 68;
      *address = 0;
      continue;
    }
    weir_allocation given;
    weir_shortage shortage;
    requests++;
    if (weir_device_allocate(device, next.bytes, next.stream, &given, &shortage)) {
      *address = given.address;
    } else {
      failures++;
      weir_device_failed(device, &shortage, next.stream);
    }
  }
  weir_gauges gauges = weir_device_gauges(device);
  printf("{\"requests\":%" PRIu64 ",\"failures\":%" PRIu64 ",\"driverCalls\":%" PRIu64 ",\"peakReserved\":%" PRIu64 ",\"stitches\":%" PRIu64
         "}\n",
         requests, failures, gauges.driver_calls, gauges.peak_reserved, gauges.stitches);
  fclose(file);
  weir_recorder_close(recorder);
  return 0;
}
