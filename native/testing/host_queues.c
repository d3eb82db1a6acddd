/* Streams as queues, run in any order that events allow.
 * A wait names the recording that it waits for. So a slot that is recorded again does not change the wait, as on CUDA. */
#include "host_queues.h"

#include <stdlib.h>
#include <string.h>

host_queue *weir_queue_of(host_queues *all, uint64_t handle) {
  for (size_t index = 0; index < all->count; index++)
    if (all->queues[index].handle == handle) return &all->queues[index];
  if (all->count == all->room) {
    size_t room = all->room ? all->room * 2 : 16;
    host_queue *queues = realloc(all->queues, room * sizeof *queues);
    if (!queues) return NULL;
    all->queues = queues;
    all->room = room;
  }
  all->queues[all->count] = (host_queue){.handle = handle};
  return &all->queues[all->count++];
}

int weir_queue_add(host_queue *queue, host_piece piece) {
  if (queue->first > 0 && queue->first == queue->count) queue->first = queue->count = 0;
  if (queue->count == queue->room) {
    size_t room = queue->room ? queue->room * 2 : 64;
    host_piece *pieces = realloc(queue->pieces, room * sizeof *pieces);
    if (!pieces) return 0;
    queue->pieces = pieces;
    queue->room = room;
  }
  queue->pieces[queue->count++] = piece;
  return 1;
}

int32_t weir_queue_record(host_queues *all, uint64_t handle, uint32_t slot) {
  if (slot >= all->event_room) {
    size_t room = all->event_room ? all->event_room : 256;
    while (room <= slot) room *= 2;
    host_event *events = realloc(all->events, room * sizeof *events);
    if (!events) return -1;
    memset(events + all->event_room, 0, (room - all->event_room) * sizeof *events);
    all->events = events;
    all->event_room = room;
  }
  host_queue *queue = weir_queue_of(all, handle);
  host_piece piece = {.work = HOST_RECORD, .slot = slot, .pattern = all->events[slot].recorded + 1};
  if (!queue || !weir_queue_add(queue, piece)) return -1;
  all->events[slot].recorded++;
  return 0;
}

int32_t weir_queue_query(const host_queues *all, uint32_t slot) {
  if (slot >= all->event_room || all->events[slot].recorded == 0) return -1;
  return all->events[slot].over >= all->events[slot].recorded;
}

int32_t weir_queue_wait(host_queues *all, uint64_t handle, uint32_t slot) {
  if (slot >= all->event_room || all->events[slot].recorded == 0) return -1;
  host_queue *queue = weir_queue_of(all, handle);
  host_piece piece = {.work = HOST_WAIT, .slot = slot, .pattern = all->events[slot].recorded};
  return queue && weir_queue_add(queue, piece) ? 0 : -1;
}

/* Does the next piece of a stream; 0 if there is none, or the stream must wait. */
static int step(host_queues *all, host_queue *queue) {
  if (queue->first == queue->count) return 0;
  const host_piece *piece = &queue->pieces[queue->first];
  switch (piece->work) {
    case HOST_WAIT:
      if (all->events[piece->slot].over < piece->pattern) return 0;
      break;
    case HOST_RECORD:
      if (all->events[piece->slot].over < piece->pattern) all->events[piece->slot].over = piece->pattern;
      break;
    case HOST_FILL:
    case HOST_CHECK: all->corrupted += all->touch(all->context, piece); break;
  }
  queue->first++;
  return 1;
}

void weir_queues_run(host_queues *all, uint32_t pieces, uint64_t seed) {
  for (uint32_t round = 0; round < pieces; round++) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    for (size_t index = 0; index < all->count; index++) {
      /* In each round about half of the streams advance, so one may run far ahead of another. */
      if ((seed >> (33 + index % 16)) & 1) step(all, &all->queues[(index + (seed >> 49)) % all->count]);
    }
  }
}

void weir_queue_run(host_queues *all, uint64_t handle, uint32_t pieces) {
  host_queue *queue = weir_queue_of(all, handle);
  for (uint32_t done = 0; queue && done < pieces && step(all, queue); done++) continue;
}

void weir_queues_finish(host_queues *all) {
  /* Waits name recordings that were enqueued earlier. So some stream can always advance until all are empty. */
  for (int moved = 1; moved;) {
    moved = 0;
    for (size_t index = 0; index < all->count; index++)
      while (step(all, &all->queues[index])) moved = 1;
  }
}

void weir_queues_free(host_queues *all) {
  for (size_t index = 0; index < all->count; index++) free(all->queues[index].pieces);
  free(all->queues);
  free(all->events);
}
