/* A job that makes the requests of a file, as `weir run` would have them made: the runtime on host memory, with the allocator,
 * limit and lending that the run has set. Its recording shows which policy really ran.
 *
 * The file: rows of three u64, little-endian: slot, bytes (0: free the slot), stream. Prints one line of JSON. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "weir_abi.h"
#include "weir_runtime.h"

typedef struct row {
  uint64_t slot, bytes, stream;
} row;

static const char *text(const char *name, const char *otherwise) {
  const char *value = getenv(name);
  return value && *value ? value : otherwise;
}

int main(int count, char **words) {
  char why[256];
  if (count != 4) {
    fprintf(stderr, "usage: policy_job FILE SLOTS TOTAL_BYTES\n");
    return 64;
  }
  FILE *file = fopen(words[1], "rb");
  uint64_t *addresses = calloc(strtoull(words[2], NULL, 10), sizeof *addresses);
  weir_backend *host = weir_host_backend(strtoull(words[3], NULL, 10), why, sizeof why);
  const char *allocator = text(WEIR_CHILD_ALLOCATOR, WEIR_ALLOCATOR_WEIR);
  weir_recorder *recorder = weir_recorder_open(text(WEIR_CHILD_RUN_DIR, "."), allocator, "0.0.0", 1 << 20);
  if (!file || !addresses || !host || !recorder) return 66;
  weir_device_options options = {
      .gmlake = strcmp(allocator, WEIR_ALLOCATOR_GMLAKE) == 0,
      .lend = strcmp(text(WEIR_CHILD_LEND, "1"), "0") != 0,
      .fine = strtoull(text(WEIR_CHILD_SWAP, "0"), NULL, 10) > 0,
      .limit = strtoull(text(WEIR_CHILD_LIMIT, "0"), NULL, 10),
      .recorder = recorder,
  };
  weir_device *device = weir_device_new(host, &options);
  if (!device) return 67;
  row next;
  uint64_t requests = 0, failures = 0;
  while (fread(&next, sizeof next, 1, file) == 1) {
    uint64_t *address = &addresses[next.slot];
    if (next.bytes == 0) {
      if (*address && !weir_device_free(device, *address, NULL)) return 68;
      *address = 0;
      continue;
    }
    weir_allocation given;
    weir_shortage shortage;
    requests++;
    if (weir_device_allocate(device, next.bytes, next.stream, &given, &shortage)) {
      *address = given.address;
    } else {
      failures++;
      weir_device_failed(device, &shortage, next.stream);
    }
  }
  weir_gauges gauges = weir_device_gauges(device);
  printf("{\"requests\":%" PRIu64 ",\"failures\":%" PRIu64 ",\"driverCalls\":%" PRIu64 ",\"peakReserved\":%" PRIu64 ",\"stitches\":%" PRIu64
         "}\n",
         requests, failures, gauges.driver_calls, gauges.peak_reserved, gauges.stitches);
  fclose(file);
  weir_recorder_close(recorder);
  return 0;
}
