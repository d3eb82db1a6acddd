/* The surroundings that wasm2c's generated C needs. It has no signal handlers, no guard pages and no process-wide state.
 * It is written for one module: the engine, with one memory and no tables.
 *
 * Loads and stores are not checked, because they cannot leave the engine's own memory: addresses have 32 bits, and
 * wasm_runtime.c maps all that 32 bits and an offset can name. With WEIR_BOUNDS_CHECK, as in tests, each access is compared
 * with the memory in use, and a stray one traps. */
#ifndef WEIR_WASM_RT_H
#define WEIR_WASM_RT_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#ifdef WEIR_BOUNDS_CHECK
#define WASM_RT_MEMCHECK_BOUNDS_CHECK 1
#define WASM_RT_MEMCHECK_GUARD_PAGES 0
#else
#define WASM_RT_MEMCHECK_BOUNDS_CHECK 0
#define WASM_RT_MEMCHECK_GUARD_PAGES 1
#endif
#define WASM_RT_STACK_DEPTH_COUNT 0
#define WASM_RT_USE_SEGUE 0
#define WASM_RT_USE_MMAP 1
#define WASM_RT_SANITY_CHECKS 0
#define WASM_RT_THREAD_LOCAL _Thread_local
#define WASM_RT_NO_RETURN __attribute__((noreturn))
#define WASM_DEFAULT_PAGE_SIZE 65536
#define WABT_BIG_ENDIAN 0

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the engine needs a little-endian machine"
#endif

#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)
#define wasm_rt_memcpy memcpy

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
  WASM_RT_TRAP_NONE,
  WASM_RT_TRAP_OOB,
  WASM_RT_TRAP_INT_OVERFLOW,
  WASM_RT_TRAP_DIV_BY_ZERO,
  WASM_RT_TRAP_INVALID_CONVERSION,
  WASM_RT_TRAP_UNREACHABLE,
  WASM_RT_TRAP_CALL_INDIRECT,
  WASM_RT_TRAP_UNCAUGHT_EXCEPTION,
  WASM_RT_TRAP_EXHAUSTION,
} wasm_rt_trap_t;

typedef enum { WASM_RT_I32, WASM_RT_I64, WASM_RT_F32, WASM_RT_F64, WASM_RT_V128, WASM_RT_FUNCREF, WASM_RT_EXTERNREF } wasm_rt_type_t;

typedef struct {
  uint8_t *data;
  uint64_t pages;
  uint64_t max_pages;
  uint64_t size;
} wasm_rt_memory_t;

/* Tables and references. The generated prelude names these types; the engine uses none of them. */
typedef void (*wasm_rt_function_ptr_t)(void);
typedef const char *wasm_rt_func_type_t;
typedef struct {
  void (*fn)(void **);
} wasm_rt_tailcallee_t;
typedef struct {
  wasm_rt_func_type_t func_type;
  wasm_rt_function_ptr_t func;
  wasm_rt_tailcallee_t func_tailcallee;
  void *module_instance;
} wasm_rt_funcref_t;
typedef void *wasm_rt_externref_t;
typedef struct {
  wasm_rt_funcref_t *data;
  uint32_t size;
  uint32_t max_size;
} wasm_rt_funcref_table_t;
typedef struct {
  wasm_rt_externref_t *data;
  uint32_t size;
  uint32_t max_size;
} wasm_rt_externref_table_t;
#define wasm_rt_funcref_null_value ((wasm_rt_funcref_t){0, 0, {0}, 0})
#define wasm_rt_externref_null_value ((wasm_rt_externref_t)0)

void wasm_rt_init(void);
bool wasm_rt_is_initialized(void);
WASM_RT_NO_RETURN void wasm_rt_trap(wasm_rt_trap_t code);
void wasm_rt_allocate_memory(wasm_rt_memory_t *memory, uint64_t pages, uint64_t max_pages, bool is64, uint32_t page_size);
uint64_t wasm_rt_grow_memory(wasm_rt_memory_t *memory, uint64_t pages);
void wasm_rt_free_memory(wasm_rt_memory_t *memory);

#ifdef __cplusplus
}
#endif

#endif
