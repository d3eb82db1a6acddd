/* Streams by small numbers, and the rows of the recording, which number streams in their own way.
 * Rows are written inside the device's lock. So a block's free comes before its memory is given out again. */
#include <stdlib.h>

#include "device.h"

/* CUDA names the default stream 0, or 1 where its other meaning is to be excluded. */
#define DEFAULT_STREAMS 2

static int lasts(const weir_device *device, uint64_t handle) {
  const weir_device_options *options = &device->options;
  return handle < DEFAULT_STREAMS || (options->stream_lasts && options->stream_lasts(options->stream_lasts_context, handle));
}

static int64_t name_stream(weir_device *device, uint64_t handle) {
  uint32_t number = device->stream_count;
  if (handle == UINT64_MAX || !weir_map_ensure(&device->stream_numbers, 1)) return -1;
  if (number == device->stream_room) {
    uint32_t room = device->stream_room ? device->stream_room * 2 : 64;
    device_stream *streams = realloc(device->streams, room * sizeof *streams);
    if (!streams) return -1;
    device->streams = streams;
    device->stream_room = room;
  }
  if (device->backend->name_stream(device->backend->driver.context, number, handle) < 0) return -1;
  int32_t recorded = device->recorder ? weir_recorder_stream(device->recorder, device->options.device, handle) : 0;
  /* A recording has room for a limited number of streams. Further ones appear as the default stream. */
  device->streams[number] = (device_stream){handle, recorded < 0 ? 0 : recorded, !lasts(device, handle)};
  device->foreign_count += (uint32_t)device->streams[number].foreign;
  weir_map_put(&device->stream_numbers, handle + 1, number, 0);
  device->stream_count++;
  return number;
}

int64_t device_number_of(weir_device *device, uint64_t handle) {
  if (handle == device->last_handle && device->stream_count > 0) return device->last_number;
  const weir_entry *entry = weir_map_find(&device->stream_numbers, handle + 1);
  int64_t number = entry ? (int64_t)entry->value : name_stream(device, handle);
  if (number >= 0) {
    device->last_handle = handle;
    device->last_number = (uint32_t)number;
  }
  return number;
}

int weir_device_is_foreign(weir_device *device, uint64_t stream) {
  device_lock(&device->lock);
  int64_t number = device_number_of(device, stream);
  /* Without room to name it, nothing is known of the stream. */
  int foreign = number < 0 || device->streams[number].foreign;
  device_unlock(&device->lock);
  return foreign;
}

int device_may_be_gone(const weir_device *device, uint32_t stream) {
  if (device->foreign_count == 0 || stream >= device->stream_count || !device->streams[stream].foreign) return 0;
  /* A stream that was recorded on a block still exists when the block is freed. PyTorch relies on that, too. */
  return device->freeing < 0 || device->freeing == stream;
}

static weir_event completed_event(const weir_device *device, weir_event event, uint32_t stream) {
  event.device = (uint16_t)device->options.device;
  event.stream = stream < device->stream_count ? device->streams[stream].recorded : 0;
  event.pool = device->pool;
  event.stack = -1;
  return event;
}

void device_row(weir_device *device, weir_event event, uint32_t stream) {
  if (!device->recorder) return;
  event = completed_event(device, event, stream);
  recorder_put_rows(device->recorder, &event, 1);
}

weir_allocation device_told(const weir_device *device, const weir_block *block) {
  weir_allocation told = {block->address, block->size, block->requested, 0};
  if (block->stream < device->stream_count) told.stream = device->streams[block->stream].handle;
  return told;
}

static void say(weir_device *device, enum weir_change change, const weir_block *block) {
  if (!device->options.changed) return;
  weir_allocation told = device_told(device, block);
  device->options.changed(device->options.changed_context, change, &told, device->gauges->reserved);
}

void device_let_go(weir_device *device, const weir_block *block, int parked) {
  /* Without host memory to remember it, the block is reported as complete: too early, but reported. */
  parked = parked && weir_map_ensure(&device->parked, 1) && weir_map_ensure(&device->parked_sizes, 1);
  if (device->recorder) {
    weir_event rows[2];
    rows[0] = completed_event(device, (weir_event){.kind = WEIR_FREE_REQUESTED, .address = block->address, .size = block->requested},
                              block->stream);
    rows[1] = rows[0];
    rows[1].kind = WEIR_FREE_COMPLETED;
    recorder_put_rows(device->recorder, rows, parked ? 1 : 2);
  }
  if (parked) {
    weir_map_put(&device->parked, block->address, block->requested, block->stream);
    weir_map_put(&device->parked_sizes, block->address, block->size, 0);
  }
  say(device, parked ? WEIR_PARKED : WEIR_FREED, block);
}

static void drain_completed(weir_device *device, uint32_t completed) {
  if (completed > device->drained_room) {
    uint64_t *grown = realloc(device->drained, completed * sizeof *grown);
    if (grown) device->drained = grown;
    if (grown) device->drained_room = completed;
  }
  uint32_t room = completed < device->drained_room ? completed : (uint32_t)device->drained_room;
  uint32_t count = weir_engine_drain_completed(device->engine, device->drained, room);
  for (uint32_t index = 0; index < count; index++) {
    const weir_entry *entry = weir_map_find(&device->parked, device->drained[index]);
    const weir_entry *size = weir_map_find(&device->parked_sizes, device->drained[index]);
    if (!entry || !size) continue;
    weir_block block = {.address = entry->address, .size = size->value, .requested = entry->value, .stream = (uint32_t)entry->other};
    weir_map_remove(&device->parked, block.address);
    weir_map_remove(&device->parked_sizes, block.address);
    device_row(device, (weir_event){.kind = WEIR_FREE_COMPLETED, .address = block.address, .size = block.requested}, block.stream);
    say(device, WEIR_COMPLETED, &block);
  }
}

void device_rows_changed(weir_device *device, uint32_t completed) {
  if (completed > 0) drain_completed(device, completed);
  if (!device->recorder || device->recorded_reserved == device->gauges->reserved) return;
  device->recorded_reserved = device->gauges->reserved;
  device_row(device, (weir_event){.kind = WEIR_RESERVED, .size = device->gauges->reserved}, 0);
}

void weir_device_failed(weir_device *device, const weir_shortage *shortage, uint64_t stream) {
  device_lock(&device->lock);
  int64_t number = device_number_of(device, stream);
  device->gauges->ooms++;
  device_row(device, (weir_event){.kind = WEIR_OOM, .address = shortage->device_free, .size = device_rounded(shortage->requested)},
             number < 0 ? 0 : (uint32_t)number);
  device_unlock(&device->lock);
}

void weir_device_count_failure(weir_device *device) {
  device_lock(&device->lock);
  device->gauges->ooms++;
  device_unlock(&device->lock);
}
