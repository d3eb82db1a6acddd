#include "ledger_driver.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>

#define UNIT (2ull << 20)
/* Work of a stream is over after so many further driver calls. */
#define EVENT_CALLS 40
#define OVER UINT64_MAX

static void misuse(const char *what) {
  fprintf(stderr, "misuse of the driver: %s\n", what);
  exit(3);
}

__attribute__((format(printf, 2, 3))) static int failing(ledger *books, const char *format, ...) {
  uint64_t call = books->calls++;
  int fails = call >= books->fail_from && call < books->fail_to;
  if (books->log) {
    va_list arguments;
    va_start(arguments, format);
    fputs("d ", books->log);
    vfprintf(books->log, format, arguments);
    fputs(fails ? " fails\n" : "\n", books->log);
    va_end(arguments);
  }
  return fails;
}

static int64_t create(void *context, uint64_t bytes) {
  ledger *books = context;
  if (bytes == 0 || bytes % UNIT != 0) misuse("create");
  if (failing(books, "create %" PRIu64, bytes) || books->used + bytes > books->capacity) return -1;
  uint64_t handle = books->next_handle++;
  if (handle >= books->size_room) {
    books->size_room = books->size_room ? books->size_room * 2 : 1024;
    books->sizes = realloc(books->sizes, books->size_room * sizeof *books->sizes);
    if (!books->sizes) misuse("out of memory");
  }
  books->sizes[handle] = bytes;
  books->used += bytes;
  books->handles++;
  return (int64_t)handle;
}

static int32_t release(void *context, uint64_t handle) {
  ledger *books = context;
  if (handle >= books->next_handle || books->sizes[handle] == 0) misuse("release");
  if (failing(books, "release %" PRIu64, handle)) return -1;
  books->used -= books->sizes[handle];
  books->sizes[handle] = 0;
  books->handles--;
  return 0;
}

static int64_t reserve(void *context, uint64_t bytes) {
  ledger *books = context;
  if (failing(books, "reserve %" PRIu64, bytes)) return -1;
  uint64_t address = books->next_address;
  books->next_address += bytes + UNIT;
  books->reservations++;
  return (int64_t)address;
}

static int32_t unreserve(void *context, uint64_t address, uint64_t bytes) {
  ledger *books = context;
  if (failing(books, "unreserve %" PRIu64 " %" PRIu64, address, bytes)) return -1;
  books->reservations--;
  return 0;
}

static int32_t map(void *context, uint64_t address, uint64_t handle) {
  ledger *books = context;
  if (handle >= books->next_handle || books->sizes[handle] == 0) misuse("map");
  if (failing(books, "map %" PRIu64 " %" PRIu64, address, handle)) return -1;
  books->mappings += (int64_t)(books->sizes[handle] / UNIT);
  return 0;
}

static int32_t set_access(void *context, uint64_t address, uint64_t bytes) {
  return failing(context, "setAccess %" PRIu64 " %" PRIu64, address, bytes) ? -1 : 0;
}

static int32_t unmap(void *context, uint64_t address, uint64_t bytes) {
  ledger *books = context;
  if (failing(books, "unmap %" PRIu64 " %" PRIu64, address, bytes)) return -1;
  books->mappings -= (int64_t)(bytes / UNIT);
  return 0;
}

void ledger_init(ledger *books, FILE *log, uint64_t capacity) {
  *books = (ledger){.log = log, .capacity = capacity, .next_handle = 1, .next_address = 0x1000000000ull};
}

void ledger_destroy(ledger *books) { free(books->sizes); }

static void expect_slot(ledger *books, uint32_t slot) {
  if (slot >= sizeof books->recorded / sizeof *books->recorded || books->recorded[slot] == 0) misuse("event never recorded");
}

static int32_t event_record(void *context, uint32_t stream, uint32_t slot) {
  ledger *books = context;
  if (slot >= sizeof books->recorded / sizeof *books->recorded) misuse("slot");
  if (failing(books, "eventRecord %" PRIu32 " %" PRIu32, stream, slot)) return -1;
  books->recorded[slot] = books->calls;
  return 0;
}

static int32_t event_query(void *context, uint32_t slot) {
  ledger *books = context;
  expect_slot(books, slot);
  if (failing(books, "eventQuery %" PRIu32, slot)) return -1;
  return books->recorded[slot] == OVER || books->calls - books->recorded[slot] > EVENT_CALLS;
}

void ledger_synchronize(ledger *books) {
  for (size_t slot = 0; slot < sizeof books->recorded / sizeof *books->recorded; slot++) {
    if (books->recorded[slot]) books->recorded[slot] = OVER;
  }
}

static int32_t stream_wait(void *context, uint32_t stream, uint32_t slot) {
  ledger *books = context;
  expect_slot(books, slot);
  return failing(books, "streamWait %" PRIu32 " %" PRIu32, stream, slot) ? -1 : 0;
}

weir_driver ledger_driver(ledger *books) {
  return (weir_driver){books, create, release, reserve, unreserve, map, set_access, unmap, event_record, event_query, stream_wait};
}
