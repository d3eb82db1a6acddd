// Installs our allocator in place of PyTorch's, with handlers for fork and exit.
// The only entry from Python. Nothing is thrown out of it, and CUDA is not touched.
#include <c10/cuda/CUDAFunctions.h>

#include <pthread.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>

#include "adapter.h"
#include "faults.h"
#include "options.h"
#include "passthrough.h"
#include "registration.h"

namespace weir {

namespace {

Forwarding* installed = nullptr;
Recording* recording = nullptr;

void in_child() {
  recording->forked();
  installed->forked();
}

void at_end() { recording->close(); }

int refuse(int code, const std::string& sentence, char* why, size_t room) {
  if (why && room) snprintf(why, room, "%s", sentence.c_str());
  return code;
}

std::string text(const char* value) { return value ? value : ""; }

int install(const weir_torch_options& options, char* why, size_t room) {
  CUDAAllocator* const native = torch_alloc::allocator.load();
  if (!native) return refuse(WEIR_TORCH_BACKEND, "PyTorch has no CUDA allocator in this process", why, room);
  if (native->name() != "native") {
    return refuse(WEIR_TORCH_BACKEND, "PyTorch's allocator is set to \"" + native->name() + "\" and Weir can only stand in for \"native\"",
                  why, room);
  }
  if (getenv("PYTORCH_NO_CUDA_MEMORY_CACHING")) {
    return refuse(WEIR_TORCH_UNCACHED, "PYTORCH_NO_CUDA_MEMORY_CACHING is set, which turns every allocator off", why, room);
  }
  if (options.faults && !kHasFaults) {
    return refuse(WEIR_TORCH_OPTIONS,
                  WEIR_USER_FAULTS " needs native/testing, which is not installed; set " WEIR_USER_NATIVE_DIR
                                   " to the folder native of Weir's sources",
                  why, room);
  }
  if (const char* const place = interface_differs()) {
    return refuse(WEIR_TORCH_FAILED, std::string("PyTorch's allocator has a function before ") + place + " that Weir does not know", why,
                  room);
  }
  const std::string name = text(options.allocator);
  recording = new Recording(text(options.directory), name, text(options.torch_version), options.ring_rows);
  if (name == WEIR_ALLOCATOR_WEIR || name == WEIR_ALLOCATOR_GMLAKE) {
    if (registers_all_memory()) return refuse(WEIR_TORCH_REGISTERED, kRegistersAllMemory, why, room);
    installed = new WeirAllocator(native,
                                  {name == WEIR_ALLOCATOR_GMLAKE, options.lend != 0, options.fine != 0, options.planned != 0, options.limit,
                                   options.faults, options.faults_seed},
                                  recording);
  } else if (name == WEIR_ALLOCATOR_PYTORCH || name == WEIR_ALLOCATOR_EXPANDABLE) {
    if (name == WEIR_ALLOCATOR_EXPANDABLE && !weir::expandable_segments()) {
      const std::string before = allocator_settings();
      set_allocator_settings(before + (before.empty() ? "" : ",") + WEIR_EXPANDABLE_CONF);
    }
    installed = new RecordingAllocator(native, options.limit, recording);
  } else {
    return refuse(WEIR_TORCH_OPTIONS, "there is no allocator named \"" + name + "\"", why, room);
  }
  char reason[256] = "";
  if (options.stacks != WEIR_TORCH_STACKS_NONE && !text(options.directory).empty() &&
      !recording->want_stacks(options.stacks == WEIR_TORCH_STACKS_ALL, options.stacks_from, reason, sizeof reason)) {
    refuse(WEIR_TORCH_OK, std::string("call stacks are not recorded: ") + reason, why, room);
  }
  pthread_atfork(nullptr, nullptr, &in_child);
  atexit(&at_end);
  // If PyTorch has initialized its allocator already, ours must be initialized too.
  if (native->initialized()) installed->init(c10::cuda::device_count());
  torch_alloc::allocator.store(installed);
  // torch.accelerator.* uses this registration.
  c10::SetAllocator(c10::DeviceType::CUDA, installed, kRegistrationPriority);
  return WEIR_TORCH_OK;
}

} // namespace

} // namespace weir

int weir_torch_install(const weir_torch_options* options, char* why, size_t room) {
  if (!options || options->digest != WEIR_ABI_DIGEST) {
    return weir::refuse(WEIR_TORCH_OPTIONS, "the Python and the compiled part of Weir are of different versions", why, room);
  }
  if (weir::installed) return weir::refuse(WEIR_TORCH_ALREADY, "Weir is already in place", why, room);
  try {
    return weir::install(*options, why, room);
  } catch (const std::exception& error) {
    return weir::refuse(WEIR_TORCH_FAILED, error.what(), why, room);
  } catch (...) {
    return weir::refuse(WEIR_TORCH_FAILED, "an unknown error", why, room);
  }
}

void weir_torch_mark(const char* name) {
  if (!weir::installed || !name) return;
  for (int device = 0; device < WEIR_RING_DEVICES; device++) {
    if (weir::installed->used(device)) weir::recording->put_mark(device, name);
  }
}

int weir_torch_gauges(int device, weir_gauges* gauges) {
  try {
    return weir::installed && weir::installed->gauges(device, gauges);
  } catch (...) {
    return 0;
  }
}

void weir_torch_swapped(int device, uint64_t out, uint64_t in, uint64_t stalls, uint64_t stall_ns) {
  weir_gauges* const levels = weir::recording ? weir::recording->gauges(device) : nullptr;
  if (!levels) return;
  levels->swapped_out = out;
  levels->swapped_in = in;
  levels->swap_stalls = stalls;
  levels->swap_stall_ns = stall_ns;
}

void weir_torch_steps(uint64_t steps, int swap_settled) {
  if (!weir::installed) return;
  for (int device = 0; device < WEIR_RING_DEVICES; device++) {
    weir_gauges* const levels = weir::installed->used(device) ? weir::recording->gauges(device) : nullptr;
    if (!levels) continue;
    levels->steps = steps;
    levels->swap_settled = swap_settled != 0;
  }
}

void weir_torch_on_shortage(int (*relieve)(int device, uint64_t bytes)) { weir::relief.store(relieve); }

int weir_torch_expandable(void) { return weir::expandable_segments(); }

// PyTorch calls both with the GPU current, and during a capture with checks relaxed.
void* weir_torch_plain_alloc(ptrdiff_t bytes, int, void*) {
  void* ptr = nullptr;
  if (cudaMalloc(&ptr, static_cast<size_t>(bytes)) == cudaSuccess) return ptr;
  (void)cudaGetLastError();
  return nullptr;
}

void weir_torch_plain_free(void* ptr, ptrdiff_t, int, void*) {
  if (cudaFree(ptr) != cudaSuccess) (void)cudaGetLastError();
}

void weir_torch_attempt(int attempting) { weir::attempting = attempting != 0; }

uint32_t weir_torch_check(uint32_t level) { return weir::installed ? weir::installed->check(level) : 0; }
