/* Weir's allocator engine for C: the generated engine behind a table of driver functions.
 *
 * Any number of engines may exist. Each has its own memory and one mutex, so every function may be called from any thread.
 * Driver functions run inside that mutex and must not call the engine they serve. */
#ifndef WEIR_ENGINE_H
#define WEIR_ENGINE_H

#include <stdint.h>

#include "weir_abi.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_engine weir_engine;

/* What the engine asks of the device. Results below 0 mean failure. A call that fails has changed nothing. */
typedef struct weir_driver {
  void *context;
  /* Takes physical memory; gives a handle. */
  int64_t (*create)(void *context, uint64_t bytes);
  int32_t (*release)(void *context, uint64_t handle);
  /* Takes addresses without memory; gives the first, which is never 0. */
  int64_t (*reserve)(void *context, uint64_t bytes);
  int32_t (*unreserve)(void *context, uint64_t address, uint64_t bytes);
  /* The whole handle appears at the address. It cannot be read before access is set. */
  int32_t (*map)(void *context, uint64_t address, uint64_t handle);
  int32_t (*set_access)(void *context, uint64_t address, uint64_t bytes);
  /* The range holds whole mappings. All of them are unmapped, or none. The GPU has finished with them. A driver without events
   * has to wait for that itself. */
  int32_t (*unmap)(void *context, uint64_t address, uint64_t bytes);
  /* Events of streams, in numbered slots. If these are NULL, no stream lends to another. The host never waits here.
   * event_record: the slot marks the work enqueued on the stream so far. event_query: 1 if that work is over, else 0.
   * stream_wait: later work of the stream runs after the work that the slot marks now. */
  int32_t (*event_record)(void *context, uint32_t stream, uint32_t slot);
  int32_t (*event_query)(void *context, uint32_t slot);
  int32_t (*stream_wait)(void *context, uint32_t stream, uint32_t slot);
} weir_driver;

/* An engine on a copy of the driver table, with preset weir; NULL if there is no memory for it. */
weir_engine *weir_engine_new(const weir_driver *driver);
/* Frees the engine. Memory that it still holds from the driver leaks: free all blocks and empty the cache first. */
void weir_engine_delete(weir_engine *engine);

/* Sets a setting (enum weir_setting) before the first request; 1 if accepted. */
int weir_engine_configure(weir_engine *engine, uint32_t setting, uint64_t value);
/* Applies a preset (enum weir_preset) before the first request and after the handle unit is set; 1 if there is such a preset. */
int weir_engine_apply_preset(weir_engine *engine, uint32_t preset);

/* The address of the block; 0 if there is no memory, and weir_engine_explanation says why. */
uint64_t weir_engine_malloc(weir_engine *engine, uint64_t bytes, uint32_t stream, uint32_t pool);
/* Frees a block; its stream may use the memory again at once. 0 if nothing is live at the address. */
int weir_engine_free(weir_engine *engine, uint64_t address);
/* The two halves of free: the program lets go of the block; later no stream uses it any more. */
uint32_t weir_engine_let_go(weir_engine *engine, uint64_t address);
int weir_engine_complete(weir_engine *engine, uint32_t block);

/* Levels after a call. */
typedef struct weir_levels {
  uint64_t allocated, stitches, borrows, waits;
  uint32_t parked;    /* blocks that were freed but that other streams still use */
  uint32_t completed; /* addresses that weir_engine_drain_completed would give */
} weir_levels;

typedef struct weir_block {
  uint64_t address, size, requested;
  uint32_t stream;
  weir_levels levels;
} weir_block;

/* malloc, free and find, which also describe the block. Allocate and find give 1, or 0 with only the levels set. */
int weir_engine_allocate(weir_engine *engine, uint64_t bytes, uint32_t stream, uint32_t pool, weir_block *out);
/* 1: the block is free; 2: it is parked until the streams recorded on it are done with it; 0: nothing is live at the address. */
int weir_engine_deallocate(weir_engine *engine, uint64_t address, weir_block *out);
int weir_engine_find(weir_engine *engine, uint64_t address, weir_block *out);
/* The live block that holds the address. Slow: looks at every range. */
int weir_engine_find_containing(weir_engine *engine, uint64_t address, weir_block *out);
/* Bytes of the largest free range for large requests, on any stream. Slow: looks at every range. */
uint64_t weir_engine_largest_free(weir_engine *engine);
void weir_engine_levels(weir_engine *engine, weir_levels *out);

/* With WEIR_SETTING_QUEUE_COMPLETED: takes the addresses of parked blocks that have completed since, oldest first, and gives
 * their number. Addresses beyond `capacity` are lost, so make room for `levels.completed`. */
uint32_t weir_engine_drain_completed(weir_engine *engine, uint64_t *addresses, uint32_t capacity);

/* Work of another stream uses the block. Once freed, the block stays parked until that work is over; the engine finds out by
 * itself. 0 if nothing is live at the address or the driver has no events: then use let_go and complete. */
int weir_engine_record_stream(weir_engine *engine, uint64_t address, uint32_t stream);
/* A graph capture of the stream begins (1) or ends (0). During a capture nothing is lent and no event is touched. */
void weir_engine_set_capturing(weir_engine *engine, uint32_t stream, int on);

/* Frees are numbered. Read the latest number, wait for the device, then tell the engine that all frees up to that number are
 * over. Frees during the wait have larger numbers. */
uint64_t weir_engine_latest_release(weir_engine *engine);
void weir_engine_streams_idle(weir_engine *engine, uint64_t release);

/* Gives free memory that the GPU has finished with back to the driver, as far as possible. Wait for the device first. */
void weir_engine_empty_cache(weir_engine *engine);

/* Numbers: enum weir_statistic, enum weir_explanation. */
uint64_t weir_engine_statistic(weir_engine *engine, uint32_t index);
uint64_t weir_engine_explanation(weir_engine *engine, uint32_t index);
/* 0, or the number of the broken invariant. Level 3 is the most thorough, 1 the least. */
uint32_t weir_engine_check(weir_engine *engine, uint32_t level);

/* Copies up to `capacity` ranges; gives how many there are. */
uint32_t weir_engine_snapshot(weir_engine *engine, weir_range *ranges, uint32_t capacity);

/* 1 after a defect has stopped the engine. From then on every request fails. */
int weir_engine_is_broken(weir_engine *engine);

/* A plan: the requests of a step, in order, and the offset of each in the memory of the plan (docs/plan-format.md, kind step). */
typedef struct weir_plan_request {
  /* The requested bytes, rounded up to a multiple of WEIR_BLOCK_UNIT. */
  uint64_t size;
  /* The same for all requests of all plans. */
  uint32_t stream;
} weir_plan_request;

/* Installs a plan beside the others. A fifth plan replaces the least recently used one. `offsets` has `turns` entries for each
 * request, multiples of WEIR_BLOCK_UNIT; no request ends above `footprint`. After one whole step that follows the plan, the engine serves
 * its requests at their offsets. Gives the plan's number; 0 if it is refused, and then nothing has changed. */
uint32_t weir_engine_install_plan(weir_engine *engine, const weir_plan_request *requests, uint32_t count, uint32_t turns,
                                  const uint64_t *offsets, uint64_t footprint);
/* Forgets one plan; 0 if there is no plan of that number. */
int weir_engine_forget_plan(weir_engine *engine, uint32_t plan);
/* Forgets all plans. Blocks at planned offsets stay there until they are freed. */
void weir_engine_forget_plans(weir_engine *engine);

#ifdef __cplusplus
}
#endif

#endif
