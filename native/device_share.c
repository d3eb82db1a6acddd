/* The memory of a live block for another process. */
#include <stdio.h>

#include "device.h"

uint32_t weir_device_share(weir_device *device, uint64_t address, weir_piece *pieces, uint32_t room, uint64_t *start, char *why,
                           size_t why_room) {
  const weir_backend *backend = device->backend;
  weir_block block;
  int32_t count = 0;
  device_lock(&device->lock);
  if (!weir_engine_find(device->engine, address, &block) && !weir_engine_find_containing(device->engine, address, &block)) {
    snprintf(why, why_room, "nothing is allocated at this address");
  } else if (!backend->share) {
    snprintf(why, why_room, "its memory cannot be shared");
  } else {
    count = backend->share(backend->driver.context, block.address, block.size, pieces, room, start);
    if (count <= 0) snprintf(why, why_room, "%s", backend->last_error(backend->driver.context));
  }
  device_unlock(&device->lock);
  return count > 0 ? (uint32_t)count : 0;
}
