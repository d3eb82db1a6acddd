/* A driver that only keeps books. It behaves like test/engine/strict-backend.ts: same handles, addresses and failures.
 * Misuse ends the program. */
#ifndef LEDGER_DRIVER_H
#define LEDGER_DRIVER_H

#include <stdio.h>

#include "engine/weir_engine.h"

typedef struct ledger {
  FILE *log; /* every call as a line; NULL for none */
  uint64_t capacity;
  uint64_t used;
  uint64_t next_handle;
  uint64_t next_address;
  uint64_t calls;
  uint64_t fail_from, fail_to; /* calls in [from, to) fail */
  uint64_t *sizes;             /* bytes by handle, 0 when released */
  uint64_t size_room;
  int64_t mappings, reservations, handles;
  uint64_t recorded[4096];     /* by slot of an event, the call that recorded it; 0 for never */
} ledger;

void ledger_init(ledger *books, FILE *log, uint64_t capacity);
void ledger_destroy(ledger *books);
weir_driver ledger_driver(ledger *books);
/* All work of streams so far is over. */
void ledger_synchronize(ledger *books);

#endif
