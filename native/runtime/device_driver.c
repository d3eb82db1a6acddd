/* Between engine and backend: the limit, waits for the device, counts of calls and failures, sharing, and a bitmap of the
 * addresses we have reserved, which is read without a lock. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "device.h"

/* Addresses that processors and GPUs share have at most 48 bits. */
#define ADDRESS_BITS 48

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Counts a call that began at `start`; returns its result. */
static int64_t counted(weir_device *device, uint64_t start, int64_t result) {
  device->gauges->driver_ns += now_ns() - start;
  device->gauges->driver_calls++;
  if (result < 0) device->gauges->driver_failures++;
  return result;
}

/* The same for calls that a request depends on: keeps the error message, unless the failure is that memory is used up. */
static int64_t needed(weir_device *device, uint64_t start, int64_t result) {
  counted(device, start, result);
  if (result < 0 && result != WEIR_NO_MEMORY) {
    snprintf(device->driver_error, sizeof device->driver_error, "%s", device->backend->last_error(device->backend->driver.context));
  }
  return result;
}

void device_count_reserved(weir_device *device) {
  weir_gauges *gauges = device->gauges;
  gauges->reserved = device->held + gauges->outside;
  if (gauges->reserved > gauges->peak_reserved) gauges->peak_reserved = gauges->reserved;
}

static int keep_handle(weir_device *device, uint64_t handle, uint64_t bytes) {
  if (handle >= device->handle_room) {
    size_t room = device->handle_room ? device->handle_room : 256;
    while (room <= handle) room *= 2;
    uint64_t *grown = realloc(device->handle_bytes, room * sizeof *grown);
    if (!grown) return 0;
    device->handle_bytes = grown;
    device->handle_room = room;
  }
  device->handle_bytes[handle] = bytes;
  return 1;
}

/* A hopeless request is larger than all free memory, ours and the GPU's. The engine would take the whole GPU handle by handle
 * and then give it back, for seconds, in which other processes fail. So large requests ask first: that costs less than one
 * handle. */
#define LARGE_REQUEST (256ull << 20)

static int is_hopeless(weir_device *device) {
  if (device->prospect == NOT_ASKED) {
    uint64_t available, total;
    uint64_t spare = device->held - (device->gauges->allocated < device->held ? device->gauges->allocated : device->held);
    device->prospect = WORTH_TRYING;
    if (device->asked >= LARGE_REQUEST && device->backend->memory(device->backend->driver.context, &available, &total) >= 0) {
      uint64_t taken = device->held + device->gauges->outside;
      uint64_t allowed = device->limit > taken ? device->limit - taken : 0;
      if (device->limit != 0 && allowed < available) available = allowed;
      if (device->asked > available + spare) device->prospect = HOPELESS;
    }
  }
  return device->prospect == HOPELESS;
}

static int64_t create(void *context, uint64_t bytes) {
  weir_device *device = context;
  const weir_driver *driver = &device->backend->driver;
  if (device->limit != 0 && device->held + device->gauges->outside + bytes > device->limit) return WEIR_NO_MEMORY;
  if (is_hopeless(device)) return WEIR_NO_MEMORY;
  uint64_t start = now_ns();
  int64_t handle = needed(device, start, driver->create(driver->context, bytes));
  if (handle < 0) return handle;
  if (!keep_handle(device, (uint64_t)handle, bytes)) {
    driver->release(driver->context, (uint64_t)handle);
    snprintf(device->driver_error, sizeof device->driver_error, "no host memory for the books");
    return -1;
  }
  device->held += bytes;
  device_count_reserved(device);
  return handle;
}

static int32_t release(void *context, uint64_t handle) {
  weir_device *device = context;
  const weir_driver *driver = &device->backend->driver;
  uint64_t start = now_ns();
  int32_t result = (int32_t)counted(device, start, driver->release(driver->context, handle));
  if (result < 0) return result;
  device->held -= device->handle_bytes[handle];
  device_count_reserved(device);
  return result;
}

/* Sets or clears the bits of a range. Words change atomically. */
static void mark(weir_device *device, uint64_t address, uint64_t bytes, int on) {
  uint64_t unit = address >> device->unit_shift, end = (address + bytes + (1ull << device->unit_shift) - 1) >> device->unit_shift;
  while (unit < end) {
    uint64_t first = unit % 64, last = end - unit < 64 - first ? end - unit : 64 - first;
    uint64_t bits = (last == 64 ? ~0ull : (1ull << last) - 1) << first;
    if (on) __atomic_or_fetch(&device->owned[unit / 64], bits, __ATOMIC_RELAXED);
    else __atomic_and_fetch(&device->owned[unit / 64], ~bits, __ATOMIC_RELAXED);
    unit += last;
  }
}

