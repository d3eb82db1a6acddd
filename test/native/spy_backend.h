/* A backend that passes everything on and notes what must not happen: events touched, memory unmapped or the host waiting
 * while a graph is being captured. It can also lie, to show that the stand-in would notice. */
#ifndef SPY_BACKEND_H
#define SPY_BACKEND_H

#include <stdatomic.h>

#include "runtime/weir_runtime.h"

enum spy_lie { NO_LIE, LIE_SYNCHRONIZE, LIE_QUERY, LIE_WAIT };

typedef struct spy {
  weir_backend backend;
  weir_backend *inner; /* owned */
  enum spy_lie lie; /* says that it has waited, that an event is over, that a stream will wait */
  atomic_int captures;   /* begun and not yet about to end */
  atomic_int violations;
  atomic_ullong waits, unmaps, records, queries, stream_waits;
} spy;

/* NULL if there is no memory. */
spy *spy_on(weir_backend *inner);

#endif
