/* Streams of the host backend: queues of work that runs only when a test says so. So memory that is given out too early shows.
 * Events are positions in queues. Not safe for several threads at once: the backend locks. */
#ifndef WEIR_HOST_QUEUES_H
#define WEIR_HOST_QUEUES_H

#include <stddef.h>
#include <stdint.h>

enum host_work { HOST_FILL, HOST_CHECK, HOST_RECORD, HOST_WAIT };

typedef struct host_piece {
  enum host_work work;
  uint32_t slot;
  uint64_t address, bytes;
  uint64_t pattern; /* of an event: which recording of its slot */
} host_piece;

typedef struct host_queue {
  uint64_t handle;
  host_piece *pieces; /* those from `first` to before `count` are still to be done */
  size_t first, count, room;
} host_queue;

typedef struct host_event {
  uint64_t recorded, over; /* recorded: number of recordings of the slot; over: number of the latest whose work is over */
} host_event;

typedef struct host_queues {
  host_queue *queues;
  size_t count, room;
  host_event *events; /* by slot */
  size_t event_room;
  /* Does a fill or a check; gives the number of wrong bytes. */
  uint64_t (*touch)(void *context, const host_piece *piece);
  void *context;
  uint64_t corrupted;
} host_queues;

/* The queue of a stream, created at its first use; NULL if there is no memory. */
host_queue *weir_queue_of(host_queues *all, uint64_t handle);
/* 0 if there is no memory. */
int weir_queue_add(host_queue *queue, host_piece piece);
/* As in weir_driver. Below 0 if there is no memory or the slot was never recorded. */
int32_t weir_queue_record(host_queues *all, uint64_t handle, uint32_t slot);
int32_t weir_queue_query(const host_queues *all, uint32_t slot);
int32_t weir_queue_wait(host_queues *all, uint64_t handle, uint32_t slot);
/* Runs up to `pieces` pieces of each stream. The seed decides the order among streams. */
void weir_queues_run(host_queues *all, uint32_t pieces, uint64_t seed);
/* Runs up to `pieces` pieces of one stream. */
void weir_queue_run(host_queues *all, uint64_t handle, uint32_t pieces);
void weir_queues_finish(host_queues *all);
void weir_queues_free(host_queues *all);

#endif
