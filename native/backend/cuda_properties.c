/* Which kinds of memory the driver gives: with or without GPUDirect RDMA, for other nodes (fabric), for other processes (files).
 * Devices announce more than their system allows: WSL2 refuses RDMA, and fabric needs IMEX. So each kind is tried once. */
#include <unistd.h>

#include "cuda_backend.h"

static int has(const cuda_backend *self, int attribute) {
  int value = 0;
  return self->cuda->cuDeviceGetAttribute(&value, attribute, self->device) == CUDA_SUCCESS && value != 0;
}

static int granularity_of(const cuda_backend *self, const cu_memory_properties *wanted, size_t *granularity) {
  int result;
  IN_CONTEXT(self, result, cuMemGetAllocationGranularity(granularity, wanted, CU_GRANULARITY_MINIMUM));
  return result;
}

int cuda_granularity(cuda_backend *self) {
  size_t plain = 0, rich = 0;
  int result = granularity_of(self, &self->properties, &plain);
  cu_memory_properties all = self->properties;
  if (has(self, CU_ATTRIBUTE_HANDLE_FILE)) all.handle_types |= CU_HANDLE_FILE;
  if (has(self, CU_ATTRIBUTE_HANDLE_FABRIC)) all.handle_types |= CU_HANDLE_FABRIC;
  all.flags[CU_FLAG_RDMA] = (uint8_t)has(self, CU_ATTRIBUTE_RDMA);
  if (granularity_of(self, &all, &rich) != CUDA_SUCCESS) rich = 0;
  self->backend.granularity = rich > plain ? rich : plain;
  return result;
}

/* Memory of a larger granularity would not fit the engine's units. */
static int fits(const cuda_backend *self, const cu_memory_properties *wanted) {
  size_t granularity = 0;
  return granularity_of(self, wanted, &granularity) == CUDA_SUCCESS && granularity != 0 && self->backend.granularity % granularity == 0;
}

/* Creates one unit, exports it if another process could ask for that, maps it and opens it to a GPU. CUDA's answer. */
static int try_kind(const cuda_backend *self, const cu_memory_properties *wanted, const cu_access *access) {
  uint64_t unit = self->backend.granularity;
  cu_handle handle;
  cu_pointer address;
  int result, undone, file = -1;
  IN_CONTEXT(self, result, cuMemCreate(&handle, unit, wanted, 0));
  if (result != CUDA_SUCCESS) return result;
  if (wanted->handle_types == (CU_HANDLE_FILE | CU_HANDLE_FABRIC)) {
    IN_CONTEXT(self, result, cuMemExportToShareableHandle(&file, handle, CU_HANDLE_FILE, 0));
    if (result == CUDA_SUCCESS) close(file);
  }
  if (result == CUDA_SUCCESS) IN_CONTEXT(self, result, cuMemAddressReserve(&address, unit, unit, 0, 0));
  if (result == CUDA_SUCCESS) {
    IN_CONTEXT(self, result, cuMemMap(address, unit, 0, handle, 0));
    if (result == CUDA_SUCCESS) {
      IN_CONTEXT(self, result, cuMemSetAccess(address, unit, access, 1));
      IN_CONTEXT(self, undone, cuMemUnmap(address, unit));
    }
    IN_CONTEXT(self, undone, cuMemAddressFree(address, unit));
  }
  IN_CONTEXT(self, undone, cuMemRelease(handle));
  (void)undone;
  return result;
}

int cuda_settle(cuda_backend *self) {
  const int files = has(self, CU_ATTRIBUTE_HANDLE_FILE) ? CU_HANDLE_FILE : 0;
  const int fabric = has(self, CU_ATTRIBUTE_HANDLE_FABRIC) ? CU_HANDLE_FABRIC : 0;
  const int rdma = has(self, CU_ATTRIBUTE_RDMA);
  /* CUDA IPC of ours needs files, so both at once or files alone come before fabric alone. */
  const int types[] = {files | fabric, files, fabric, CU_HANDLE_NONE};
  int result = CUDA_SUCCESS;
  for (size_t index = 0; index < sizeof types / sizeof *types; index++) {
    for (int capable = rdma; capable >= 0; capable--) {
      cu_memory_properties wanted = self->properties;
      wanted.handle_types = types[index];
      wanted.flags[CU_FLAG_RDMA] = (uint8_t)capable;
      if (!fits(self, &wanted)) continue;
      result = try_kind(self, &wanted, self->access);
      /* Without memory nothing is learned. The next request tries again. */
      if (result == CUDA_ERROR_OUT_OF_MEMORY) return result;
      if (result != CUDA_SUCCESS) continue;
      self->properties = wanted;
      self->settled = 1;
      return result;
    }
  }
  return result;
}

int cuda_try_access(cuda_backend *self, const cu_access *access) {
  int result = self->settled ? CUDA_SUCCESS : cuda_settle(self);
  return result == CUDA_SUCCESS ? try_kind(self, &self->properties, access) : result;
}
