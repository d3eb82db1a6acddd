/* What weir_runtime.h promises, one promise after the other, on a device of 512 MiB that nothing else uses. */
#ifndef CONFORMANCE_H
#define CONFORMANCE_H

#include "spy_backend.h"

/* Prints what does not hold; gives how much that is. Deletes the device; `recorder` may be NULL. */
int conform(weir_device *device, weir_backend *host, spy *watched, weir_recorder *recorder);

#endif
