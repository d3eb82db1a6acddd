/* A GPU of this process: requests and frees, gauges, limits, captures, and what is tried when memory is short.
 * One lock per device surrounds every call of its engine. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device.h"
#include "engine/caller.h"

/* The engine is told of captures under this stream number. It makes no difference to it which stream is captured. */
#define CAPTURE_STREAM 0

static int configure(weir_device *device, const weir_device_options *options) {
  weir_engine *engine = device->engine;
  uint64_t unit = device->backend->granularity;
  uint64_t total = device->gauges->total;
  uint64_t region = ((total * WEIR_REGION_EIGHTHS + 7) / 8 + unit - 1) / unit * unit;
  uint32_t preset = options->gmlake    ? WEIR_PRESET_GMLAKE
                    : options->planned ? WEIR_PRESET_PLANNED
                    : options->fine    ? WEIR_PRESET_FINE
                                       : WEIR_PRESET_WEIR;
  /* The unit comes first: presets are rounded up to it. */
  int right = weir_engine_configure(engine, WEIR_SETTING_HANDLE_UNIT, unit) && weir_engine_apply_preset(engine, preset);
  if (total != 0) right &= weir_engine_configure(engine, WEIR_SETTING_REGION_BYTES, region);
  if (!options->lend) right &= weir_engine_configure(engine, WEIR_SETTING_LEND, 0);
  right &= weir_engine_configure(engine, WEIR_SETTING_QUEUE_COMPLETED, device->recorder != NULL || options->changed != NULL);
  return right;
}

static void discard(weir_device *device) {
  if (device->engine) weir_engine_delete(device->engine);
  device_owned_close(device);
  weir_map_free(&device->stream_numbers);
  weir_map_free(&device->parked);
  weir_map_free(&device->parked_sizes);
  free(device->handle_bytes);
  free(device->streams);
  free(device->drained);
  free(device);
}

weir_device *weir_device_new(weir_backend *backend, const weir_device_options *options) {
  weir_device *device = calloc(1, sizeof *device);
  if (!device) return NULL;
  device->backend = backend;
  device->options = *options;
  device->freeing = -1;
  device->recorder = options->device >= 0 && options->device < WEIR_RING_DEVICES ? options->recorder : NULL;
  device->gauges = device->recorder ? weir_recorder_gauges(device->recorder, options->device) : &device->own_gauges;
  /* An earlier device of this number may have left its gauges. */
  *device->gauges = (weir_gauges){0};
  uint64_t available;
  if (backend->memory(backend->driver.context, &available, &device->gauges->total) < 0) device->gauges->total = 0;
  weir_driver driver = device_driver(device);
  device->engine = weir_engine_new(&driver);
  if (!device->engine || !device_owned_open(device) || !configure(device, options)) {
    discard(device);
    return NULL;
  }
  engine_leave_locking_to_caller(device->engine);
  if (device->recorder) device->pool = weir_recorder_pool(device->recorder, options->device, 0, 0);
  /* The default stream comes first in a recording. If this fails, the stream is numbered at its first use. */
  device_number_of(device, 0);
  device->gauges->in_use = 1;
  weir_device_set_limit(device, options->limit);
  return device;
}

void weir_device_delete(weir_device *device) {
  if (!device) return;
  device_lock(&device->lock);
  if (device->has_plans) device_count_planned(device);
  device_wait(device);
  weir_engine_empty_cache(device->engine);
  device_rows_changed(device, 0);
  device_unlock(&device->lock);
  weir_backend *backend = device->backend;
  discard(device);
  backend->close(backend->driver.context);
}

/* Copies the engine's levels to the gauges and writes rows for what else has changed. */
static void follow(weir_device *device, const weir_levels *levels) {
  weir_gauges *gauges = device->gauges;
  gauges->allocated = levels->allocated;
  gauges->stitches = levels->stitches;
  gauges->borrows = levels->borrows;
  gauges->waits = levels->waits;
  device_rows_changed(device, levels->completed);
}

