/* Weir inside a program that uses a GPU: an engine on a backend for each GPU, a memory limit, and a recording.
 *
 * No CUDA headers, no PyTorch: the PyTorch adapter and the tests' stand-in are both written against this file. Every function may
 * be called from any thread. Nothing here throws, waits for the supervisor, or takes Python's lock. */
#ifndef WEIR_RUNTIME_H
#define WEIR_RUNTIME_H

#include <stddef.h>
#include <stdint.h>

#include "backend/weir_backend.h"
#include "engine/weir_engine.h"
#include "weir_abi.h"

/* Bytes rounded up to the block unit: requests are counted in it. */
static inline uint64_t weir_in_units(uint64_t bytes) { return (bytes + WEIR_BLOCK_UNIT - 1) / WEIR_BLOCK_UNIT * WEIR_BLOCK_UNIT; }

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Recorder: the ring of this process. */

typedef struct weir_recorder weir_recorder;

/* Opens DIR/<pid>.ring. NULL if it cannot (full disk, missing folder); the program then runs without a recording. */
weir_recorder *weir_recorder_open(const char *directory, const char *allocator, const char *torch_version, uint32_t rows);
/* The same with tables for so many call stacks. */
weir_recorder *weir_recorder_open_with_stacks(const char *directory, const char *allocator, const char *torch_version, uint32_t rows,
                                              uint32_t stacks);
/* After fork: the child must not write into its parent's ring. Frees nothing of the parent. */
void weir_recorder_forget(weir_recorder *recorder);
/* Ends the rows and tells the reader. Gauges may still be written. For the end of a process, when it is not known who still
 * uses the recorder: the recorder stays. */
void weir_recorder_finish(weir_recorder *recorder);
void weir_recorder_close(weir_recorder *recorder);
/* The number of a stream or pool of a device, assigned at first sight; -1 if there are too many. */
int32_t weir_recorder_stream(weir_recorder *recorder, int device, uint64_t handle);
int32_t weir_recorder_pool(weir_recorder *recorder, int device, uint64_t first, uint64_t second);
/* The number of an interned string; 0 if there is no room. */
uint32_t weir_recorder_string(weir_recorder *recorder, const char *text);
/* A text that need not end with a zero. */
typedef struct weir_text {
  const char *text;
  uint32_t bytes;
} weir_text;
/* The number of the call stack that is this frame on top of the stack `parent` (-1: none); -1 if it is new and there is no room. */
int32_t weir_recorder_stack(weir_recorder *recorder, int32_t parent, weir_text name, weir_text filename, int32_t line);
/* Counts a request whose stack found no room. */
void weir_recorder_lose_stack(weir_recorder *recorder);
/* Sets the stack of the requests and failures that this thread records from now on; -1: none. Gives the one before. */
int32_t weir_recorder_hold_stack(int32_t stack);
/* Adds a row. Sets its thread, its stack, and its time if that is 0. A full ring drops the row and counts it. */
void weir_recorder_put(weir_recorder *recorder, weir_event event);
/* Now, on the clock of rows. */
double weir_recorder_now(const weir_recorder *recorder);
/* Adds rows that belong together. If they do not all fit, none is added. */
void weir_recorder_put_all(weir_recorder *recorder, weir_event *rows, uint32_t count);
/* Gauges that the caller keeps up to date; device below WEIR_RING_DEVICES. */
weir_gauges *weir_recorder_gauges(weir_recorder *recorder, int device);
/* The number of the newest plan that the supervisor has announced. */
uint32_t weir_recorder_plan_generation(const weir_recorder *recorder);
const char *weir_recorder_directory(const weir_recorder *recorder);

/* ---- Devices: allocation. */

typedef struct weir_device weir_device;

/* A block that was given out or freed. */
typedef struct weir_allocation {
  uint64_t address;
  uint64_t size;      /* of the block */
  uint64_t requested;
  uint64_t stream;    /* handle */
} weir_allocation;

/* What happened to a block. PARKED: the program has freed it, but other streams still use it. COMPLETED: they no longer do. */
enum weir_change { WEIR_GIVEN = 1, WEIR_FREED = 2, WEIR_PARKED = 3, WEIR_COMPLETED = 4 };

