/* Weir inside a program that uses a GPU: an engine per GPU on a backend that acts, a limit, and a recording.
 *
 * No CUDA headers, no PyTorch: the PyTorch adapter and the tests' stand-in are both written against this file. Every function may be
 * called from any thread. Nothing here throws, waits for the supervisor, or takes Python's lock. */
#ifndef WEIR_RUNTIME_H
#define WEIR_RUNTIME_H

#include <stddef.h>
#include <stdint.h>

#include "ring.h"
#include "weir_engine.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Backends: the engine's driver, and what else must be known of a device. A backend may be called by several threads
 * at once only in what weir_host_*, weir_cuda_allow_peer, import and drop_import do: weir_device calls the rest from inside its own
 * lock. */

#define WEIR_NO_MEMORY (-2)

/* Memory as another process can have it: bytes of a file that is open in the process that shares it. */
typedef struct weir_piece {
  uint64_t id; /* unlike that of any other memory this process has shared or will */
  uint64_t offset, bytes;
  int32_t file;
  uint32_t zero;
} weir_piece;

typedef struct weir_backend weir_backend;
struct weir_backend {
  /* As the engine's driver, with three differences. Handles are small numbers, used again after release. Create gives
   * WEIR_NO_MEMORY where memory is all that is missing. Unmap does not wait for the device: weir_device has waited. */
  weir_driver driver;
  uint64_t granularity; /* handles are multiples of it */
  /* Which stream of the device a stream number means; before the number is first used. Below 0: no more streams. */
  int32_t (*name_stream)(void *context, uint32_t number, uint64_t handle);
  /* The host waits until all work of the device is over. Below 0 if that is not allowed now (a graph is being captured). */
  int32_t (*synchronize)(void *context);
  int32_t (*memory)(void *context, uint64_t *free_bytes, uint64_t *total_bytes);
  /* The driver's own words for its last failure on this thread; never NULL. */
  const char *(*last_error)(void *context);
  void (*close)(void *context);

  /* Sharing with other processes; NULL where there is none. */
  /* What is mapped in the range, in order: the number of pieces, `room` of which are told, or below 0. The first begins at
   * `start`, perhaps before the range. Files stay open, and are the backend's, until what they are of is released. */
  int32_t (*share)(void *context, uint64_t address, uint64_t bytes, weir_piece *pieces, uint32_t room, uint64_t *start);
  /* Pieces of another process, through files that are open here and stay the caller's, one after the other at a new address;
   * below 0 on failure. This and the next may be called by any thread at any time. */
  int64_t (*import)(void *context, const weir_piece *pieces, uint32_t count);
  /* Waits for the device and takes the memory away again. */
  int32_t (*drop_import)(void *context, uint64_t address);
  /* In the child of a fork: lets go of files that would keep the parent's memory. Calls no driver. */
  void (*forked)(void *context);
};

/* A CUDA device, through libcuda.so.1 loaded at run time. Uses the primary context and makes it current around its calls.
 * NULL if there is none, and `why` (of `room` bytes) says it in one sentence. */
weir_backend *weir_cuda_backend(int device, char *why, size_t room);
/* Memory of this device, now and later, is also accessible to the GPU `peer`. 1, or 0 if the driver refuses; last_error says why. */
int weir_cuda_allow_peer(weir_backend *backend, int peer);
/* Real memory without a GPU (memfd pages): streams are queues whose work is over when weir_host_run lets it run. */
weir_backend *weir_host_backend(uint64_t total_bytes, char *why, size_t room);
/* Passes calls on, except about one in a million times `per_million`, which fail. Owns `inner`. */
weir_backend *weir_faulty_backend(weir_backend *inner, uint32_t per_million, uint64_t seed);

