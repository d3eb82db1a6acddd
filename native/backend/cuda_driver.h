/* The functions of libcuda.so.1 that we use, loaded at run time. They are declared here, so building needs no toolkit.
 * Names carry the version suffix that the toolkit's header would choose. */
#ifndef WEIR_CUDA_DRIVER_H
#define WEIR_CUDA_DRIVER_H

#include <stddef.h>
#include <stdint.h>

enum {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_OUT_OF_MEMORY = 2,
  CUDA_ERROR_NOT_READY = 600,
  CUDA_ERROR_NOT_PERMITTED = 800,
  CUDA_ERROR_NOT_SUPPORTED = 801
};
enum { CU_PINNED = 1, CU_LOCATION_DEVICE = 1, CU_READ_WRITE = 3, CU_GRANULARITY_MINIMUM = 0 };
enum { CU_EVENT_NO_TIMING = 2, CU_CAPTURE_RELAXED = 2 };
enum { CU_HANDLE_NONE = 0, CU_HANDLE_FILE = 1, CU_HANDLE_FABRIC = 8 };
enum { CU_ATTRIBUTE_HANDLE_FILE = 103, CU_ATTRIBUTE_RDMA = 110, CU_ATTRIBUTE_HANDLE_FABRIC = 128 };
/* Index in cu_memory_properties.flags: memory that network cards may read and write. */
enum { CU_FLAG_RDMA = 1 };

typedef void *cu_context, *cu_stream, *cu_event;
typedef uint64_t cu_pointer, cu_handle;

typedef struct cu_location {
  int32_t type, id;
} cu_location;

typedef struct cu_memory_properties {
  int32_t type, handle_types;
  cu_location location;
  void *windows;
  uint8_t flags[8];
} cu_memory_properties;

typedef struct cu_access {
  cu_location location;
  int32_t flags;
} cu_access;

_Static_assert(sizeof(cu_memory_properties) == 32 && sizeof(cu_access) == 12, "as in cuda.h");

#define CUDA_FUNCTIONS(F)                                                                 \
  F(cuInit, (unsigned))                                                                   \
  F(cuDeviceGet, (int *, int))                                                            \
  F(cuDeviceGetAttribute, (int *, int, int))                                              \
  F(cuDeviceCanAccessPeer, (int *, int, int))                                             \
  F(cuDevicePrimaryCtxRetain, (cu_context *, int))                                        \
  F(cuDevicePrimaryCtxRelease_v2, (int))                                                  \
  F(cuCtxPushCurrent_v2, (cu_context))                                                    \
  F(cuCtxPopCurrent_v2, (cu_context *))                                                   \
  F(cuCtxSynchronize, (void))                                                             \
  F(cuThreadExchangeStreamCaptureMode, (int *))                                           \
  F(cuMemGetInfo_v2, (size_t *, size_t *))                                                \
  F(cuMemGetAllocationGranularity, (size_t *, const cu_memory_properties *, int))         \
  F(cuMemAddressReserve, (cu_pointer *, size_t, size_t, cu_pointer, unsigned long long))  \
  F(cuMemAddressFree, (cu_pointer, size_t))                                               \
  F(cuMemCreate, (cu_handle *, size_t, const cu_memory_properties *, unsigned long long)) \
  F(cuMemRelease, (cu_handle))                                                            \
  F(cuMemMap, (cu_pointer, size_t, size_t, cu_handle, unsigned long long))                \
  F(cuMemSetAccess, (cu_pointer, size_t, const cu_access *, size_t))                      \
  F(cuMemExportToShareableHandle, (void *, cu_handle, int, unsigned long long))           \
  F(cuMemImportFromShareableHandle, (cu_handle *, void *, int))                           \
  F(cuMemUnmap, (cu_pointer, size_t))                                                     \
  F(cuEventCreate, (cu_event *, unsigned))                                                \
  F(cuEventDestroy_v2, (cu_event))                                                        \
  F(cuEventRecord, (cu_event, cu_stream))                                                 \
  F(cuEventQuery, (cu_event))                                                             \
  F(cuStreamWaitEvent, (cu_stream, cu_event, unsigned))                                   \
  F(cuGetErrorName, (int, const char **))                                                 \
  F(cuGetErrorString, (int, const char **))

typedef struct cuda_driver {
#define CUDA_FIELD(name, parameters) int(*name) parameters;
  CUDA_FUNCTIONS(CUDA_FIELD)
#undef CUDA_FIELD
} cuda_driver;

/* The driver, loaded once. NULL if the library or a function is missing; `missing` names it. */
const cuda_driver *cuda_driver_load(const char **missing);

#endif
