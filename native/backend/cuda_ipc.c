/* Memory of a CUDA device in several processes at once. A handle is exported as a file when it is first shared. The file is
 * closed when the handle is released. A process that has imported it keeps the memory as long as it is mapped there. */
#include <fcntl.h>
#include <stdlib.h>

#include "cuda_backend.h"
#include "file_server.h"

static int32_t export_handle(cuda_backend *self, weir_held *held) {
  if (held->shared) return 0;
  int file = -1, result;
  IN_CONTEXT(self, result, cuMemExportToShareableHandle(&file, held->value, CU_HANDLE_FILE, 0));
  if (cuda_judged(self->cuda, result, "cuMemExportToShareableHandle") < 0) return -1;
  /* Otherwise a child program would keep the memory for as long as it runs. */
  fcntl(file, F_SETFD, FD_CLOEXEC);
  held->shared = ++self->shared;
  held->file = file;
  files_offer(file);
  return 0;
}

void cuda_unshare(weir_held *held) {
  if (held->shared) files_withdraw(held->file);
  held->shared = 0;
}

void cuda_forked(void *context) {
  cuda_backend *self = context;
  for (size_t index = 0; index < self->books.handle_count; index++) {
    if (self->books.handles[index].bytes) cuda_unshare(&self->books.handles[index]);
  }
}

int32_t cuda_share(void *context, uint64_t address, uint64_t bytes, weir_piece *pieces, uint32_t room, uint64_t *start) {
  cuda_backend *self = context;
  if (!(self->properties.handle_types & CU_HANDLE_FILE)) return cuda_refused("the driver gives no memory here that could be shared");
  int32_t count = 0;
  pthread_mutex_lock(&self->mutex);
  const weir_entry *entry = weir_books_around(&self->books, address, self->backend.granularity);
  if (entry) *start = entry->address;
  for (uint64_t at = entry ? entry->address : address; at < address + bytes && count >= 0; at += entry->other) {
    entry = weir_map_find(&self->books.mappings, at);
    if (!entry) {
      count = cuda_refused("there is no memory at this address");
      break;
    }
    weir_held *held = &self->books.handles[entry->value];
    if (export_handle(self, held) < 0) {
      count = -1;
      break;
    }
    if ((uint32_t)count < room) pieces[count] = (weir_piece){held->shared, 0, held->bytes, held->file, 0};
    count++;
  }
  pthread_mutex_unlock(&self->mutex);
  return count;
}

/* Maps pieces side by side from an address on. Gives the bytes mapped: fewer than all if a piece failed. */
static uint64_t map_pieces(cuda_backend *self, uint64_t address, const weir_piece *pieces, uint32_t count) {
  uint64_t done = 0;
  for (uint32_t index = 0; index < count; index++) {
    cu_handle handle;
    int result;
    IN_CONTEXT(self, result, cuMemImportFromShareableHandle(&handle, (void *)(uintptr_t)pieces[index].file, CU_HANDLE_FILE));
    if (cuda_judged(self->cuda, result, "cuMemImportFromShareableHandle") < 0) break;
    IN_CONTEXT(self, result, cuMemMap(address + done, pieces[index].bytes, 0, handle, 0));
    int32_t mapped = cuda_judged(self->cuda, result, "cuMemMap");
    /* The mapping keeps the memory. */
    IN_CONTEXT(self, result, cuMemRelease(handle));
    if (mapped < 0) break;
    done += pieces[index].bytes;
  }
  return done;
}

int64_t cuda_import(void *context, const weir_piece *pieces, uint32_t count) {
  cuda_backend *self = context;
  uint64_t bytes = 0, unit = self->backend.granularity;
  for (uint32_t index = 0; index < count; index++) {
    uint64_t more = pieces[index].bytes;
    if (more == 0 || more % unit != 0 || more > (1ull << 46) || bytes > (1ull << 46)) return cuda_refused("a size that cannot be");
    bytes += more;
  }
  cu_pointer address;
  int result;
  IN_CONTEXT(self, result, cuMemAddressReserve(&address, bytes, unit, 0, 0));
  if (cuda_judged(self->cuda, result, "cuMemAddressReserve") < 0) return -1;
  uint64_t mapped = map_pieces(self, address, pieces, count);
  int32_t done = -1;
  if (mapped == bytes) {
    /* A peer may be allowed at any time. Inside the lock, either weir_cuda_allow_peer finds this import in the map, or
     * `access` has the peer already. */
    pthread_mutex_lock(&self->mutex);
    if (weir_map_ensure(&self->imports, 1)) {
      IN_CONTEXT(self, result, cuMemSetAccess(address, bytes, self->access, self->access_count));
      done = cuda_judged(self->cuda, result, "cuMemSetAccess");
    } else {
      cuda_refused("no host memory for the books");
    }
    if (done == 0) weir_map_put(&self->imports, address, bytes, 0);
    pthread_mutex_unlock(&self->mutex);
  }
  if (done == 0) return (int64_t)address;
  if (mapped > 0) IN_CONTEXT(self, result, cuMemUnmap(address, mapped));
  IN_CONTEXT(self, result, cuMemAddressFree(address, bytes));
  return -1;
}

int32_t cuda_drop_import(void *context, uint64_t address) {
  cuda_backend *self = context;
  uint64_t bytes = 0;
  pthread_mutex_lock(&self->mutex);
  const weir_entry *entry = weir_map_find(&self->imports, address);
  if (entry) bytes = entry->value;
  pthread_mutex_unlock(&self->mutex);
  if (bytes == 0) return cuda_refused("nothing was imported to this address");
  /* Work that uses the memory may be under way. A capture that we do not know of makes the wait fail: then it stays mapped. */
  if (cuda_synchronize(self) < 0) return -1;
  pthread_mutex_lock(&self->mutex);
  weir_map_remove(&self->imports, address);
  pthread_mutex_unlock(&self->mutex);
  int result;
  IN_CONTEXT(self, result, cuMemUnmap(address, bytes));
  if (cuda_judged(self->cuda, result, "cuMemUnmap") < 0) return -1;
  IN_CONTEXT(self, result, cuMemAddressFree(address, bytes));
  return cuda_judged(self->cuda, result, "cuMemAddressFree");
}
