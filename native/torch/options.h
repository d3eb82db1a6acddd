/* The options that the Python side passes when it installs an allocator, and the C functions it calls: python/weir_gpu/adapter.py.
 * The structure (abi/adapter.ts) begins with the digest of the tables, so that two parts of different builds are noticed. */
#ifndef WEIR_TORCH_OPTIONS_H
#define WEIR_TORCH_OPTIONS_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/weir_runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

#define WEIR_TORCH_EXPORT __attribute__((visibility("default")))

/* 0, or an error code with a sentence in `why`. With 0, a sentence says what is left out. Touches neither CUDA nor a file. */
WEIR_TORCH_EXPORT int weir_torch_install(const weir_torch_options *options, char *why, size_t room);
/* Writes a mark into the recording, on every GPU in use. */
WEIR_TORCH_EXPORT void weir_torch_mark(const char *name);
/* Tells what live allocations of a GPU hold: the number of a category (abi/events.ts) for each address. */
WEIR_TORCH_EXPORT void weir_torch_categories(int device, const uint64_t *addresses, const uint8_t *categories, uint32_t count);
/* An operator that took so long has just ended. For each address that it used: 1 if it has written there, 0 if it has only read. */
WEIR_TORCH_EXPORT void weir_torch_operator(const char *name, int device, double microseconds, const uint64_t *addresses,
                                           const uint8_t *writes, uint32_t count);
/* 1, or 0 if the GPU is not in use. */
WEIR_TORCH_EXPORT int weir_torch_gauges(int device, weir_gauges *gauges);
/* Sets the gauges of swapping, counted from the start: bytes swapped out and in, stalls, nanoseconds of stalls. */
WEIR_TORCH_EXPORT void weir_torch_swapped(int device, uint64_t out, uint64_t in, uint64_t stalls, uint64_t stall_ns);
/* Sets how many training steps have ended, and whether swapping is the same in every step from now on. For all GPUs in use. */
WEIR_TORCH_EXPORT void weir_torch_steps(uint64_t steps, int swap_settled);
/* Sets the function that is asked for memory when a request finds none; NULL: none. It returns 1 if it has freed some. If that is
 * not enough, it is asked again for twice as many bytes. Called in the thread of the request, without a lock. */
WEIR_TORCH_EXPORT void weir_torch_on_shortage(int (*relieve)(int device, uint64_t bytes));
/* Whether PyTorch's private pools have expandable segments, whose memory lies in pieces. */
WEIR_TORCH_EXPORT int weir_torch_expandable(void);
/* For a MemPool that must have none: plain CUDA allocations, as PyTorch's CUDAPluggableAllocator calls them. NULL: no memory. */
WEIR_TORCH_EXPORT void *weir_torch_plain_alloc(ptrdiff_t bytes, int device, void *stream);
WEIR_TORCH_EXPORT void weir_torch_plain_free(void *ptr, ptrdiff_t bytes, int device, void *stream);
/* From 1 to 0, requests of this thread are attempts. If one fails, nobody waits for the GPU or is asked for memory, and it is no
 * out-of-memory error of the program: it is neither counted nor recorded nor told to observers. */
WEIR_TORCH_EXPORT void weir_torch_attempt(int attempting);
/* 0, or the number of the first broken invariant of an engine. */
WEIR_TORCH_EXPORT uint32_t weir_torch_check(uint32_t level);

#ifdef __cplusplus
}
#endif

#endif
