/* Shared by the files of a device. device_driver.c stands between engine and backend, device_streams.c numbers streams and
 * writes rows, device_plan.c takes plans, device.c has the rest. Fields are used inside the lock only, except `owned` and
 * `plan_seen`. */
#ifndef WEIR_DEVICE_H
#define WEIR_DEVICE_H

#include "backend/address_map.h"
#include "device_lock.h"
#include "recorder.h"

typedef struct device_stream {
  uint64_t handle;
  int32_t recorded; /* its number in the recording */
  int32_t foreign;  /* whoever made it may destroy it at any time */
} device_stream;

struct weir_device {
  /* Read without the lock, so they have a cache line of their own. */
  uint64_t *owned; /* a bit for each unit of addresses: whether we have reserved it */
  size_t owned_bytes;
  unsigned unit_shift;
  uint32_t plan_seen; /* number of the last plan that was read; written inside the lock */
  weir_recorder *recorder; /* or NULL */
  char apart[96];

  device_mutex lock;
  weir_engine *engine;
  weir_backend *backend;
  weir_device_options options;
  weir_gauges *gauges; /* in the ring, or our own */
  weir_gauges own_gauges;

  uint32_t captures;
  uint32_t lifted;   /* further captures, which do not count while memory is given back */
  uint32_t waiters;  /* threads that wait for the device without the lock; no capture begins meanwhile */
  uint32_t captors;  /* threads that want to begin a capture; no further wait begins meanwhile */
  uint64_t settled;  /* the latest release when the host last waited for the device */
  uint64_t limit;
  uint64_t asked; /* bytes of the request that is being served */
  enum { NOT_ASKED, WORTH_TRYING, HOPELESS } prospect; /* whether new memory can help that request */
  uint64_t held; /* bytes of handles */
  uint64_t *handle_bytes; /* by handle */
  size_t handle_room;
  char driver_error[128]; /* message of the last failed call that a request depends on */

  device_stream *streams; /* by number */
  uint32_t stream_count, stream_room;
  weir_map stream_numbers; /* handle + 1 -> number */
  uint64_t last_handle; /* the stream looked up last, and its number */
  uint32_t last_number;
  uint32_t foreign_count;
  int64_t freeing; /* stream number of the block that is being freed, or -1; only set if there are foreign streams */

  int32_t pool;
  uint64_t recorded_reserved;
  weir_map parked;       /* address -> requested, stream; for the row when the block completes */
  weir_map parked_sizes; /* address -> size of the block */
  uint64_t *drained;
  size_t drained_room;

  int takes_plans;    /* a thread is reading plans */
  int has_plans;
  uint32_t active_plan;    /* the engine's number of the plan in use, at the last count */
  uint32_t plan_countdown; /* requests until the next count */
};

/* device_driver.c */
weir_driver device_driver(weir_device *device);
int device_owned_open(weir_device *device);
void device_owned_close(weir_device *device);
/* The host waits for the device, and tells the engine that all releases before the wait are over. Releases the lock meanwhile, so
 * that other threads can allocate and free. 1; 0 if nothing was released since the last wait; below 0 during a capture or if the
 * driver fails. */
int32_t device_wait(weir_device *device);
/* Waits until no thread waits for the device, since that is forbidden during a capture. Releases the lock meanwhile. */
void device_await_waiters(weir_device *device);
/* Updates the gauges after a change of what is reserved. */
void device_count_reserved(weir_device *device);

/* device_streams.c */
/* The number of a stream, assigned at first sight; below 0 if that fails. */
int64_t device_number_of(weir_device *device, uint64_t handle);
void device_row(weir_device *device, weir_event event, uint32_t stream);
/* The block with its stream as a handle. */
weir_allocation device_told(const weir_device *device, const weir_block *block);
/* Writes rows and calls `changed` for a block that is now free or parked. */
void device_let_go(weir_device *device, const weir_block *block, int parked);
/* Whether a stream must not be used now, because the program may have destroyed it. */
int device_may_be_gone(const weir_device *device, uint32_t stream);
/* Writes rows for parked blocks that have completed, and for a change of what is reserved. */
void device_rows_changed(weir_device *device, uint32_t completed);

/* device_plan.c */
/* Requests between two counts of what plans have served. */
#define PLANNED_EVERY 64u
/* Reads newly announced plans and gives those for this GPU to the engine. Called without the lock. */
void device_take_plans(weir_device *device);
/* Updates the gauges of plans, and writes a row if another plan is in use. Called inside the lock. */
void device_count_planned(weir_device *device);

/* A request of no bytes counts as one unit, like the blocks of PyTorch. */
static inline uint64_t device_rounded(uint64_t bytes) { return bytes == 0 ? WEIR_BLOCK_UNIT : weir_in_units(bytes); }

#endif
