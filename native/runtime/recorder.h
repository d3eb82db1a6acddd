/* What the recorder offers the runtime beyond weir_runtime.h: rows that belong together. Not exported. */
#ifndef WEIR_RECORDER_H
#define WEIR_RECORDER_H

#include "weir_runtime.h"

/* Adds rows under one lock, with one reading of the clock. If they do not all fit, none is added. */
void recorder_put_rows(weir_recorder *recorder, weir_event *rows, uint32_t count);

#endif
