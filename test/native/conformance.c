/* Checks the promises of weir_runtime.h one by one, without threads or chance, so that a failure names the broken promise. */
#include "conformance.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "testing/weir_testing.h"

#define MIB (1ull << 20)

static int broken;

#define EXPECT(condition)                                             \
  do {                                                                \
    if (!(condition)) {                                               \
      fprintf(stderr, "line %d: not so: %s\n", __LINE__, #condition); \
      broken++;                                                       \
    }                                                                 \
  } while (0)

static uint64_t take(weir_device *device, uint64_t bytes, uint64_t stream) {
  weir_allocation given = {0};
  weir_shortage shortage;
  if (weir_device_allocate(device, bytes, stream, &given, &shortage)) return given.address;
  weir_device_failed(device, &shortage, stream);
  return 0;
}

static void blocks(weir_device *device) {
  weir_allocation given, found;
  EXPECT(weir_device_allocate(device, 0, 0, &given, NULL) && given.size == 512 && given.requested == 0);
  EXPECT(weir_device_gauges(device).live == 512);
  EXPECT(weir_device_free(device, given.address, NULL) && !weir_device_free(device, given.address, NULL));
  EXPECT(!weir_device_find(device, given.address, &found) && !weir_device_find_containing(device, given.address, &found));
  EXPECT(!weir_device_free(device, 0, NULL) && !weir_device_free(device, 12345, NULL) && !weir_device_record_stream(device, 12345, 7));
  EXPECT(weir_device_allocate(device, 5 * MIB + 1, 0x40, &given, NULL) && given.size == 5 * MIB + 512 && given.stream == 0x40);
  EXPECT(weir_device_find_containing(device, given.address + 5 * MIB, &found) && found.address == given.address && found.stream == 0x40);
  EXPECT(!weir_device_find(device, given.address + 512, &found));
  EXPECT(weir_device_owns(device, given.address) && !weir_device_owns(device, 0) && !weir_device_owns(device, UINT64_MAX));
  EXPECT(weir_device_free(device, given.address, &found) && found.requested == 5 * MIB + 1 && found.stream == 0x40);
  EXPECT(weir_device_largest_free(device) >= 5 * MIB);
  weir_device_empty_cache(device);
  weir_gauges gauges = weir_device_gauges(device);
  EXPECT(gauges.reserved == 0 && gauges.live == 0 && gauges.allocated == 0 && gauges.allocations == 2 && gauges.frees == 2);
  EXPECT(gauges.peak_live == 5 * MIB + 512 && gauges.peak_reserved >= 6 * MIB && gauges.driver_calls > 0 && gauges.driver_ns > 0);
}

static void limits(weir_device *device) {
  weir_shortage shortage;
  weir_allocation given;
  EXPECT(!weir_device_allocate(device, 1ull << 60, 0, &given, &shortage) && shortage.requested == 1ull << 60);
  EXPECT(!weir_device_allocate(device, 600 * MIB, 0, &given, &shortage) && shortage.driver_error[0] == 0);
  EXPECT(shortage.device_total == 512 * MIB && shortage.limit == 0);
  weir_device_set_limit(device, 100 * MIB);
  uint64_t first = take(device, 60 * MIB, 0);
  EXPECT(first != 0 && take(device, 50 * MIB, 0) == 0);
  weir_device_set_outside(device, 30 * MIB);
  EXPECT(!weir_device_allocate(device, 20 * MIB, 0, &given, &shortage) && shortage.outside == 30 * MIB && shortage.limit == 100 * MIB);
  EXPECT(shortage.live == 60 * MIB && shortage.reserved >= 90 * MIB && weir_device_gauges(device).reserved <= 100 * MIB);
  weir_device_set_outside(device, 0);
  uint64_t second = take(device, 20 * MIB, 0);
  /* Only weir_device_failed and weir_device_count_failure count failures. */
  EXPECT(second != 0 && weir_device_gauges(device).ooms == 1);
  weir_device_count_failure(device);
  EXPECT(weir_device_gauges(device).ooms == 2);
  EXPECT(weir_device_free(device, first, NULL) && weir_device_free(device, second, NULL));
  /* Memory that one stream has cached serves another, after a wait of the host if needed. */
  uint64_t elsewhere = take(device, 90 * MIB, 0x80);
  EXPECT(elsewhere != 0 && weir_device_free(device, elsewhere, NULL));
  weir_device_set_limit(device, 0);
  weir_device_empty_cache(device);
}

static struct {
  weir_device *device;
  uint64_t spare[4];
  int given, asked;
} relief;

/* Frees one more spare block each time, until there are none. */
static int give_spare(void *context, uint64_t bytes, int attempt) {
  EXPECT(context == &relief && bytes == 50 * MIB && attempt == relief.asked);
  relief.asked++;
  return relief.given < 4 && weir_device_free(relief.device, relief.spare[relief.given++], NULL);
}

/* A request that finds no memory asks the program until that frees nothing more. If it is then served, it is no failure. */
static void relieved(void) {
  char why[256];
  weir_device_options options = {.limit = 100 * MIB, .reclaim = give_spare, .reclaim_context = &relief};
  weir_device *device = relief.device = weir_device_new(weir_host_backend(512 * MIB, why, sizeof why), &options);
  EXPECT(device != NULL);
  uint64_t kept = take(device, 30 * MIB, 0);
  for (int index = 0; index < 4; index++) relief.spare[index] = take(device, 16 * MIB, 0);
  uint64_t address = take(device, 50 * MIB, 0);
  EXPECT(kept != 0 && address != 0 && relief.given == relief.asked && relief.given >= 3 && weir_device_gauges(device).ooms == 0);
  while (relief.given < 4) EXPECT(weir_device_free(device, relief.spare[relief.given++], NULL));
  relief.asked = 0;
  EXPECT(take(device, 50 * MIB, 0) == 0 && relief.asked == 1 && weir_device_gauges(device).ooms == 1);
  EXPECT(weir_device_free(device, kept, NULL) && weir_device_free(device, address, NULL));
  weir_device_delete(device);
}

static void parked(weir_device *device, weir_backend *host) {
  uint64_t address = take(device, 8 * MIB, 0);
  EXPECT(weir_host_enqueue_fill(host, 0xc0, address, 4096, 1) && weir_device_record_stream(device, address, 0xc0));
  EXPECT(weir_device_free(device, address, NULL) && weir_device_gauges(device).allocated == 0);
  uint64_t other = take(device, 8 * MIB, 0);
  EXPECT(other != 0 && other != address);
  weir_host_run(host, 64, 1);
  /* The stream is done with the block. The next request finds that out by itself. */
  uint64_t again = take(device, 8 * MIB, 0);
  EXPECT(again == address && weir_device_free(device, again, NULL) && weir_device_free(device, other, NULL));
}

static void captures(weir_device *device, weir_backend *host, spy *watched) {
  uint64_t address = take(device, 8 * MIB, 0), kept = take(device, 8 * MIB, 0);
  EXPECT(weir_host_enqueue_fill(host, 0xc0, address, 4096, 2) && weir_device_record_stream(device, address, 0xc0));
  weir_device_begin_capture(device);
  weir_device_begin_capture(device);
  atomic_store(&watched->captures, 1);
  uint64_t reserved = weir_device_gauges(device).reserved;
  EXPECT(weir_device_free(device, address, NULL) && weir_device_free(device, kept, NULL));
  weir_device_empty_cache(device);
  EXPECT(weir_device_gauges(device).reserved == reserved);
  uint64_t inside = take(device, 4 * MIB, 0);
  EXPECT(inside != 0 && weir_device_free(device, inside, NULL));
  weir_device_end_capture(device);
  weir_device_empty_cache(device);
  EXPECT(weir_device_gauges(device).reserved == reserved && atomic_load(&watched->violations) == 0);
  atomic_store(&watched->captures, 0);
  weir_device_end_capture(device);
  weir_device_empty_cache(device);
  EXPECT(weir_device_gauges(device).reserved == 0);
}

static void waits(weir_device *device, spy *watched) {
  uint64_t address[6];
  for (int index = 0; index < 6; index++) address[index] = take(device, 40 * MIB, 0x40 * (uint64_t)index);
  for (int index = 0; index < 6; index++) EXPECT(weir_device_free(device, address[index], NULL));
  unsigned long long before = atomic_load(&watched->waits), unmapped = atomic_load(&watched->unmaps);
  weir_device_empty_cache(device);
  EXPECT(atomic_load(&watched->unmaps) >= unmapped + 6 && atomic_load(&watched->waits) == before + 1);
}

/* As PyTorch's streams do. The conformance of foreign streams has one that does not. */
int conform_stream_lasts(void *context, uint64_t stream) {
  (void)context;
  return stream != 0x50;
}

/* A foreign stream may be destroyed when its block is freed or its memory is wanted by another stream. So it is not used then. */
static void foreign_streams(weir_device *device, weir_backend *host, spy *watched) {
  uint64_t other = take(device, 1000, 0x40), address[8];
  for (int index = 0; index < 8; index++) address[index] = take(device, 20 * MIB, 0x50);
  unsigned long long before = atomic_load(&watched->records);
  uint64_t borrows = weir_device_gauges(device).borrows;
  for (int index = 0; index < 8; index++) EXPECT(weir_device_free(device, address[index], NULL));
  uint64_t borrowed = take(device, 100 * MIB, 0x40);
  EXPECT(borrowed != 0 && atomic_load(&watched->records) == before && weir_device_gauges(device).borrows == borrows);
  /* A foreign stream that is recorded on a block exists until the block is freed, and is waited for like any other. */
  EXPECT(weir_host_enqueue_fill(host, 0x50, borrowed, 4096, 3) && weir_device_record_stream(device, borrowed, 0x50));
  EXPECT(weir_device_free(device, borrowed, NULL) && atomic_load(&watched->records) == before + 1);
  weir_host_run(host, 64, 1);
  EXPECT(weir_device_free(device, other, NULL));
  /* If memory is short, the host waits for the whole device. Then all free memory serves every stream. */
  weir_device_set_limit(device, weir_device_gauges(device).reserved);
  uint64_t all = take(device, 140 * MIB, 0x60);
  EXPECT(all != 0 && weir_device_free(device, all, NULL));
  weir_device_set_limit(device, 0);
  weir_device_empty_cache(device);
}

/* Of a stream that nobody vouches for, the runtime must not ask anything once the program has freed its blocks. */
static void destroyed_streams(void) {
  char why[256];
  weir_backend *host = weir_host_backend(512 * MIB, why, sizeof why);
  spy *watched = host ? spy_on(host) : NULL;
  weir_device_options options = {.lend = 1, .limit = 256 * MIB};
  weir_device *device = watched ? weir_device_new(&watched->backend, &options) : NULL;
  EXPECT(device != NULL);
  if (!device) return;
  /* As a recorded stream, it is first seen by record_stream; it still exists then. */
  uint64_t first = take(device, 8 * MIB, 0);
  EXPECT(weir_device_record_stream(device, first, 0xabc0) && weir_device_free(device, first, NULL));
  EXPECT(atomic_load(&watched->records) == 1);
  uint64_t address = take(device, 200 * MIB, 0xabc0);
  EXPECT(address != 0 && weir_device_is_foreign(device, 0xabc0) && !weir_device_is_foreign(device, 0));
  atomic_store(&watched->dead, 0xabc0);
  EXPECT(weir_device_free(device, address, NULL));
  /* Served after a wait for the whole device: no other memory is left. */
  uint64_t other = take(device, 180 * MIB, 0);
  EXPECT(other != 0 && weir_device_free(device, other, NULL) && atomic_load(&watched->touched) == 0);
  weir_device_empty_cache(device);
  EXPECT(weir_device_gauges(device).reserved == 0 && atomic_load(&watched->touched) == 0);
  weir_device_delete(device);
}

static void ranges(weir_device *device) {
  static weir_range rows[256];
  uint64_t first = take(device, 3 * MIB, 0x40), second = take(device, 2000, 0x40);
  uint32_t count = weir_device_snapshot(device, rows, 256);
  int found = 0;
  for (uint32_t index = 0; index < count && index < 256; index++) {
    uint64_t given = (uint64_t)rows[index].given;
    if (given == first) found += rows[index].stream == 0x40 && rows[index].requested == 3.0 * MIB;
    if (given == second) found += rows[index].stream == 0x40 && rows[index].requested == 2000;
  }
  EXPECT(found == 2 && weir_device_snapshot(device, NULL, 0) == count);
  EXPECT(weir_device_free(device, first, NULL) && weir_device_free(device, second, NULL));
}

static void many_streams(weir_device *device) {
  for (uint64_t index = 0; index < 400; index++) {
    uint64_t address = take(device, 1000, 0x100000 + index * 64);
    EXPECT(address != 0 && weir_device_free(device, address, NULL));
  }
}

static void names(weir_recorder *recorder) {
  uint32_t first = weir_recorder_string(recorder, "forward"), second = weir_recorder_string(recorder, "backward");
  EXPECT(first == 1 && second == 2 && weir_recorder_string(recorder, "forward") == 1 && weir_recorder_string(recorder, "") == 0);
  char text[1024];
  memset(text, 'x', sizeof text - 1);
  text[sizeof text - 1] = 0;
  uint32_t last = 2, number;
  for (int index = 0; index < 400; index++) {
    text[0] = (char)('a' + index % 20);
    text[1] = (char)('a' + index / 20);
    number = weir_recorder_string(recorder, text);
    EXPECT(number == last + 1 || number == 0);
    if (number != 0) last = number;
  }
  EXPECT(last > 200 && last < 300 && weir_recorder_string(recorder, "backward") == 2);
  EXPECT(weir_recorder_pool(recorder, 0, 0, 0) == 0 && weir_recorder_pool(recorder, 0, 0, 5) == 1 &&
         weir_recorder_pool(recorder, 0, 0, 5) == 1);
  EXPECT(weir_recorder_pool(recorder, 99, 0, 0) == -1 && weir_recorder_stream(recorder, 0, 0xabcdef) == -1);
  EXPECT(weir_recorder_stream(recorder, 0, 0) == 0 && weir_recorder_stream(recorder, 1, 0x40) == 0);
  EXPECT(weir_recorder_plan_generation(recorder) == 0);
}

static weir_text text_of(const char *value) { return (weir_text){value, (uint32_t)strlen(value)}; }

/* Frames and stacks are found again, refer only to what is there, and end where the tables do. */
static void call_stacks(weir_recorder *recorder) {
  weir_text file = text_of("train.py"), none = text_of("");
  int32_t outer = weir_recorder_stack(recorder, -1, text_of("<module>"), file, 3);
  int32_t inner = weir_recorder_stack(recorder, outer, text_of("step"), file, 7);
  EXPECT(outer == 0 && inner == 1 && weir_recorder_stack(recorder, -1, text_of("<module>"), file, 3) == outer);
  EXPECT(weir_recorder_stack(recorder, outer, text_of("step"), file, 7) == inner);
  EXPECT(weir_recorder_stack(recorder, outer, text_of("step"), file, 8) == 2 && weir_recorder_stack(recorder, -1, none, none, -5) == 3);
  EXPECT(weir_recorder_stack(recorder, 4, text_of("step"), file, 7) == -1 && weir_recorder_stack(recorder, -2, none, file, 1) == -1);
  char name[16];
  int32_t last = 3;
  for (int index = 0; index < 2000; index++) {
    snprintf(name, sizeof name, "f%d", index);
    int32_t stack = weir_recorder_stack(recorder, inner, text_of(name), file, index);
    EXPECT(stack == last + 1 || stack == -1);
    if (stack >= 0) last = stack;
  }
  EXPECT(last == 1023 && weir_recorder_stack(recorder, outer, text_of("step"), file, 7) == inner);
  EXPECT(weir_recorder_hold_stack(5) == -1 && weir_recorder_hold_stack(-1) == 5);
}

int conform(weir_device *device, weir_backend *host, spy *watched, weir_recorder *recorder) {
  blocks(device);
  limits(device);
  relieved();
  parked(device, host);
  captures(device, host, watched);
  waits(device, watched);
  foreign_streams(device, host, watched);
  destroyed_streams();
  ranges(device);
  many_streams(device);
  if (recorder) {
    names(recorder);
    call_stacks(recorder);
  }
  EXPECT(weir_device_check(device, 3) == 0 && weir_host_corrupted(host) == 0);
  weir_device_delete(device);
  weir_recorder_close(recorder);
  if (!broken) printf("{}\n");
  return broken;
}
