/* A device from the inside: what its three files share. device_driver.c stands between engine and backend, device_streams.c
 * keeps streams by number and writes rows, weir_device.c is the rest. Everything but `owned` is touched inside the mutex. */
#ifndef WEIR_DEVICE_H
#define WEIR_DEVICE_H

#include <pthread.h>

#include "address_map.h"
#include "recorder.h"

typedef struct device_stream {
  uint64_t handle;
  int32_t recorded; /* its number in the recording */
} device_stream;

struct weir_device {
  pthread_mutex_t mutex;
  weir_engine *engine;
  weir_backend *backend;
  weir_recorder *recorder; /* or NULL */
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

  uint64_t *owned; /* a bit for each unit of addresses: reserved by us */
  size_t owned_bytes;
  unsigned unit_shift;

  device_stream *streams; /* by number */
  uint32_t stream_count, stream_room;
  weir_map stream_numbers; /* handle + 1 -> number */
  uint64_t last_handle; /* the stream asked for last, and its number */
  uint32_t last_number;

  int32_t pool;
  uint64_t recorded_reserved;
  weir_map parked; /* address -> requested, stream: what rows of later completion will say */
  uint64_t *drained;
  size_t drained_room;
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
void device_row_free(weir_device *device, const weir_block *block, int parked);
/* Rows for what has changed beside the call itself: parked blocks that completed, and what is reserved. */
void device_rows_changed(weir_device *device, uint32_t completed);

#endif