/* Work for the host backend, for tests: fills memory, copies it and checks it in the order of the stream. */
int weir_host_enqueue_fill(weir_backend *backend, uint64_t stream, uint64_t address, uint64_t bytes, uint64_t pattern);
int weir_host_enqueue_check(weir_backend *backend, uint64_t stream, uint64_t address, uint64_t bytes, uint64_t pattern);
/* Lets each stream do up to so many pieces of its work, in an order drawn from the seed. */
void weir_host_run(weir_backend *backend, uint32_t pieces, uint64_t seed);
/* Bytes that checks have found to be wrong. */
uint64_t weir_host_corrupted(weir_backend *backend);

/* ---- Recorder: the ring of this process. */

typedef struct weir_recorder weir_recorder;

/* Opens DIR/<pid>.ring; NULL if it cannot (the disk is full, the folder is gone), and the program goes on without. */
weir_recorder *weir_recorder_open(const char *directory, const char *allocator, const char *torch_version, uint32_t rows);
/* After fork: the child must not write into its parent's ring. Frees nothing of the parent. */
void weir_recorder_forget(weir_recorder *recorder);
/* No more rows, and the reader is told so; levels may still be written, and the recorder stays for those that do. For the end of
 * a process, where nobody knows who still uses it. */
void weir_recorder_finish(weir_recorder *recorder);
void weir_recorder_close(weir_recorder *recorder);
/* The number of a stream or pool of a device, naming it at first sight; -1 when there are too many. */
int32_t weir_recorder_stream(weir_recorder *recorder, int device, uint64_t handle);
int32_t weir_recorder_pool(weir_recorder *recorder, int device, uint64_t first, uint64_t second);
/* The number of a string, interned; 0 when there is no room. */
uint32_t weir_recorder_string(weir_recorder *recorder, const char *text);
/* Adds a row; sets its time if that is 0, and its thread. Drops and counts it when the ring is full. */
void weir_recorder_put(weir_recorder *recorder, weir_event event);
/* Levels that the caller keeps; device below WEIR_RING_DEVICES. */
weir_gauges *weir_recorder_gauges(weir_recorder *recorder, int device);
/* What the supervisor has asked for so far. */
uint32_t weir_recorder_plan_generation(const weir_recorder *recorder);
const char *weir_recorder_directory(const weir_recorder *recorder);

/* ---- Devices: allocation. */

typedef struct weir_device weir_device;

/* What was given or freed. */
typedef struct weir_allocation {
  uint64_t address;
  uint64_t size;      /* of the block */
  uint64_t requested;
  uint64_t stream;    /* handle */
} weir_allocation;

/* What has become of a block: given, freed, or let go of while other streams still use it, and at last completed. */
enum weir_change { WEIR_GIVEN = 1, WEIR_FREED = 2, WEIR_PARKED = 3, WEIR_COMPLETED = 4 };

typedef struct weir_device_options {
  int32_t device;
  int32_t gmlake;            /* preset gmlake instead of weir */
  int32_t lend;              /* memory between streams */
  int32_t fine;              /* small handles: more driver calls, but more of what is free can be joined */
  uint64_t limit;            /* 0: none */
  weir_recorder *recorder;   /* or NULL */
  /* Asks the program for memory of the device that it can do without; 1 if it has given some back. Then the request is tried again,
   * and if that is not enough it is asked once more, with the next attempt, from 0. Called without any lock of ours. */
  int (*reclaim)(void *context, uint64_t bytes, int attempt);
  void *reclaim_context;
  /* Told of every change, in order and inside the lock of the device, with the bytes reserved: it must be quick, and must not
   * call the device. Or NULL. */
  void (*changed)(void *context, enum weir_change change, const weir_allocation *block, uint64_t reserved);
  void *changed_context;
} weir_device_options;

/* Owns the backend from then on. NULL if there is no memory for it, and the backend is still the caller's. */
weir_device *weir_device_new(weir_backend *backend, const weir_device_options *options);
/* Gives back all memory; nothing of the device may be in use any more. */
void weir_device_delete(weir_device *device);