static int64_t reserve(void *context, uint64_t bytes) {
  weir_device *device = context;
  const weir_driver *driver = &device->backend->driver;
  uint64_t start = now_ns();
  int64_t address = needed(device, start, driver->reserve(driver->context, bytes));
  if (address < 0) return address;
  if (((uint64_t)address + bytes) >> ADDRESS_BITS) {
    driver->unreserve(driver->context, (uint64_t)address, bytes);
    snprintf(device->driver_error, sizeof device->driver_error, "the driver gives addresses above 48 bits");
    return -1;
  }
  mark(device, (uint64_t)address, bytes, 1);
  return address;
}

static int32_t unreserve(void *context, uint64_t address, uint64_t bytes) {
  weir_device *device = context;
  const weir_driver *driver = &device->backend->driver;
  uint64_t start = now_ns();
  int32_t result = (int32_t)counted(device, start, driver->unreserve(driver->context, address, bytes));
  if (result >= 0) mark(device, address, bytes, 0);
  return result;
}

static int32_t map(void *context, uint64_t address, uint64_t handle) {
  weir_device *device = context;
  const weir_driver *driver = &device->backend->driver;
  uint64_t start = now_ns();
  return (int32_t)needed(device, start, driver->map(driver->context, address, handle));
}

static int32_t set_access(void *context, uint64_t address, uint64_t bytes) {
  weir_device *device = context;
  const weir_driver *driver = &device->backend->driver;
  uint64_t start = now_ns();
  return (int32_t)needed(device, start, driver->set_access(driver->context, address, bytes));
}

int32_t device_wait(weir_device *device) {
  uint64_t release = weir_engine_latest_release(device->engine);
  if (device->captures + device->captors > 0) return -1;
  if (release == device->settled) return 0;
  device->waiters++;
  device_unlock(&device->lock);
  int32_t result = device->backend->synchronize(device->backend->driver.context);
  device_lock(&device->lock);
  if (--device->waiters == 0) device_wake_all(&device->waiters);
  if (result < 0) {
    device->gauges->driver_failures++;
    return result;
  }
  /* Blocks that were freed during the wait have later numbers: the wait may not have covered their last use. */
  weir_engine_streams_idle(device->engine, release);
  if (release > device->settled) device->settled = release;
  return 1;
}

void device_await_waiters(weir_device *device) {
  device->captors++;
  for (uint32_t waiters; (waiters = device->waiters) > 0;) {
    device_unlock(&device->lock);
    device_sleep(&device->waiters, waiters);
    device_lock(&device->lock);
  }
  device->captors--;
}

/* The engine unmaps only what the GPU has finished with. Unmapping never waits, and the driver does not check. */
static int32_t unmap(void *context, uint64_t address, uint64_t bytes) {
  weir_device *device = context;
  const weir_driver *driver = &device->backend->driver;
  if (device->captures > 0) return -1;
  uint64_t start = now_ns();
  return (int32_t)counted(device, start, driver->unmap(driver->context, address, bytes));
}

/* Events are not memory calls: their failures are counted, their time is not. One call would spoil a capture. The engine makes
 * none then; these functions refuse once more. */
static int32_t event_record(void *context, uint32_t stream, uint32_t slot) {
  weir_device *device = context;
  if (device->captures > 0 || device_may_be_gone(device, stream)) return -1;
  int32_t result = device->backend->driver.event_record(device->backend->driver.context, stream, slot);
  if (result < 0) device->gauges->driver_failures++;
  return result;
}

static int32_t event_query(void *context, uint32_t slot) {
  weir_device *device = context;
  if (device->captures > 0) return 0;
  int32_t result = device->backend->driver.event_query(device->backend->driver.context, slot);
  if (result < 0) device->gauges->driver_failures++;
  return result;
}

static int32_t stream_wait(void *context, uint32_t stream, uint32_t slot) {
  weir_device *device = context;
  if (device->captures > 0) return -1;
  int32_t result = device->backend->driver.stream_wait(device->backend->driver.context, stream, slot);
  if (result < 0) device->gauges->driver_failures++;
  return result;
}

weir_driver device_driver(weir_device *device) {
  return (weir_driver){device, create, release, reserve, unreserve, map, set_access, unmap, event_record, event_query, stream_wait};
}

int device_owned_open(weir_device *device) {
  while ((2ull << device->unit_shift) <= device->backend->granularity) device->unit_shift++;
  device->owned_bytes = (1ull << (ADDRESS_BITS - device->unit_shift)) / 8;
  /* 16 MiB for units of 2 MiB. Only parts that cover reserved addresses get pages. */
  void *bits = mmap(NULL, device->owned_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (bits == MAP_FAILED) return 0;
  device->owned = bits;
  return 1;
}

void device_owned_close(weir_device *device) {
  if (device->owned) munmap(device->owned, device->owned_bytes);
}

int weir_device_owns(const weir_device *device, uint64_t address) {
  if (address >> ADDRESS_BITS) return 0;
  uint64_t unit = address >> device->unit_shift;
  return (__atomic_load_n(&device->owned[unit / 64], __ATOMIC_RELAXED) >> (unit % 64)) & 1;
}

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
