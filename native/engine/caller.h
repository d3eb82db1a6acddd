/* For a caller that holds a lock of its own around every call of an engine. The engine's mutex, though never contended, would
 * cost a fifth of a request. Not exported. */
#ifndef WEIR_ENGINE_CALLER_H
#define WEIR_ENGINE_CALLER_H

#include "weir_engine.h"

/* Call it right after weir_engine_new. It cannot be undone. */
void engine_leave_locking_to_caller(weir_engine *engine);

#endif
