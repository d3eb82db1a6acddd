/* The runtime of the generated engine: linear memory and traps.
 * Linear memory is one mapping of all that 32 bits can name, without reserving pages. So its base never moves. */
#define _GNU_SOURCE
#include "wasm_runtime.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "wasm-rt.h"

/* All that an address of 32 bits plus the offset of a field can name. Fields lie far below 1 MiB into their record. */
#define WINDOW (((uint64_t)1 << 32) + ((uint64_t)1 << 20))
#define HUGE_PAGE ((size_t)2 << 20)

_Thread_local weir_frame *weir_trap_frame;

void wasm_rt_init(void) {}

bool wasm_rt_is_initialized(void) { return true; }

void wasm_rt_trap(wasm_rt_trap_t code) {
  if (weir_trap_frame) WEIR_RETURN_TO(*weir_trap_frame);
  fprintf(stderr, "weir: the engine trapped outside a call (code %d)\n", (int)code);
  abort();
}

void wasm_rt_allocate_memory(wasm_rt_memory_t *memory, uint64_t pages, uint64_t max_pages, bool is64, uint32_t page_size) {
  (void)is64;
  void *data = mmap(NULL, WINDOW, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) wasm_rt_trap(WASM_RT_TRAP_OOB);
#ifdef MADV_HUGEPAGE
  /* Hundreds of thousands of blocks need more small pages than the processor's TLB holds. An engine with few blocks stays
   * below the first huge page. */
  madvise((uint8_t *)data + HUGE_PAGE, max_pages * page_size - HUGE_PAGE, MADV_HUGEPAGE);
#endif
  memory->data = data;
  memory->pages = pages;
  memory->max_pages = max_pages;
  memory->size = pages * page_size;
}

uint64_t wasm_rt_grow_memory(wasm_rt_memory_t *memory, uint64_t pages) {
  uint64_t before = memory->pages;
  if (pages > memory->max_pages - before) return (uint64_t)-1;
  memory->pages += pages;
  memory->size += pages * WASM_DEFAULT_PAGE_SIZE;
  return before;
}

void wasm_rt_free_memory(wasm_rt_memory_t *memory) {
  munmap(memory->data, WINDOW);
  memory->data = NULL;
}