/* A broken engine has no levels: the gauges stay. */
static void follow_now(weir_device *device) {
  weir_levels levels;
  if (weir_engine_is_broken(device->engine)) return;
  weir_engine_levels(device->engine, &levels);
  follow(device, &levels);
}

static void tell(const weir_device *device, const weir_block *block, weir_allocation *out) {
  if (out) *out = device_told(device, block);
}

static void note_shortage(weir_device *device, uint64_t bytes, weir_shortage *shortage) {
  *shortage = (weir_shortage){
      .requested = bytes,
      .live = device->gauges->live,
      .allocated = device->gauges->allocated,
      .reserved = device->gauges->reserved,
      .outside = device->gauges->outside,
      .free_here = weir_engine_explanation(device->engine, WEIR_EXPLAINED_FREE),
      .largest_piece = weir_engine_explanation(device->engine, WEIR_EXPLAINED_LARGEST_FREE),
      .assemblable = weir_engine_explanation(device->engine, WEIR_EXPLAINED_ASSEMBLABLE),
      .free_elsewhere = weir_engine_explanation(device->engine, WEIR_EXPLAINED_FREE_ELSEWHERE),
      .limit = device->limit,
  };
}

static int serve(weir_device *device, uint64_t bytes, uint32_t stream, weir_block *block) {
  device->asked = bytes;
  device->prospect = NOT_ASKED;
  return weir_engine_allocate(device->engine, bytes, stream, 0, block);
}

static int may_wait(const weir_device *device) {
  const weir_device_options *options = &device->options;
  return !options->may_wait || options->may_wait(options->may_wait_context);
}

/* Waits for the device; 1 if another attempt may help. Without the lock, requests of other threads overwrite driver_error. */
static int wait_in_shortage(weir_device *device, weir_shortage *shortage) {
  if (!may_wait(device)) return 0;
  memcpy(shortage->driver_error, device->driver_error, sizeof shortage->driver_error);
  int32_t waited = device_wait(device);
  memcpy(device->driver_error, shortage->driver_error, sizeof shortage->driver_error);
  return waited > 0;
}

/* Tries ever harder means after the engine has failed. Releases the lock while it waits for the device or asks the program. */
static int try_harder(weir_device *device, uint64_t bytes, uint32_t stream, weir_block *block, weir_shortage *shortage) {
  int given = 0;
  /* The shortage describes the first failure. Later attempts give memory back, which changes the figures. */
  note_shortage(device, bytes, shortage);
  /* A driver call that failed for another reason than memory may succeed the next time. The engine has undone its work. */
  for (int chances = 3; !given && chances > 0 && device->driver_error[0]; chances--) {
    device->driver_error[0] = 0;
    given = serve(device, bytes, stream, block);
  }
  if (given) return 1;
  /* After a wait all that was free before it can be lent, unmapped and given back. */
  if (wait_in_shortage(device, shortage)) given = serve(device, bytes, stream, block);
  for (int attempt = 0; !given && device->options.reclaim; attempt++) {
    /* Without the lock, requests of other threads overwrite driver_error. */
    memcpy(shortage->driver_error, device->driver_error, sizeof shortage->driver_error);
    device_unlock(&device->lock);
    int reclaimed = device->options.reclaim(device->options.reclaim_context, bytes, attempt);
    device_lock(&device->lock);
    memcpy(device->driver_error, shortage->driver_error, sizeof shortage->driver_error);
    if (!reclaimed) break;
    given = serve(device, bytes, stream, block);
    if (!given && wait_in_shortage(device, shortage)) given = serve(device, bytes, stream, block);
  }
  return given;
}

static void explain(weir_device *device, weir_shortage *shortage) {
  weir_gauges *gauges = device->gauges;
  const weir_backend *backend = device->backend;
  gauges->largest_free = shortage->largest_piece;
  if (backend->memory(backend->driver.context, &shortage->device_free, &shortage->device_total) < 0) shortage->device_total = gauges->total;
  if (weir_engine_is_broken(device->engine)) {
    snprintf(device->driver_error, sizeof device->driver_error, "the allocator has stopped after a defect of its own");
  } else if (weir_engine_explanation(device->engine, WEIR_EXPLAINED_FAILED_CALL) == WEIR_DRIVER_CALL_OWN_MEMORY) {
    snprintf(device->driver_error, sizeof device->driver_error, "the allocator's own memory is used up");
  }
  memcpy(shortage->driver_error, device->driver_error, sizeof shortage->driver_error);
}

