/* Weir's allocator engine for C: the generated engine behind a table of driver functions.
 *
 * Any number of engines may exist; each has its own memory and one mutex, so every function may be called from any
 * thread. Driver functions run inside that mutex and must not call the engine they serve. */
#ifndef WEIR_ENGINE_H
#define WEIR_ENGINE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_engine weir_engine;

/* What the engine asks of the device. Results below 0 mean failure; a call that fails has changed nothing. */
typedef struct weir_driver {
  void *context;
  /* Physical memory: gives a handle. */
  int64_t (*create)(void *context, uint64_t bytes);
  int32_t (*release)(void *context, uint64_t handle);
  /* Addresses without memory: gives the start, which is never 0. */
  int64_t (*reserve)(void *context, uint64_t bytes);
  int32_t (*unreserve)(void *context, uint64_t address, uint64_t bytes);
  /* The whole of a handle appears at the address; unreadable until access is set. */
  int32_t (*map)(void *context, uint64_t address, uint64_t handle);
  int32_t (*set_access)(void *context, uint64_t address, uint64_t bytes);
  /* Whole mappings, all of those in the range or none. */
  int32_t (*unmap)(void *context, uint64_t address, uint64_t bytes);
  /* Events of streams, in numbered slots; NULL where there are none, and then no stream lends to another.
   * Record marks what the stream has been given so far; query gives 1 when that is over, 0 before; after wait, work
   * given to the stream comes after what the slot marks now. The host never waits. */
  int32_t (*event_record)(void *context, uint32_t stream, uint32_t slot);
  int32_t (*event_query)(void *context, uint32_t slot);
  int32_t (*stream_wait)(void *context, uint32_t stream, uint32_t slot);
} weir_driver;

/* An engine on a copy of the driver table, with preset weir; NULL if there is no memory for it. */
weir_engine *weir_engine_new(const weir_driver *driver);
/* Forgets the engine. What it still holds from the driver stays held: free everything and empty the cache first. */
void weir_engine_delete(weir_engine *engine);

/* Settings by number, as in engine/abi/settings.ts, before the first request; 1 if accepted. */
int weir_engine_configure(weir_engine *engine, uint32_t setting, uint64_t value);

/* The address of memory for the request; 0 if there is none, and weir_engine_explanation says why. */
uint64_t weir_engine_malloc(weir_engine *engine, uint64_t bytes, uint32_t stream, uint32_t pool);
/* Frees what malloc gave, for use again at once on its stream; 0 if nothing is live at the address. */
int weir_engine_free(weir_engine *engine, uint64_t address);
/* The two halves of free: the program lets go, and later nobody uses the memory any more. */
uint32_t weir_engine_let_go(weir_engine *engine, uint64_t address);
int weir_engine_complete(weir_engine *engine, uint32_t block);

/* Levels after a call; numbers as in engine/abi/statistics.ts. */
typedef struct weir_levels {
  uint64_t reserved, allocated, stitches, retries, borrows, waits;
  uint32_t parked;    /* blocks let go of that other streams have not passed yet */
  uint32_t completed; /* addresses that weir_engine_drain_completed would give */
} weir_levels;

typedef struct weir_block {
  uint64_t address, size, requested;
  uint32_t stream;
  weir_levels levels;
} weir_block;

/* malloc, free and the question what is live at an address, each with all that is to be known of the block in one call.
 * Allocate and find give 1, or 0 with nothing but the levels set. */
int weir_engine_allocate(weir_engine *engine, uint64_t bytes, uint32_t stream, uint32_t pool, weir_block *out);
/* 1: its memory is free again; 2: parked until the streams recorded on it have passed; 0: nothing is live at the address. */
int weir_engine_deallocate(weir_engine *engine, uint64_t address, weir_block *out);
int weir_engine_find(weir_engine *engine, uint64_t address, weir_block *out);
/* The live block that the address lies in. Looks at every range: not for every day. */
int weir_engine_find_containing(weir_engine *engine, uint64_t address, weir_block *out);
/* Bytes of the largest free range of large requests, on any stream; looks at every range. */
uint64_t weir_engine_largest_free(weir_engine *engine);
void weir_engine_levels(weir_engine *engine, weir_levels *out);

/* With setting 35 (queueCompleted): takes up to `capacity` addresses of parked blocks that have completed since, oldest
 * first, and gives how many; those that do not fit are forgotten, so make room for `levels.completed`. */
uint32_t weir_engine_drain_completed(weir_engine *engine, uint64_t *addresses, uint32_t capacity);

/* Work of another stream uses what malloc gave: once freed, its memory is free only after that work, and the engine finds
 * out by itself. 0 if nothing is live at the address, or the driver has no events: then use let_go and complete. */
int weir_engine_record_stream(weir_engine *engine, uint64_t address, uint32_t stream);
/* A stream begins (1) or ends (0) being captured into a graph: until then nothing is lent and no event is touched. */
int weir_engine_set_capturing(weir_engine *engine, uint32_t stream, int on);

/* The host has waited for all streams: whatever they were given is over. */
void weir_engine_streams_idle(weir_engine *engine);

/* Gives back to the driver all that can be. */
void weir_engine_empty_cache(weir_engine *engine);

/* Numbers as in engine/abi/statistics.ts. */
uint64_t weir_engine_statistic(weir_engine *engine, uint32_t index);
uint64_t weir_engine_explanation(weir_engine *engine, uint32_t index);
/* 0, or the number of the broken invariant; level 1 to 3, ever more thorough. */
uint32_t weir_engine_check(weir_engine *engine, uint32_t level);

/* One run of addresses of an arena. */
typedef struct weir_range {
  double address, size, requested, given, state, stream, pool, small;
} weir_range;
/* Copies up to `capacity` ranges; gives how many there are. */
uint32_t weir_engine_snapshot(weir_engine *engine, weir_range *ranges, uint32_t capacity);

/* 1 once a defect has stopped the engine: from then on every request fails and nothing else happens. */
int weir_engine_is_broken(weir_engine *engine);

/* Plans: what a step's requests are, in order, and where each lies in the step's memory (docs/plan-format.md, kind step). */
typedef struct weir_plan_request {
  /* A multiple of 512: what is asked for, rounded up. */
  uint64_t size;
  /* The same for all requests of all plans. */
  uint32_t stream;
} weir_plan_request;

/* Installs a plan beside those there are (of more than four the one used longest ago goes). `offsets` has `turns` entries for
 * each request, multiples of 512; no request ends above `footprint`. Requests that follow it are served at their places once a
 * whole step was seen to follow it. Gives the plan's number; 0 if it is refused, and then nothing has changed. */
uint32_t weir_engine_install_plan(weir_engine *engine, const weir_plan_request *requests, uint32_t count, uint32_t turns,
                                  const uint64_t *offsets, uint64_t footprint);
/* Forgets one plan; 0 if there is none of that number. */
int weir_engine_forget_plan(weir_engine *engine, uint32_t plan);
/* Forgets all plans. What lies at planned places stays there until it is freed. */
void weir_engine_forget_plans(weir_engine *engine);

#ifdef __cplusplus
}
#endif

#endif
