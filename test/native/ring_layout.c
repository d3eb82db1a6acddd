/* Prints the layout of ring.h as JSON: offsets of fields, sizes of structs, constants.
 * src/run/rings/ring-layout.ts must have the same. */
#include <stddef.h>
#include <stdio.h>

#include "runtime/ring.h"

#define FIELD(type, name) printf("\"%s\":%zu,", #name, offsetof(type, name))
#define SIZE(type) printf("\"sizeof\":%zu", sizeof(type))

int main(void) {
  printf("{\"constants\":{\"magic\":\"%s\",\"version\":%u,\"devices\":%d,\"streams\":%d,\"pools\":%d,\"stringBytes\":%u,\"active\":%d,\"closed\":%d},",
         WEIR_RING_MAGIC, WEIR_RING_VERSION, WEIR_RING_DEVICES, WEIR_RING_STREAMS, WEIR_RING_POOLS, WEIR_RING_STRING_BYTES,
         WEIR_RING_ACTIVE, WEIR_RING_CLOSED);
  printf("\"header\":{");
  FIELD(weir_ring_header, magic);
  FIELD(weir_ring_header, version);
  FIELD(weir_ring_header, bytes);
  FIELD(weir_ring_header, strings_at);
  FIELD(weir_ring_header, rows_at);
  FIELD(weir_ring_header, capacity);
  FIELD(weir_ring_header, pid);
  FIELD(weir_ring_header, rank);
  FIELD(weir_ring_header, local_rank);
  FIELD(weir_ring_header, world_size);
  FIELD(weir_ring_header, state);
  FIELD(weir_ring_header, started_us);
  FIELD(weir_ring_header, allocator);
  FIELD(weir_ring_header, torch_version);
  FIELD(weir_ring_header, tail);
  FIELD(weir_ring_header, dropped);
  FIELD(weir_ring_header, gaps);
  FIELD(weir_ring_header, string_bytes);
  FIELD(weir_ring_header, head);
  FIELD(weir_ring_header, plan_generation);
  FIELD(weir_ring_header, gauges);
  FIELD(weir_ring_header, stream_count);
  FIELD(weir_ring_header, pool_count);
  FIELD(weir_ring_header, streams);
  FIELD(weir_ring_header, pools);
  SIZE(weir_ring_header);
  printf("},\"gauges\":{");
  FIELD(weir_gauges, in_use);
  FIELD(weir_gauges, total);
  FIELD(weir_gauges, limit);
  FIELD(weir_gauges, live);
  FIELD(weir_gauges, peak_live);
  FIELD(weir_gauges, allocated);
  FIELD(weir_gauges, peak_allocated);
  FIELD(weir_gauges, reserved);
  FIELD(weir_gauges, peak_reserved);
  FIELD(weir_gauges, outside);
  FIELD(weir_gauges, allocations);
  FIELD(weir_gauges, frees);
  FIELD(weir_gauges, ooms);
  FIELD(weir_gauges, retries);
  FIELD(weir_gauges, driver_calls);
  FIELD(weir_gauges, driver_ns);
  FIELD(weir_gauges, waits);
  FIELD(weir_gauges, borrows);
  FIELD(weir_gauges, stitches);
  FIELD(weir_gauges, largest_free);
  FIELD(weir_gauges, planned_hits);
  FIELD(weir_gauges, planned_misses);
  FIELD(weir_gauges, swapped_out);
  FIELD(weir_gauges, swapped_in);
  FIELD(weir_gauges, swap_stalls);
  FIELD(weir_gauges, swap_stall_ns);
  FIELD(weir_gauges, driver_failures);
  FIELD(weir_gauges, plans);
  FIELD(weir_gauges, plans_refused);
  FIELD(weir_gauges, steps);
  FIELD(weir_gauges, swap_settled);
  FIELD(weir_gauges, reserved_for_later);
  SIZE(weir_gauges);
  printf("},\"event\":{");
  FIELD(weir_event, time_us);
  FIELD(weir_event, address);
  FIELD(weir_event, size);
  FIELD(weir_event, kind);
  FIELD(weir_event, fields);
  FIELD(weir_event, device);
  FIELD(weir_event, stream);
  FIELD(weir_event, pool);
  FIELD(weir_event, stack);
  FIELD(weir_event, metadata);
  FIELD(weir_event, detail);
  FIELD(weir_event, thread);
  FIELD(weir_event, compile_context);
  SIZE(weir_event);
  printf("}}\n");
  return 0;
}
