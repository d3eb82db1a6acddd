/* A backend: where the memory of a device comes from. This is the engine's driver, and what else a device must know.
 *
 * No CUDA headers. weir_device calls a backend from inside its lock. These may be called by any thread at any time:
 * synchronize, weir_cuda_allow_peer, import, drop_import. */
#ifndef WEIR_BACKEND_H
#define WEIR_BACKEND_H

#include <stddef.h>
#include <stdint.h>

#include "engine/weir_engine.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Result of create if there is no memory left. Other failures are -1. */
#define WEIR_NO_MEMORY (-2)

/* Memory as another process can have it: bytes of a file that is open in the process that shares it. */
typedef struct weir_piece {
  uint64_t id; /* unique among all memory that this process ever shares */
  uint64_t offset, bytes;
  int32_t file;
  uint32_t zero;
} weir_piece;

typedef struct weir_backend weir_backend;
struct weir_backend {
  /* The engine's driver, with three additions. Handles are small numbers, used again after release. Create tells
   * WEIR_NO_MEMORY from other failures. Unmap does not wait for the device: the engine knows that its work is over. */
  weir_driver driver;
  uint64_t granularity; /* handles are multiples of it */
  /* Tells which stream of the device a stream number means, before the number is first used. Below 0: no more streams. */
  int32_t (*name_stream)(void *context, uint32_t number, uint64_t handle);
  /* The host waits until all work of the device is over. Below 0 if waiting is not allowed now (a graph is being captured). */
  int32_t (*synchronize)(void *context);
  int32_t (*memory)(void *context, uint64_t *free_bytes, uint64_t *total_bytes);
  /* The driver's message for its last failure on this thread; never NULL. */
  const char *(*last_error)(void *context);
  void (*close)(void *context);

  /* Sharing with other processes; NULL if the backend cannot. */
  /* Lists what is mapped in the range, in order. Gives the number of pieces, of which `room` are written, or below 0. The first
   * piece begins at `start`, perhaps before the range. The backend keeps the files open until their memory is released. */
  int32_t (*share)(void *context, uint64_t address, uint64_t bytes, weir_piece *pieces, uint32_t room, uint64_t *start);
  /* Maps pieces of another process side by side at a new address; below 0 on failure. The files are open in this process and
   * stay the caller's. */
  int64_t (*import)(void *context, const weir_piece *pieces, uint32_t count);
  /* Waits for the device and unmaps the import. */
  int32_t (*drop_import)(void *context, uint64_t address);
  /* In the child of a fork: closes files that would keep the parent's memory. Calls no driver. */
  void (*forked)(void *context);
};

/* A CUDA device, through libcuda.so.1 loaded at run time. Uses the primary context and makes it current around its calls.
 * NULL if there is none, and `why` (of `room` bytes) says why in one sentence. */
weir_backend *weir_cuda_backend(int device, char *why, size_t room);
/* Whether the GPU `peer` could access memory of this device. */
int weir_cuda_can_access(weir_backend *backend, int peer);
/* Memory of this device, now and later, is also accessible to the GPU `peer`. 1, or 0 if the driver refuses; last_error says why. */
int weir_cuda_allow_peer(weir_backend *backend, int peer);

/* Opens a file of another process here, by its number there. Below 0 on failure, and `why` says why. If the kernel forbids it,
 * the other process is asked, which must have called weir_serve_files with that mark. */
int weir_fetch_file(int64_t process, uint64_t mark, int file, char *why, size_t room);
/* Starts a thread that hands the files of shared pieces to other processes of this user. Only the first mark counts. */
void weir_serve_files(uint64_t mark);
/* In the child of a fork, which has no such thread. */
void weir_serve_files_forked(void);

#ifdef __cplusplus
}
#endif

#endif