typedef struct weir_device_options {
  int32_t device;
  int32_t gmlake;            /* preset gmlake instead of weir */
  int32_t lend;              /* streams lend memory to each other */
  int32_t fine;              /* small handles: more driver calls, but more free memory can be stitched */
  int32_t planned;           /* smaller ones yet, for plans: they take whole handles */
  uint64_t limit;            /* 0: none */
  weir_recorder *recorder;   /* or NULL */
  /* Asks the program for memory of the device that it can do without; 1 if it has given some back. The request is then tried
   * again. If it still fails, reclaim is called with the next attempt; the first is 0. Called without any lock of ours. */
  int (*reclaim)(void *context, uint64_t bytes, int attempt);
  void *reclaim_context;
  /* Whether the request of this thread may wait for the device before it fails. One that may not is an attempt, and no retry if it
   * fails. Called inside the lock of the device; NULL: every request may wait. */
  int (*may_wait)(void *context);
  void *may_wait_context;
  /* Called for every change, in order, with the bytes reserved; or NULL. It runs inside the lock of the device: it must be quick
   * and must not call the device. */
  void (*changed)(void *context, enum weir_change change, const weir_allocation *block, uint64_t reserved);
  void *changed_context;
  /* Whether a stream exists for as long as the process; asked once per stream, at its first use, inside the lock of the device.
   * Every other stream is foreign: whoever made it may destroy it while its blocks live on. What it has freed is lent only after
   * a wait for the whole device. NULL: all streams are foreign but the default stream. */
  int (*stream_lasts)(void *context, uint64_t stream);
  void *stream_lasts_context;
} weir_device_options;

/* Takes over the backend. NULL if there is no memory for the device; the backend then stays the caller's. */
weir_device *weir_device_new(weir_backend *backend, const weir_device_options *options);
/* Gives back all memory. Nothing of the device may be in use any more. */
void weir_device_delete(weir_device *device);

/* Why a request failed. */
typedef struct weir_shortage {
  uint64_t requested, live, allocated, reserved, outside;
  uint64_t free_here, largest_piece, assemblable; /* in this stream's memory */
  uint64_t free_elsewhere;                        /* on other streams */
  uint64_t device_free, device_total, limit;
  char driver_error[128];                         /* empty: no call failed, memory was used up */
} weir_shortage;

/* 1, or 0 and a shortage. Before it fails, it waits for the device without the lock (see may_wait), gives back, stitches and asks the
 * program.
 * A request that can be served without that never waits. */
int weir_device_allocate(weir_device *device, uint64_t bytes, uint64_t stream, weir_allocation *given, weir_shortage *shortage);
/* For a shortage that becomes an out-of-memory error: counts it and records it. */
void weir_device_failed(weir_device *device, const weir_shortage *shortage, uint64_t stream);
/* For an out-of-memory error of another allocator: only counts it. */
void weir_device_count_failure(weir_device *device);
/* 1, or 0 if nothing is live at the address. */
int weir_device_free(weir_device *device, uint64_t address, weir_allocation *freed);
/* The live block that begins at the address. */
int weir_device_find(weir_device *device, uint64_t address, weir_allocation *found);
/* The live block that holds the address. */
int weir_device_find_containing(weir_device *device, uint64_t address, weir_allocation *found);
/* Whether this device has reserved the address, live or not. Takes no lock. */
int weir_device_owns(const weir_device *device, uint64_t address);
/* Work of another stream uses the block. 0 if nothing is live there or host memory is short: the caller must then wait for that
 * stream before it frees the block. */
int weir_device_record_stream(weir_device *device, uint64_t address, uint64_t stream);
/* Whether the program may destroy the stream while its blocks live on; see stream_lasts. */
int weir_device_is_foreign(weir_device *device, uint64_t stream);
/* Waits for the device without the lock, then gives back what was free before. */
void weir_device_empty_cache(weir_device *device);
/* The same although captures have begun, if there are only `pools` of them: open pools, into which no graph is captured. */
void weir_device_give_back(weir_device *device, uint32_t pools);
void weir_device_set_limit(weir_device *device, uint64_t bytes);
/* Memory of this device that the program holds by other means. Limit and gauges count it. */
void weir_device_set_outside(weir_device *device, uint64_t bytes);
/* Graph captures are counted. During a capture no event is touched, nothing is unmapped and nobody waits for the device. If a
 * thread waits for the device, a capture begins after that. */
void weir_device_begin_capture(weir_device *device);
void weir_device_end_capture(weir_device *device);
/* Bytes of the largest request that needs no new memory and no stitch. */
uint64_t weir_device_largest_free(weir_device *device);
/* Runs a function inside the lock of the device, like `changed`: for data that both use. */
void weir_device_locked(weir_device *device, void (*function)(void *context), void *context);
/* Lists the memory behind the live block that holds the address, for another process. Gives the number of pieces, of which `room`
 * are written; the first begins at `start`. 0 if it cannot be shared, and `why` says why in one sentence. */
uint32_t weir_device_share(weir_device *device, uint64_t address, weir_piece *pieces, uint32_t room, uint64_t *start, char *why,
                           size_t why_room);
/* Gauges of the device; the ring has the same. */
weir_gauges weir_device_gauges(weir_device *device);
/* Copies up to `capacity` ranges of addresses, ascending in each region; gives how many there are. Streams are handles here. */
uint32_t weir_device_snapshot(weir_device *device, weir_range *ranges, uint32_t capacity);
/* 0, or the number of the broken invariant. */
uint32_t weir_device_check(weir_device *device, uint32_t level);
int weir_device_is_broken(weir_device *device);

#ifdef __cplusplus
}
#endif

#endif