/* Why a request failed. */
typedef struct weir_shortage {
  uint64_t requested, live, allocated, reserved, outside;
  uint64_t free_here, largest_piece, assemblable; /* in this stream's memory */
  uint64_t free_elsewhere;                        /* on other streams */
  uint64_t device_free, device_total, limit;
  char driver_error[128];                         /* empty: nothing failed, memory was used up */
} weir_shortage;

/* 1, or 0 and a shortage. Waits for parked blocks, gives back, stitches and asks the program before it fails. */
int weir_device_allocate(weir_device *device, uint64_t bytes, uint64_t stream, weir_allocation *given, weir_shortage *shortage);
/* After a shortage that nobody else made good: counts it and has it in the recording. The second only counts, what failed elsewhere. */
void weir_device_failed(weir_device *device, const weir_shortage *shortage, uint64_t stream);
void weir_device_count_failure(weir_device *device);
/* 1, or 0 if nothing is live at the address. */
int weir_device_free(weir_device *device, uint64_t address, weir_allocation *freed);
/* What is live exactly there. */
int weir_device_find(weir_device *device, uint64_t address, weir_allocation *found);
/* The live block that holds the address, its first address included; for pointers into blocks. */
int weir_device_find_containing(weir_device *device, uint64_t address, weir_allocation *found);
/* Whether an address is one of ours, live or not; without a lock. */
int weir_device_owns(const weir_device *device, uint64_t address);
/* Work of another stream uses the block. 0 if nothing is live there, or there was no memory for the note: then wait for that
 * stream before the block is freed. */
int weir_device_record_stream(weir_device *device, uint64_t address, uint64_t stream);
/* A stream that is not the program's framework's own, and may be destroyed while blocks of it live on: what it has freed is not lent
 * before the whole device has been waited for. */
void weir_device_set_foreign(weir_device *device, uint64_t stream);
int weir_device_is_foreign(weir_device *device, uint64_t stream);
void weir_device_empty_cache(weir_device *device);
void weir_device_set_limit(weir_device *device, uint64_t bytes);
/* Memory of this device that the program holds by other means, so that the limit and the levels count it. */
void weir_device_set_outside(weir_device *device, uint64_t bytes);
/* Graph captures, counted: while there is one, events are not touched, nothing is unmapped and nobody waits. */
void weir_device_begin_capture(weir_device *device);
void weir_device_end_capture(weir_device *device);
/* Bytes of the largest request that needs no new memory and no stitch. */
uint64_t weir_device_largest_free(weir_device *device);
/* Runs a function inside the lock of the device, as `changed` is: for what the two share. */
void weir_device_locked(weir_device *device, void (*function)(void *context), void *context);
/* The memory behind the live block that holds the address, for another process: the number of pieces, `room` of which are told,
 * the first of which begins at `start`; 0 if it cannot be shared, and `why` says so in one sentence. */
uint32_t weir_device_share(weir_device *device, uint64_t address, weir_piece *pieces, uint32_t room, uint64_t *start, char *why,
                           size_t why_room);
/* A file of another process, by its number there, opened in this one; below 0, and `why`. Where the kernel does not allow that, the
 * other process is asked for it, which has said weir_serve_files with that mark. */
int weir_fetch_file(int64_t process, uint64_t mark, int file, char *why, size_t room);
/* Other processes of this user can have the files of shared pieces from a thread of this process; the first mark counts. */
void weir_serve_files(uint64_t mark);
/* In the child of a fork, which has no such thread. */
void weir_serve_files_forked(void);
/* Levels of the device; also in the ring, if there is one. */
weir_gauges weir_device_gauges(weir_device *device);
/* Sets the peaks to the levels of now. */
void weir_device_reset_peaks(weir_device *device);
/* Copies up to `capacity` ranges of addresses, ascending in each region; gives how many there are. Streams are handles here. */
uint32_t weir_device_snapshot(weir_device *device, weir_range *ranges, uint32_t capacity);
/* 0, or the number of the broken invariant. */
uint32_t weir_device_check(weir_device *device, uint32_t level);
int weir_device_is_broken(weir_device *device);

#ifdef __cplusplus
}
#endif

#endif
