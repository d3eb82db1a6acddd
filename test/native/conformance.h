/* Checks the promises of weir_runtime.h, on a device of 512 MiB that nothing else uses. */
#ifndef CONFORMANCE_H
#define CONFORMANCE_H

#include "spy_backend.h"

/* For stream_lasts of that device: all streams last, except 0x50. */
int conform_stream_lasts(void *context, uint64_t stream);
/* Prints broken promises and returns their number. Deletes the device; `recorder` may be NULL. */
int conform(weir_device *device, weir_backend *host, spy *watched, weir_recorder *recorder);

#endif
