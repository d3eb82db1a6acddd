/* Shared by the files of the CUDA backend: cuda_backend.c is the engine's driver, cuda_properties.c finds which kinds of memory
 * there are, cuda_ipc.c shares memory with other processes. */
#ifndef WEIR_CUDA_BACKEND_H
#define WEIR_CUDA_BACKEND_H

#include <pthread.h>

#include "books.h"
#include "cuda_driver.h"
#include "weir_backend.h"

#define MOST_PEERS 63

typedef struct cuda_backend {
  weir_backend backend;
  const cuda_driver *cuda;
  cu_context context;
  int device;
  cu_memory_properties properties;
  int settled; /* the driver gives memory of these properties */
  pthread_mutex_t mutex; /* for books, access and properties: a peer may be allowed at any time */
  cu_access access[1 + MOST_PEERS];
  size_t access_count;
  weir_books books;
  cu_stream *streams; /* by number */
  uint32_t stream_room;
  cu_event *events; /* by slot; created when first recorded */
  uint32_t event_room;
  uint64_t shared; /* number of handles shared so far */
  weir_map imports; /* address -> bytes: memory of other processes */
} cuda_backend;

/* 0, or -1; the message is kept for last_error. */
int32_t cuda_judged(const cuda_driver *cuda, int result, const char *what);
int32_t cuda_refused(const char *why);
int32_t cuda_synchronize(void *context);

/* Runs `call` in the device's context. `result` is its result, or that of making the context current. */
#define IN_CONTEXT(self, result, call)                                                       \
  do {                                                                                       \
    int mode = CU_CAPTURE_RELAXED;                                                           \
    cu_context popped;                                                                       \
    (result) = (self)->cuda->cuCtxPushCurrent_v2((self)->context);                           \
    if ((result) == CUDA_SUCCESS) {                                                          \
      int exchanged = (self)->cuda->cuThreadExchangeStreamCaptureMode(&mode);                \
      (result) = (self)->cuda->call;                                                         \
      if (exchanged == CUDA_SUCCESS) (self)->cuda->cuThreadExchangeStreamCaptureMode(&mode); \
      (self)->cuda->cuCtxPopCurrent_v2(&popped);                                             \
    }                                                                                        \
  } while (0)

/* cuda_properties.c */
/* Sets the granularity, so that it suits every kind of memory that the device announces. CUDA's answer. */
int cuda_granularity(cuda_backend *self);
/* Finds the best kind of memory that the driver gives and keeps it for all memory. CUDA's answer; unless that is success, nothing
 * has changed. */
int cuda_settle(cuda_backend *self);
/* Whether new memory can be opened to a GPU. CUDA's answer; out of memory if it cannot be known. */
int cuda_try_access(cuda_backend *self, const cu_access *access);

/* cuda_ipc.c */
int32_t cuda_share(void *context, uint64_t address, uint64_t bytes, weir_piece *pieces, uint32_t room, uint64_t *start);
int64_t cuda_import(void *context, const weir_piece *pieces, uint32_t count);
int32_t cuda_drop_import(void *context, uint64_t address);
void cuda_forked(void *context);
/* Closes the file of a shared handle, before the handle is released. */
void cuda_unshare(weir_held *held);

#endif