int weir_device_allocate(weir_device *device, uint64_t bytes, uint64_t stream, weir_allocation *given, weir_shortage *shortage) {
  weir_block block = {0};
  weir_shortage unwanted;
  int done = 0;
  if (device->recorder && weir_recorder_plan_generation(device->recorder) != __atomic_load_n(&device->plan_seen, __ATOMIC_RELAXED)) {
    device_take_plans(device);
  }
  device_lock(&device->lock);
  weir_gauges *gauges = device->gauges;
  device->driver_error[0] = 0;
  int64_t number = device_number_of(device, stream);
  if (number >= 0) done = serve(device, bytes, (uint32_t)number, &block);
  if (!done) {
    if (!shortage) shortage = &unwanted;
    if (number >= 0) {
      if (may_wait(device)) gauges->retries++;
      done = try_harder(device, bytes, (uint32_t)number, &block, shortage);
    } else {
      *shortage = (weir_shortage){.requested = bytes};
      snprintf(device->driver_error, sizeof device->driver_error, "the stream cannot be used");
    }
  }
  /* Other threads may have changed the levels since the last attempt failed. */
  if (done) follow(device, &block.levels);
  else follow_now(device);
  if (done) {
    gauges->live += device_rounded(bytes);
    if (gauges->live > gauges->peak_live) gauges->peak_live = gauges->live;
    if (gauges->allocated > gauges->peak_allocated) gauges->peak_allocated = gauges->allocated;
    gauges->allocations++;
    device_row(device, (weir_event){.kind = WEIR_ALLOC, .address = block.address, .size = bytes}, block.stream);
    weir_allocation told = device_told(device, &block);
    if (device->options.changed) device->options.changed(device->options.changed_context, WEIR_GIVEN, &told, gauges->reserved);
    if (given) *given = told;
    if (device->has_plans && --device->plan_countdown == 0) device_count_planned(device);
  } else {
    explain(device, shortage);
  }
  device_unlock(&device->lock);
  return done;
}

int weir_device_free(weir_device *device, uint64_t address, weir_allocation *freed) {
  weir_block block;
  device_lock(&device->lock);
  if (device->foreign_count > 0 && weir_engine_find(device->engine, address, &block)) device->freeing = block.stream;
  int done = weir_engine_deallocate(device->engine, address, &block);
  device->freeing = -1;
  if (done) {
    device->gauges->live -= device_rounded(block.requested);
    device->gauges->frees++;
    device_let_go(device, &block, done == WEIR_FREE_RESULT_PARKED);
    follow(device, &block.levels);
    tell(device, &block, freed);
  }
  device_unlock(&device->lock);
  return done != 0;
}

int weir_device_find(weir_device *device, uint64_t address, weir_allocation *found) {
  weir_block block;
  device_lock(&device->lock);
  int there = weir_engine_find(device->engine, address, &block);
  if (there) tell(device, &block, found);
  device_unlock(&device->lock);
  return there;
}

int weir_device_find_containing(weir_device *device, uint64_t address, weir_allocation *found) {
  weir_block block;
  device_lock(&device->lock);
  int there = weir_engine_find(device->engine, address, &block) || weir_engine_find_containing(device->engine, address, &block);
  if (there) tell(device, &block, found);
  device_unlock(&device->lock);
  return there;
}

int weir_device_record_stream(weir_device *device, uint64_t address, uint64_t stream) {
  weir_block block;
  device_lock(&device->lock);
  int64_t number = device_number_of(device, stream);
  int done = number >= 0 && weir_engine_record_stream(device->engine, address, (uint32_t)number);
  if (done && device->recorder && weir_engine_find(device->engine, address, &block)) {
    weir_event row = {.kind = WEIR_RECORD_STREAM, .fields = 1, .address = address, .size = block.requested};
    row.detail = device->streams[number].recorded;
    device_row(device, row, block.stream);
  }
  device_unlock(&device->lock);
  return done;
}

