/* Where CPython keeps the frames of a thread: found at run time, by comparing memory with what its functions say. Not exported. */
#ifndef WEIR_PYTHON_LAYOUT_H
#define WEIR_PYTHON_LAYOUT_H

#include <stdint.h>

#include "python_frames.h"

#define LAYOUT_MOST_SHIMS 8

/* Offsets in bytes. */
typedef struct python_layout {
  int is_found;
  uint32_t thread_to_first; /* in the thread state: the innermost frame, or what leads to it */
  int32_t first_to_frame;   /* in what leads to it; -1: nothing does */
  uint32_t frame_to_code, frame_to_previous, frame_to_instruction;
  int64_t code_to_instructions; /* an instruction's address minus this and its code's address is its number */
  void *shims[LAYOUT_MOST_SHIMS]; /* code of frames that the interpreter makes for itself */
  int32_t shim_count;
} python_layout;

/* Finds the layout by the frames of this thread, which has the GIL. `frames` are what CPython's functions say, innermost first, and
 * all of them. Every address is checked before it is read. */
int layout_find(python_layout *layout, const void *thread, const python_frame *frames, int count);
/* The frames of the thread whose state this is; it must be this thread's own. */
int layout_walk(const python_layout *layout, const void *thread, python_frame *frames, int most);

#endif
