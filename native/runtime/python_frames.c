/* The Python frames of this thread. CPython's functions are found in the process by name.
 * Without the GIL only the thread's own frames are read, which nobody else changes: no reference is taken, no function called. */
#define _GNU_SOURCE
#include "python_frames.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "python_layout.h"

/* A loop without end would hang the program. Python itself stops at a depth far below. */
#define MOST_WALKED 100000

static struct {
  int (*is_initialized)(void);
  int (*is_finalizing)(void); /* or NULL */
  void *(*current_thread)(void);
  void *(*this_thread)(void);
  void *(*thread_frame)(void *);
  void *(*first_interpreter)(void);
  void *(*next_interpreter)(void *);
  void *(*frame_back)(void *);
  void *(*frame_code)(void *);
  int (*frame_lasti)(void *); /* NULL before 3.11 */
  int (*frame_line)(void *);
  int (*code_line)(void *, int);
  void (*incref)(void *);
  void (*decref)(void *);
  void *(*attribute)(void *, const char *);
  const char *(*utf8)(void *, ptrdiff_t *);
  void (*fetch)(void **, void **, void **);
  void (*restore)(void *, void *, void *);
  int (*gc_disable)(void); /* or NULL */
  int (*gc_enable)(void);
  int (*ensure)(void);
  void (*release)(int);
  const void *code_type;
} python;

/* The size of a reference count: an object's type comes after it. */
#define OBJECT_TYPE_AT 8

static python_layout layout;

static void *function(const char *name, const char *older) {
  void *found = dlsym(RTLD_DEFAULT, name);
  return found || !older ? found : dlsym(RTLD_DEFAULT, older);
}

/* POSIX lets functions be stored where dlsym's answer fits; ISO C has no cast for it. */
static int find(void *place, const char *name, const char *older) {
  void *found = function(name, older);
  memcpy(place, &found, sizeof found);
  return found != NULL;
}

int python_is_ours(void) {
  if (!python.is_initialized() || (python.is_finalizing && python.is_finalizing())) return 0;
  /* Before 3.12 the first is the thread that has the GIL, whichever it is. */
  void *current = python.current_thread();
  return current && current == python.this_thread();
}

int python_enter(void) {
  if (python_is_ours()) return 1;
  if (!python.is_initialized() || (python.is_finalizing && python.is_finalizing())) return 0;
  /* This thread may have the GIL as one of another interpreter, and would wait for itself. */
  if (python.next_interpreter(python.first_interpreter())) return 0;
  return 2 + python.ensure();
}

void python_leave(int entered) {
  if (entered >= 2) python.release(entered - 2);
}

/* With the GIL. A reference that is dropped here is never the last one: a running frame keeps its frame object and its code. */
static int walk_by_functions(python_frame *frames, int most) {
  int count = 0;
  int collects = python.gc_disable ? python.gc_disable() : 0;
  for (void *frame = python.thread_frame(python.current_thread()); frame && count < MOST_WALKED; count++) {
    if (count < most) {
      void *code = python.frame_code(frame);
      frames[count] = (python_frame){code, python.frame_lasti ? python.frame_lasti(frame) : python.frame_line(frame)};
      python.decref(code);
    }
    void *back = python.frame_back(frame);
    python.decref(frame);
    frame = back;
  }
  if (collects) python.gc_enable();
  return count;
}

static void find_layout(void) {
  static python_frame frames[256]; /* called once */
  if (!python.frame_lasti) return;
  int entered = python_enter();
  if (!entered) return;
  int count = walk_by_functions(frames, 256);
  if (count <= 256) layout_find(&layout, python.current_thread(), frames, count);
  python_leave(entered);
}

