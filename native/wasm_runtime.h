/* Where a trap of the engine goes: to the frame of the call that caused it, on the thread that made it. */
#ifndef WEIR_WASM_RUNTIME_H
#define WEIR_WASM_RUNTIME_H

#include <setjmp.h>

/* The frame to return to on this thread; without one a trap ends the process. */
extern _Thread_local jmp_buf *weir_trap_frame;

#endif
