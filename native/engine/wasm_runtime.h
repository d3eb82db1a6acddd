/* Where a trap of the engine returns to: the call that caused it, on the same thread. */
#ifndef WEIR_WASM_RUNTIME_H
#define WEIR_WASM_RUNTIME_H

#include <setjmp.h>

/* Every call marks the place to return to, so marking must be cheap. The compiler's builtin saves three registers, the
 * library's setjmp all of them. Sanitizers only know setjmp. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
typedef void *weir_frame[5];
#define WEIR_MARK(frame) __builtin_setjmp(frame)
#define WEIR_RETURN_TO(frame) __builtin_longjmp(frame, 1)
#else
typedef jmp_buf weir_frame;
#define WEIR_MARK(frame) setjmp(frame)
#define WEIR_RETURN_TO(frame) longjmp(frame, 1)
#endif

/* The frame to return to on this thread. Without one, a trap ends the process. */
extern _Thread_local weir_frame *weir_trap_frame;

#endif
