/* The ring: the recording of a running process, as a file that the process maps and writes and its supervisor reads.
 *
 * One file per process, DIR/<pid>.ring, little-endian. The process never waits for its reader: rows that do not fit are dropped
 * and counted. The file outlives the process, so a killed process loses no row. src/run/rings/ring-layout.ts has the same
 * layout; test/run compares the two. */
#ifndef WEIR_RING_H
#define WEIR_RING_H

#include <stdint.h>

#define WEIR_RING_MAGIC "WEIRRING"
#define WEIR_RING_VERSION 1u
#define WEIR_RING_DEVICES 16
#define WEIR_RING_STREAMS 240
#define WEIR_RING_POOLS 240
#define WEIR_RING_STRING_BYTES (256u << 10)

enum weir_ring_state { WEIR_RING_ACTIVE = 1, WEIR_RING_CLOSED = 2 };

/* Gauges of one GPU, kept up to date by the process. In bytes unless said otherwise. They do not all change at the same moment. */
typedef struct weir_gauges {
  uint64_t in_use;           /* 1 once the process has used this GPU */
  uint64_t total;            /* memory of the GPU */
  uint64_t limit;            /* the most the process may reserve; 0: no limit */
  uint64_t live;             /* requests, rounded up to 512 */
  uint64_t peak_live;
  uint64_t allocated;        /* blocks given out */
  uint64_t peak_allocated;
  uint64_t reserved;         /* taken from the device, private pools included */
  uint64_t peak_reserved;
  uint64_t outside;          /* the part of reserved that PyTorch's own allocator holds for private pools */
  uint64_t allocations;      /* count */
  uint64_t frees;            /* count */
  uint64_t ooms;             /* count */
  uint64_t retries;          /* count */
  uint64_t driver_calls;     /* count */
  uint64_t driver_ns;        /* time inside the driver's memory calls */
  uint64_t waits;            /* count: waits of streams for memory lent to them */
  uint64_t borrows;          /* count: requests served with memory of another stream */
  uint64_t stitches;         /* count */
  uint64_t largest_free;     /* updated only at failures */
  uint64_t planned_hits;     /* count: requests served at their planned offset */
  uint64_t planned_misses;   /* count: requests that a plan in use did not serve */
  uint64_t swapped_out;      /* bytes copied to the host */
  uint64_t swapped_in;
  uint64_t swap_stalls;      /* count */
  uint64_t swap_stall_ns;
  uint64_t driver_failures;  /* count: driver calls that failed */
  uint64_t plans;            /* count: plans installed */
  uint64_t plans_refused;    /* count */
  uint64_t steps;            /* training steps that have ended, count; 0 where nobody counts them */
  uint64_t swap_settled;     /* 1 once swapping does the same in every step */
  uint64_t reserved_for_later;
} weir_gauges; /* 256 bytes */

typedef struct weir_ring_header {
  char magic[8];
  uint32_t version;
  uint32_t bytes;            /* of the file */
  uint32_t strings_at;       /* strings one after the other, each a u32 length and its bytes; the first is number 1 */
  uint32_t rows_at;
  uint32_t capacity;         /* rows, a power of two */
  uint32_t pid;
  int32_t rank;              /* -1: not set */
  int32_t local_rank;
  int32_t world_size;
  uint32_t state;
  double started_us;         /* since 1970 */
  char allocator[16];        /* weir, gmlake, pytorch, expandable */
  char torch_version[32];
  uint8_t zero_1[128 - 104];
  /* Written by the process. tail: rows ever written. dropped: rows dropped. gaps: how often dropping began. */
  uint64_t tail;
  uint64_t dropped;
  uint64_t gaps;
  uint64_t string_bytes;     /* bytes used of the string area; strings before this are complete */
  uint8_t zero_2[32];
  /* Written by the reader: rows it has read. */
  uint64_t head;
  uint8_t zero_3[56];
  /* Written by the reader: N after the file <pid>.N.plan is ready. */
  uint32_t plan_generation;
  uint8_t zero_4[60];
  weir_gauges gauges[WEIR_RING_DEVICES];
  /* Per GPU: how many streams and pools are named, then their names in the order of their numbers. */
  uint32_t stream_count[WEIR_RING_DEVICES];
  uint32_t pool_count[WEIR_RING_DEVICES];
  uint64_t streams[WEIR_RING_DEVICES][WEIR_RING_STREAMS];
  uint64_t pools[WEIR_RING_DEVICES][WEIR_RING_POOLS][2];
} weir_ring_header;

/* A row is an event of the .weir format (docs/trace-format.md), at slot (number mod capacity). */
typedef struct weir_event {
  double time_us;
  uint64_t address, size;
  uint8_t kind, fields;
  uint16_t device;
  int32_t stream, pool, stack;
  uint32_t metadata;
  int32_t detail, thread;
  uint32_t compile_context;
} weir_event;

#ifdef __cplusplus
#define WEIR_RING_ASSERT static_assert
#else
#define WEIR_RING_ASSERT _Static_assert
#endif
WEIR_RING_ASSERT(sizeof(weir_event) == 56, "as in the .weir format");
WEIR_RING_ASSERT(sizeof(weir_gauges) == 256, "as in src/run/rings/ring-layout.ts");

enum weir_event_kind {
  WEIR_ALLOC = 1,
  WEIR_FREE_REQUESTED = 2,
  WEIR_FREE_COMPLETED = 3,
  WEIR_SEGMENT_ALLOC = 4,
  WEIR_SEGMENT_FREE = 5,
  WEIR_SEGMENT_MAP = 6,
  WEIR_SEGMENT_UNMAP = 7,
  WEIR_OOM = 8,
  WEIR_SNAPSHOT = 9,
  WEIR_RECORD_STREAM = 10,
  WEIR_EMPTY_CACHE = 11,
  WEIR_SETTINGS = 12,
  WEIR_LIMIT = 13,
  WEIR_OPERATOR = 14,
  WEIR_READ = 15,
  WEIR_WRITE = 16,
  WEIR_MARK = 17,
  /* Since format 1.1: size is the bytes reserved from now on. Written by Weir's engine, which has no segments. */
  WEIR_RESERVED = 18
};

#endif
