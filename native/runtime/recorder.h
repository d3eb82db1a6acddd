/* What the recorder offers the runtime beyond weir_runtime.h: rows that belong together, put at one time.
 * Not exported. */
#ifndef WEIR_RECORDER_H
#define WEIR_RECORDER_H

#include "weir_runtime.h"

/* Adds rows under one lock and one reading of the clock; all of them or, if they do not fit, none. */
void recorder_put_rows(weir_recorder *recorder, weir_event *rows, uint32_t count);

#endif
