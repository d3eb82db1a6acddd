/* A backend that passes calls on and notes those that are forbidden during a graph capture: events, unmapping, waiting.
 * It notes calls on a destroyed stream, too. It can also lie, to show that the stand-in would notice. */
#ifndef SPY_BACKEND_H
#define SPY_BACKEND_H

#include <stdatomic.h>

#include "runtime/weir_runtime.h"

enum spy_lie { NO_LIE, LIE_SYNCHRONIZE, LIE_QUERY, LIE_WAIT };

typedef struct spy {
  weir_backend backend;
  weir_backend *inner; /* owned */
  enum spy_lie lie; /* it claims to have waited, that an event is over, or that a stream will wait */
  void (*waited)(void); /* called at the end of a wait for the device, before that returns; or NULL */
  atomic_int captures;   /* captures that have begun and do not end yet */
  atomic_int violations;
  atomic_ullong dead; /* handle of a stream that the program has destroyed, or 0 */
  atomic_int touched; /* calls on that stream */
  uint64_t names[64]; /* handles of the first streams, by number */
  atomic_ullong waits, unmaps, records, queries, stream_waits;
} spy;

/* NULL if there is no memory. */
spy *spy_on(weir_backend *inner);

#endif
