/* The Python frames of this thread, read through CPython's C functions as the running process has them. Not exported.
 *
 * No header of Python is used: one library serves every Python. PyTorch's operators run without the GIL, so the frames are read without
 * it too: those of a thread stand still while it is in C. Only names need the GIL. */
#ifndef WEIR_PYTHON_FRAMES_H
#define WEIR_PYTHON_FRAMES_H

#include <stddef.h>
#include <stdint.h>

#include "weir_runtime.h"

typedef struct python_frame {
  void *code; /* borrowed: the frame that runs it keeps it alive */
  int32_t at; /* the instruction; its line before Python 3.11 */
} python_frame;

typedef struct python_description {
  weir_text name, filename;
  int32_t line;
  void *owned[2]; /* the strings */
} python_description;

/* Finds the functions; 0 and a reason if this process has no Python, or one that cannot be read. To be called from Python. */
int python_open(char *why, size_t room);
/* Whether python_walk needs no GIL. */
int python_is_free(void);
/* For tests: from now on it does, as on a Python whose frames are not found in memory. */
void python_forget_layout(void);
/* Whether this thread runs Python at all, as far as that can be seen without the GIL. */
int python_has_thread(void);
/* Whether this thread has the GIL and may use Python now. */
int python_is_ours(void);
/* Takes the GIL if this thread does not have it, and may wait for it; 0 if Python is ending. What it gives is for python_leave. */
int python_enter(void);
void python_leave(int entered);
/* The frames of this thread, innermost first. Gives how many there are, of which `most` are written at the most. */
int python_walk(python_frame *frames, int most);

/* With the GIL: */

/* 0 if the frame is none of a program: it is left out from now on. */
int python_describe(const python_frame *frame, python_description *description);
void python_release(python_description *description);
void python_keep(void *code);
/* May run code of the program, if it was the last reference. */
void python_let_go(void *code);

#endif