static void empty_cache(weir_device *device) {
  device_wait(device);
  weir_engine_empty_cache(device->engine);
  device_row(device, (weir_event){.kind = WEIR_EMPTY_CACHE}, 0);
  follow_now(device);
}

void weir_device_empty_cache(weir_device *device) {
  device_lock(&device->lock);
  empty_cache(device);
  device_unlock(&device->lock);
}

void weir_device_give_back(weir_device *device, uint32_t pools) {
  device_lock(&device->lock);
  if (device->captures + device->lifted <= pools) {
    if (device->captures > 0) weir_engine_set_capturing(device->engine, CAPTURE_STREAM, 0);
    device->lifted += device->captures;
    device->captures = 0;
    empty_cache(device);
    /* Some may have ended meanwhile. None has begun: that waits for us. */
    device->captures += device->lifted;
    device->lifted = 0;
    if (device->captures > 0) weir_engine_set_capturing(device->engine, CAPTURE_STREAM, 1);
  }
  device_unlock(&device->lock);
}

void weir_device_set_limit(weir_device *device, uint64_t bytes) {
  device_lock(&device->lock);
  int changed = device->limit != bytes;
  device->limit = bytes;
  device->gauges->limit = bytes;
  if (changed) device_row(device, (weir_event){.kind = WEIR_LIMIT, .size = bytes}, 0);
  device_unlock(&device->lock);
}

void weir_device_set_outside(weir_device *device, uint64_t bytes) {
  device_lock(&device->lock);
  device->gauges->outside = bytes;
  device_count_reserved(device);
  device_rows_changed(device, 0);
  device_unlock(&device->lock);
}

void weir_device_begin_capture(weir_device *device) {
  device_lock(&device->lock);
  device_await_waiters(device);
  if (device->captures++ == 0) weir_engine_set_capturing(device->engine, CAPTURE_STREAM, 1);
  device_unlock(&device->lock);
}

void weir_device_end_capture(weir_device *device) {
  device_lock(&device->lock);
  if (device->lifted > 0) device->lifted--;
  else if (device->captures > 0 && --device->captures == 0) weir_engine_set_capturing(device->engine, CAPTURE_STREAM, 0);
  device_unlock(&device->lock);
}

uint64_t weir_device_largest_free(weir_device *device) {
  device_lock(&device->lock);
  uint64_t largest = weir_engine_largest_free(device->engine);
  device_unlock(&device->lock);
  return largest;
}

weir_gauges weir_device_gauges(weir_device *device) {
  device_lock(&device->lock);
  if (device->has_plans) device_count_planned(device);
  weir_gauges gauges = *device->gauges;
  device_unlock(&device->lock);
  return gauges;
}

void weir_device_locked(weir_device *device, void (*function)(void *context), void *context) {
  device_lock(&device->lock);
  function(context);
  device_unlock(&device->lock);
}

uint32_t weir_device_snapshot(weir_device *device, weir_range *ranges, uint32_t capacity) {
  device_lock(&device->lock);
  uint32_t count = weir_engine_snapshot(device->engine, ranges, capacity);
  for (uint32_t index = 0; index < count && index < capacity; index++) {
    uint32_t number = (uint32_t)ranges[index].stream;
    if (number < device->stream_count) ranges[index].stream = (double)device->streams[number].handle;
  }
  device_unlock(&device->lock);
  return count;
}

uint32_t weir_device_check(weir_device *device, uint32_t level) {
  device_lock(&device->lock);
  uint32_t broken = weir_engine_check(device->engine, level);
  device_unlock(&device->lock);
  return broken;
}

int weir_device_is_broken(weir_device *device) {
  device_lock(&device->lock);
  int broken = weir_engine_is_broken(device->engine);
  device_unlock(&device->lock);
  return broken;
}
