/* A device from the inside: what its files share. device_driver.c stands between engine and backend, device_streams.c
 * keeps streams by number and writes rows, device_plan.c takes plans, device_share.c gives to other processes, weir_device.c
 * is the rest. Everything is touched inside the mutex, but for `owned` and `plan_seen`. */
#ifndef WEIR_DEVICE_H
#define WEIR_DEVICE_H

#include "backend/address_map.h"
#include "device_lock.h"
#include "recorder.h"

typedef struct device_stream {
  uint64_t handle;
  int32_t recorded; /* its number in the recording */
  int32_t foreign;  /* whoever made it may destroy it, at any time */
} device_stream;

struct weir_device {
  /* Read without the lock, so on a cache line where nothing changes. */
  uint64_t *owned; /* a bit for each unit of addresses: reserved by us */
  size_t owned_bytes;
  unsigned unit_shift;
  uint32_t plan_seen; /* the supervisor's number of plans that were taken; written inside the lock */
  weir_recorder *recorder; /* or NULL */
  char apart[96];

  device_mutex lock;
  weir_engine *engine;
  weir_backend *backend;
  weir_device_options options;
  weir_gauges *gauges; /* in the ring, or our own */
  weir_gauges own_gauges;

  uint32_t captures;
  int freed; /* something was freed since the host last waited for the device */
  uint64_t limit;
  uint64_t asked; /* by the request that is being served */
  enum { NOT_ASKED, WORTH_TRYING, HOPELESS } prospect; /* of new memory for it */
  uint64_t held; /* bytes of handles */
  uint64_t *handle_bytes; /* by handle */
  size_t handle_room;
  char driver_error[128]; /* words of the latest failure of a call that a request depends on */

  device_stream *streams; /* by number */
  uint32_t stream_count, stream_room;
  weir_map stream_numbers; /* handle + 1 -> number */
  uint64_t last_handle; /* the stream asked for last, and its number */
  uint32_t last_number;
  uint32_t foreign_count;
  int64_t freeing; /* while a block is freed: the number of its stream, or -1; asked for only if there are foreign streams */

  int32_t pool;
  uint64_t recorded_reserved;
  weir_map parked;       /* address -> requested, stream: what will be said when the block is completed */
  weir_map parked_sizes; /* address -> size of the block */
  uint64_t *drained;
  size_t drained_room;

  int takes_plans;    /* a thread is reading one */
  int has_plans;
  uint32_t active_plan;    /* the engine's number of the plan in use, when last looked at */
  uint32_t plan_countdown; /* requests until then */
};

/* device_driver.c */
weir_driver device_driver(weir_device *device);
int device_owned_open(weir_device *device);
void device_owned_close(weir_device *device);
/* The host waits for the device; 0, or below 0 if it may not or the driver fails. */
int32_t device_wait(weir_device *device);
/* What is reserved has changed: levels follow. */
void device_count_reserved(weir_device *device);

/* device_streams.c */
/* The number of a stream, named at first sight; below 0 if it cannot be. */
int64_t device_number_of(weir_device *device, uint64_t handle);
void device_row(weir_device *device, weir_event event, uint32_t stream);
/* A block as the program knows it. */
weir_allocation device_told(const weir_device *device, const weir_block *block);
/* A block was let go of, and is free or parked: rows, and `changed`. */
void device_let_go(weir_device *device, const weir_block *block, int parked);
/* Whether nothing may be done on a stream now because its handle may stand for nothing any more. */
int device_may_be_gone(const weir_device *device, uint32_t stream);
/* Rows for what has changed beside the call itself: parked blocks that completed, and what is reserved. */
void device_rows_changed(weir_device *device, uint32_t completed);

/* device_plan.c */
/* Requests between two looks at what plans have done. */
#define PLANNED_EVERY 64u
/* Reads the plans announced since, and gives those for this GPU to the engine. Without the lock. */
void device_take_plans(weir_device *device);
/* The levels of plans, and a row when another one is in use. Inside the lock. */
void device_count_planned(weir_device *device);

/* As requests are counted: in units of the blocks that PyTorch gives out. */
static inline uint64_t device_rounded(uint64_t bytes) { return bytes == 0 ? 512 : (bytes + 511) / 512 * 512; }

#endif
