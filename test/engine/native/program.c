/* Runs a program on the native engine and prints every address and every driver call, to be compared with WebAssembly's.
 * Lines: `S number value` a setting, `C bytes` capacity, `X from to` driver calls that fail, `M bytes stream pool` a request
 * (numbered from 0), `F n` frees request n, `L n` lets go of it, `K n` completes it, `R n stream` records a
 * stream on it, `E` empties the cache, `T` checks, `P count turns footprint` followed by size, stream and offsets of each
 * request installs a plan, `G plan` forgets one, all with 0. */
#include <inttypes.h>
#include <stdlib.h>

#include "weir_abi.h"
#include "ledger_driver.h"

/* Prints statistics from `first` to before `end`, except the engine's own memory, which the two forms may lay out differently. */
static void print_statistics(weir_engine *engine, uint32_t first, uint32_t end) {
  for (uint32_t index = first; index < end; index++) {
    if (index != WEIR_STATISTIC_OWN_MEMORY) printf("s %" PRIu64 "\n", weir_engine_statistic(engine, index));
  }
}

typedef struct request {
  uint64_t address;
  uint32_t block;
} request;

/* Waits for the device unless nothing was released since the last wait, as the allocator in TypeScript does; 1 if it did. */
static int settle(weir_engine *engine, ledger *books) {
  static uint64_t settled;
  uint64_t release = weir_engine_latest_release(engine);
  if (release == settled) return 0;
  ledger_synchronize(books);
  weir_engine_streams_idle(engine, release);
  settled = release;
  return 1;
}

/* Reads the requests of a plan and installs it; -1 if they are missing. */
static int64_t read_plan(weir_engine *engine, uint32_t count, uint32_t turns, uint64_t footprint) {
  weir_plan_request *requests = calloc(count, sizeof *requests);
  uint64_t *offsets = calloc((size_t)count * turns, sizeof *offsets);
  int64_t plan = requests && offsets ? 0 : -1;
  for (uint32_t index = 0; plan == 0 && index < count; index++) {
    if (scanf("%" SCNu64 " %" SCNu32, &requests[index].size, &requests[index].stream) != 2) plan = -1;
    for (uint32_t turn = 0; turn < turns; turn++)
      if (scanf("%" SCNu64, &offsets[(size_t)index * turns + turn]) != 1) plan = -1;
  }
  if (plan == 0) plan = weir_engine_install_plan(engine, requests, count, turns, offsets, footprint);
  free(requests);
  free(offsets);
  return plan;
}

int main(void) {
  ledger books;
  ledger_init(&books, stdout, UINT64_MAX);
  weir_driver driver = ledger_driver(&books);
  weir_engine *engine = weir_engine_new(&driver);
  if (!engine) return 2;
  request *requests = NULL;
  size_t count = 0, room = 0;
  char kind;
  int wrong = 0;
  while (scanf(" %c", &kind) == 1) {
    uint64_t a = 0, b = 0, c = 0;
    switch (kind) {
      case 'S':
        if (scanf("%" SCNu64 " %" SCNu64, &a, &b) != 2 || !weir_engine_configure(engine, (uint32_t)a, b)) return 2;
        break;
      case 'C':
        if (scanf("%" SCNu64, &books.capacity) != 1) return 2;
        break;
      case 'X':
        if (scanf("%" SCNu64 " %" SCNu64, &books.fail_from, &books.fail_to) != 2) return 2;
        break;
      case 'M':
        if (scanf("%" SCNu64 " %" SCNu64 " %" SCNu64, &a, &b, &c) != 3) return 2;
        if (count == room) {
          room = room ? room * 2 : 1024;
          requests = realloc(requests, room * sizeof *requests);
          if (!requests) return 2;
        }
        requests[count].address = weir_engine_malloc(engine, a, (uint32_t)b, (uint32_t)c);
        if (!requests[count].address && settle(engine, &books)) {
          requests[count].address = weir_engine_malloc(engine, a, (uint32_t)b, (uint32_t)c);
        }
        requests[count].block = 0;
        printf("a %" PRIu64 "\n", requests[count].address);
        count++;
        break;
      case 'F':
        if (scanf("%" SCNu64, &a) != 1) return 2;
        if (requests[a].address) wrong |= !weir_engine_free(engine, requests[a].address);
        break;
      case 'L':
        if (scanf("%" SCNu64, &a) != 1) return 2;
        if (requests[a].address) wrong |= (requests[a].block = weir_engine_let_go(engine, requests[a].address)) == 0;
        break;
      case 'K':
        if (scanf("%" SCNu64, &a) != 1) return 2;
        if (requests[a].address) wrong |= !weir_engine_complete(engine, requests[a].block);
        break;
      case 'R':
        if (scanf("%" SCNu64 " %" SCNu64, &a, &b) != 2) return 2;
        if (requests[a].address) wrong |= !weir_engine_record_stream(engine, requests[a].address, (uint32_t)b);
        break;
      case 'E':
        settle(engine, &books);
        weir_engine_empty_cache(engine);
        break;
      case 'P': {
        if (scanf("%" SCNu64 " %" SCNu64 " %" SCNu64, &a, &b, &c) != 3) return 2;
        int64_t plan = read_plan(engine, (uint32_t)a, (uint32_t)b, c);
        if (plan < 0) return 2;
        printf("p %" PRId64 "\n", plan);
        break;
      }
      case 'G':
        if (scanf("%" SCNu64, &a) != 1) return 2;
        if (a) wrong |= !weir_engine_forget_plan(engine, (uint32_t)a);
        else weir_engine_forget_plans(engine);
        break;
      case 'T': printf("t %" PRIu32 "\n", weir_engine_check(engine, 3)); break;
      default: return 2;
    }
  }
  print_statistics(engine, 0, WEIR_STATISTIC_END);
  print_statistics(engine, WEIR_PLAN_STATISTIC_HITS, WEIR_PLAN_STATISTIC_END);
  printf("left %" PRId64 " %" PRId64 " %" PRId64 "\n", books.handles, books.reservations, books.mappings);
  wrong |= weir_engine_is_broken(engine);
  weir_engine_delete(engine);
  ledger_destroy(&books);
  free(requests);
  return wrong;
}
