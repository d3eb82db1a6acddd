/* Loads libcuda.so.1 once and never unloads it: PyTorch uses the same library.
 * A driver that lacks one of the functions counts as none. */
#include "cuda_driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static cuda_driver driver;
static const char *lacking;

static void load(void) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    lacking = "libcuda.so.1";
    return;
  }
  /* C has no cast from an object pointer to a function pointer. POSIX guarantees that the bits are the same. */
  void *found;
#define CUDA_LOAD(name, parameters)                               \
  found = dlsym(library, #name);                                  \
  if (!found) lacking = #name;                                    \
  _Static_assert(sizeof driver.name == sizeof found, "pointers"); \
  memcpy(&driver.name, &found, sizeof found);
  CUDA_FUNCTIONS(CUDA_LOAD)
#undef CUDA_LOAD
}

const cuda_driver *cuda_driver_load(const char **missing) {
  pthread_once(&once, load);
  *missing = lacking;
  return lacking ? NULL : &driver;
}