int python_open(char *why, size_t room) {
  /* Exported by interpreters without a GIL only. */
  if (function("_Py_MergeZeroLocalRefcount", NULL)) {
    snprintf(why, room, "this Python has no GIL, and Weir reads stacks only under it");
    return 0;
  }
  int all = find(&python.is_initialized, "Py_IsInitialized", NULL) &
            find(&python.current_thread, "PyThreadState_GetUnchecked", "_PyThreadState_UncheckedGet") &
            find(&python.this_thread, "PyGILState_GetThisThreadState", NULL) & find(&python.thread_frame, "PyThreadState_GetFrame", NULL) &
            find(&python.frame_back, "PyFrame_GetBack", NULL) & find(&python.frame_code, "PyFrame_GetCode", NULL) &
            find(&python.frame_line, "PyFrame_GetLineNumber", NULL) & find(&python.code_line, "PyCode_Addr2Line", NULL) &
            find(&python.incref, "Py_IncRef", NULL) & find(&python.decref, "Py_DecRef", NULL) &
            find(&python.attribute, "PyObject_GetAttrString", NULL) & find(&python.utf8, "PyUnicode_AsUTF8AndSize", NULL) &
            find(&python.fetch, "PyErr_Fetch", NULL) & find(&python.restore, "PyErr_Restore", NULL) &
            find(&python.ensure, "PyGILState_Ensure", NULL) & find(&python.release, "PyGILState_Release", NULL) &
            find(&python.first_interpreter, "PyInterpreterState_Head", NULL) &
            find(&python.next_interpreter, "PyInterpreterState_Next", NULL) & find(&python.code_type, "PyCode_Type", NULL);
  find(&python.frame_lasti, "PyFrame_GetLasti", NULL);
  find(&python.is_finalizing, "Py_IsFinalizing", "_Py_IsFinalizing");
  /* In 3.11 a new frame object may start the garbage collector, which runs code of the program. */
  unsigned long *version = function("Py_Version", NULL);
  python.gc_disable = NULL;
  if (version && *version >> 16 == 0x030b && find(&python.gc_enable, "PyGC_Enable", NULL)) find(&python.gc_disable, "PyGC_Disable", NULL);
  if (!all) {
    snprintf(why, room, "this process has no Python whose frames can be read");
    return 0;
  }
  find_layout();
  return 1;
}

int python_is_free(void) { return layout.is_found; }
void python_forget_layout(void) { layout.is_found = 0; }
int python_has_thread(void) { return python.is_initialized() && !(python.is_finalizing && python.is_finalizing()) && python.this_thread(); }

int python_walk(python_frame *frames, int most) {
  return layout.is_found ? layout_walk(&layout, python.this_thread(), frames, most) : walk_by_functions(frames, most);
}

/* A text of a code object; the object that holds its bytes is left in `owned`. */
static weir_text text_of(void *code, const char *name, void **owned) {
  ptrdiff_t bytes = 0;
  *owned = python.attribute(code, name);
  const char *text = *owned ? python.utf8(*owned, &bytes) : NULL;
  return text && bytes >= 0 ? (weir_text){text, bytes < UINT32_MAX ? (uint32_t)bytes : UINT32_MAX} : (weir_text){"?", 1};
}

int python_describe(const python_frame *frame, python_description *description) {
  void *error[3], *unwanted[3];
  const void *type;
  memcpy(&type, (const char *)frame->code + OBJECT_TYPE_AT, sizeof type);
  if (type != python.code_type) {
    if (layout.shim_count < LAYOUT_MOST_SHIMS) {
      /* Other threads read the list. */
      layout.shims[layout.shim_count] = frame->code;
      __atomic_store_n(&layout.shim_count, layout.shim_count + 1, __ATOMIC_RELEASE);
    }
    return 0;
  }
  /* The program may be in the middle of an exception, which our calls must neither see nor replace. */
  python.fetch(&error[0], &error[1], &error[2]);
  description->name = text_of(frame->code, python.frame_lasti ? "co_qualname" : "co_name", &description->owned[0]);
  description->filename = text_of(frame->code, "co_filename", &description->owned[1]);
  description->line = python.frame_lasti ? python.code_line(frame->code, frame->at) : frame->at;
  python.fetch(&unwanted[0], &unwanted[1], &unwanted[2]);
  for (int index = 0; index < 3; index++) {
    if (unwanted[index]) python.decref(unwanted[index]);
  }
  python.restore(error[0], error[1], error[2]);
  return 1;
}

void python_release(python_description *description) {
  for (int index = 0; index < 2; index++) {
    if (description->owned[index]) python.decref(description->owned[index]);
  }
}

void python_keep(void *code) { python.incref(code); }
void python_let_go(void *code) { python.decref(code); }
