/* Backends for tests: memory of the host instead of a GPU, and driver calls that fail on purpose.
 * Users do not get this folder. The adapter has fault injection only if the folder was there when it was compiled. */
#ifndef WEIR_TESTING_H
#define WEIR_TESTING_H

#include "backend/weir_backend.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Real memory without a GPU (memfd pages). Streams are queues; their work runs when weir_host_run is called. The weir_host
 * functions may be called by any thread at any time. */
weir_backend *weir_host_backend(uint64_t total_bytes, char *why, size_t room);
/* Passes calls on to `inner`, but fails about `per_million` of a million calls. Owns `inner`. */
weir_backend *weir_faulty_backend(weir_backend *inner, uint32_t per_million, uint64_t seed);

/* Work for a stream of the host backend: fills memory, or checks that it holds the pattern. */
int weir_host_enqueue_fill(weir_backend *backend, uint64_t stream, uint64_t address, uint64_t bytes, uint64_t pattern);
int weir_host_enqueue_check(weir_backend *backend, uint64_t stream, uint64_t address, uint64_t bytes, uint64_t pattern);
/* Each stream does up to `pieces` pieces of its work. The seed decides the order among streams. */
void weir_host_run(weir_backend *backend, uint32_t pieces, uint64_t seed);
/* One stream does up to `pieces` pieces of its work, while the others stand still. */
void weir_host_run_stream(weir_backend *backend, uint64_t stream, uint32_t pieces);
/* Wrong bytes that checks have found. */
uint64_t weir_host_corrupted(weir_backend *backend);

#ifdef __cplusplus
}
#endif

#endif
