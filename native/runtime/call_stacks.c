/* The call stack of a request, found again by the addresses of its code: only new frames cost names.
 * A thread compares its stack with its last one first, from the outermost frame on, so most frames cost one comparison. */
#define _GNU_SOURCE
#include "call_stacks.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "python_frames.h"

#define DEPTH WEIR_RING_STACK_DEPTH
/* Frames that are known by their code. A program that compiles ever new code must not keep all of it alive. */
#define MOST_KNOWN (64u << 10)
/* Nodes of the autograd graph whose forward stack is remembered: those made last. */
#define FORWARD_NODES (128u << 10)
#define NATIVE_DEPTH 64

/* What a frame is found by, beside its code: the instruction, or one of these. */
enum { AT_BACKWARD = INT32_MIN, AT_NATIVE, AT_CLASSIFIED };
/* What an address of machine code is. */
enum { PLAIN_CODE = 1, OWN_CODE, PYTHON_CODE };

typedef struct known_frame {
  void *code; /* NULL: empty; of Python: we have a reference */
  int32_t at;
  int32_t parent;
  int32_t stack;
  int32_t is_python;
} known_frame;

typedef struct forward_node {
  uint64_t number; /* plus 1; 0: empty */
  uint64_t thread;
  int32_t stack;
} forward_node;

struct weir_stacks {
  int natively;
  /* Inside of it nothing waits, and Python is not used. */
  pthread_mutex_t mutex;
  _Atomic(weir_recorder *) recorder; /* whose numbers are known */
  atomic_uint_fast64_t generation; /* changes when known frames are forgotten */
  known_frame *known;
  uint32_t known_count;
  known_frame *outdated; /* whose code is to be let go */
  forward_node *forward;
  void *engine_code; /* of the Python function that runs backward passes; we have a reference */
  char *(*demangle)(const char *, char *, size_t *, int *);
};

/* The last stack of this thread, outermost frame first. */
static _Thread_local struct {
  uint64_t generation;
  uint64_t noted; /* the last node whose forward stack was remembered, plus 1 */
  int busy;
  int depth;
  int32_t base;
  struct {
    python_frame frame;
    int32_t stack;
  } frames[DEPTH];
  python_frame walked[DEPTH];
} last;

weir_stacks *weir_stacks_new(int natively, char *why, size_t room) {
  if (!python_open(why, room)) return NULL;
  weir_stacks *stacks = calloc(1, sizeof *stacks);
  if (!stacks || pthread_mutex_init(&stacks->mutex, NULL) != 0) {
    snprintf(why, room, "there is no memory for them");
    free(stacks);
    return NULL;
  }
  stacks->natively = natively;
  stacks->generation = 1;
  void *demangle = dlsym(RTLD_DEFAULT, "__cxa_demangle");
  memcpy(&stacks->demangle, &demangle, sizeof demangle);
  /* The first call loads a library, which is better done without company. */
  void *unused[1];
  if (natively) (void)backtrace(unused, 1);
  return stacks;
}

/* Numbers are of one recording. What is forgotten here is not let go: nobody may have the GIL now. */
static void forget(weir_stacks *stacks) {
  stacks->known = NULL;
  stacks->known_count = 0;
  stacks->outdated = NULL;
  stacks->forward = NULL;
  stacks->engine_code = NULL;
  atomic_fetch_add(&stacks->generation, 1);
}

void weir_stacks_forked(weir_stacks *stacks) {
  if (!stacks) return;
  pthread_mutex_init(&stacks->mutex, NULL);
  atomic_store(&stacks->recorder, NULL);
  forget(stacks);
  last.busy = 0;
  last.noted = 0;
}

static void adopt(weir_stacks *stacks, weir_recorder *recorder) {
  if (atomic_load_explicit(&stacks->recorder, memory_order_acquire) == recorder) return;
  pthread_mutex_lock(&stacks->mutex);
  if (atomic_load(&stacks->recorder) != recorder) {
    if (atomic_load(&stacks->recorder)) forget(stacks);
    atomic_store(&stacks->recorder, recorder);
  }
  pthread_mutex_unlock(&stacks->mutex);
}

/* ---- Known frames. */

/* The entry of a frame, or the empty entry where it belongs. */
static known_frame *place_of(known_frame *known, const void *code, int32_t at, int32_t parent) {
  uint64_t hash = ((uint64_t)(uintptr_t)code ^ (uint64_t)(uint32_t)at << 32 ^ (uint64_t)(uint32_t)parent << 7) * 0x9e3779b97f4a7c15u;
  for (uint32_t index = (uint32_t)(hash >> 40);; index++) {
    known_frame *entry = &known[index & (2 * MOST_KNOWN - 1)];
    if (!entry->code || (entry->code == code && entry->at == at && entry->parent == parent)) return entry;
  }
}

/* -1 if it is not known. */
static int32_t find(weir_stacks *stacks, const void *code, int32_t at, int32_t parent) {
  pthread_mutex_lock(&stacks->mutex);
  const known_frame *entry = stacks->known ? place_of(stacks->known, code, at, parent) : NULL;
  int32_t stack = entry && entry->code ? entry->stack : -1;
  pthread_mutex_unlock(&stacks->mutex);
  return stack;
}

/* Remembers a frame. 0 if there is no room: only a thread with the GIL may make some. */
static int remember(weir_stacks *stacks, void *code, int32_t at, int32_t parent, int32_t stack, int is_python) {
  int done = 0;
  pthread_mutex_lock(&stacks->mutex);
  if (stacks->known_count >= MOST_KNOWN && is_python && !stacks->outdated) {
    stacks->outdated = stacks->known;
    stacks->known = NULL;
    stacks->known_count = 0;
    atomic_fetch_add(&stacks->generation, 1);
  }
  if (!stacks->known) stacks->known = calloc(2 * MOST_KNOWN, sizeof *stacks->known);
  if (stacks->known && stacks->known_count < MOST_KNOWN) {
    known_frame *entry = place_of(stacks->known, code, at, parent);
    done = !entry->code;
    if (done) {
      *entry = (known_frame){code, at, parent, stack, is_python};
      stacks->known_count++;
    }
  }
  pthread_mutex_unlock(&stacks->mutex);
  return done;
}

/* With the GIL and without a lock: code of the program may run. */
static void tidy(weir_stacks *stacks) {
  if (!__atomic_load_n(&stacks->outdated, __ATOMIC_RELAXED)) return;
  pthread_mutex_lock(&stacks->mutex);
  known_frame *outdated = stacks->outdated;
  stacks->outdated = NULL;
  pthread_mutex_unlock(&stacks->mutex);
  if (!outdated) return;
  for (uint32_t index = 0; index < 2 * MOST_KNOWN; index++) {
    if (outdated[index].code && outdated[index].is_python) python_let_go(outdated[index].code);
  }
  free(outdated);
}

static weir_text text(const char *value) { return (weir_text){value, (uint32_t)strlen(value)}; }

static int is_text(weir_text value, const char *other) {
  return value.bytes == strlen(other) && memcmp(value.text, other, value.bytes) == 0;
}

/* ---- Python. */

/* The function of torch.autograd.graph that every backward pass is called from. */
#define RUNS_BACKWARD "_engine_run_backward"

/* The stack of a new frame; the parent's if it is none of the program; -1 if there is no room. With the GIL. */
static int32_t new_python_frame(weir_stacks *stacks, weir_recorder *recorder, const python_frame *frame, int32_t parent) {
  python_description description;
  if (!python_describe(frame, &description)) {
    last.generation = 0;
    return parent;
  }
  int32_t stack = weir_recorder_stack(recorder, parent, description.name, description.filename, description.line);
  if (!__atomic_load_n(&stacks->engine_code, __ATOMIC_RELAXED) && is_text(description.name, RUNS_BACKWARD)) {
    python_keep(frame->code);
    __atomic_store_n(&stacks->engine_code, frame->code, __ATOMIC_RELEASE);
  }
  python_release(&description);
  if (stack < 0) return -1;
  python_keep(frame->code);
  if (!remember(stacks, frame->code, frame->at, parent, stack, 1)) {
    last.generation = 0;
    python_let_go(frame->code); /* not the last: the frame runs */
  }
  return stack;
}

/* Stacks of the frames from `depth` on, outermost first, on top of `stack`. Takes the GIL for those that are new. */
static int32_t name_frames(weir_stacks *stacks, weir_recorder *recorder, int depth, int count, int32_t stack) {
  int entered = 0;
  for (; depth < count && stack >= -1; depth++) {
    const python_frame *frame = &last.walked[count - 1 - depth];
    int32_t parent = stack;
    stack = find(stacks, frame->code, frame->at, parent);
    if (stack < 0 && !entered) {
      /* Another thread may name it while this one waits. */
      entered = python_enter();
      if (entered) stack = find(stacks, frame->code, frame->at, parent);
    }
    if (stack < 0) stack = entered ? new_python_frame(stacks, recorder, frame, parent) : -1;
    if (stack < 0) stack = -2;
    last.frames[depth].frame = *frame;
    last.frames[depth].stack = stack;
  }
  if (entered) {
    tidy(stacks);
    python_leave(entered);
  }
  return stack;
}

/* Without the frames that called the backward pass, if it runs in the thread that did: they are not those of its nodes. */
static int inside_backward(int count, const void *engine_code) {
  for (int index = 0; index < count && index < DEPTH; index++) {
    if (last.walked[index].code == engine_code) return index;
  }
  return count;
}

/* The frames of this thread on top of a stack. -2 if there is no room for them. */
static int32_t python_stack(weir_stacks *stacks, weir_recorder *recorder, int32_t base, int is_backward) {
  uint64_t generation = atomic_load(&stacks->generation);
  const void *engine_code = __atomic_load_n(&stacks->engine_code, __ATOMIC_ACQUIRE);
  int count = python_walk(last.walked, DEPTH);
  if (is_backward && engine_code) count = inside_backward(count, engine_code);
  if (count == 0) return base;
  if (count > DEPTH) {
    base = weir_recorder_stack(recorder, base, text("(outer frames are left out)"), text(""), 0);
    if (base < 0) return -2;
    count = DEPTH;
  }
  int depth = 0;
  if (last.generation == generation && last.base == base) {
    while (depth < count && depth < last.depth && last.frames[depth].frame.code == last.walked[count - 1 - depth].code &&
           last.frames[depth].frame.at == last.walked[count - 1 - depth].at) {
      depth++;
    }
  }
  int32_t stack = depth > 0 ? last.frames[depth - 1].stack : base;
  if (depth == count) return stack;
  last.generation = generation;
  last.base = base;
  last.depth = count;
  stack = name_frames(stacks, recorder, depth, count, stack);
  if (stack < 0) last.generation = 0;
  /* Seen for the first time just now. */
  if (is_backward && !engine_code && stacks->engine_code) return python_stack(stacks, recorder, base, is_backward);
  return stack;
}

/* Where frames can be read only with the GIL, a backward pass waits for it only if it has it already: it may hold locks of
 * autograd, and mostly runs no Python. */
static int32_t any_python_stack(weir_stacks *stacks, weir_recorder *recorder, int32_t base, int is_backward) {
  if (!python_has_thread()) return base;
  if (python_is_free()) return python_stack(stacks, recorder, base, is_backward);
  if (is_backward && !python_is_ours()) return base;
  int entered = python_enter();
  if (!entered) return base;
  int32_t stack = python_stack(stacks, recorder, base, is_backward);
  python_leave(entered);
  return stack;
}

/* ---- Autograd. */

static forward_node *forward_place(forward_node *forward, uint64_t number, uint64_t thread) {
  return &forward[(number + thread * 0x9e3779b9u) & (FORWARD_NODES - 1)];
}

/* An operator makes its node before it allocates, so its first request after that is its own. */
static void note_forward(weir_stacks *stacks, const weir_autograd *autograd, int32_t stack) {
  if (last.noted == autograd->last_number + 1) return;
  last.noted = autograd->last_number + 1;
  pthread_mutex_lock(&stacks->mutex);
  if (!stacks->forward) stacks->forward = calloc(FORWARD_NODES, sizeof *stacks->forward);
  if (stacks->forward) {
    *forward_place(stacks->forward, autograd->last_number, autograd->thread) =
        (forward_node){autograd->last_number + 1, autograd->thread, stack};
  }
  pthread_mutex_unlock(&stacks->mutex);
}

static int32_t forward_stack(weir_stacks *stacks, const weir_autograd *autograd) {
  int32_t stack = -1;
  pthread_mutex_lock(&stacks->mutex);
  if (stacks->forward) {
    const forward_node *node = forward_place(stacks->forward, autograd->node_number, autograd->node_thread);
    if (node->number == autograd->node_number + 1 && node->number != 0 && node->thread == autograd->node_thread) stack = node->stack;
  }
  pthread_mutex_unlock(&stacks->mutex);
  return stack;
}

/* The last name in `N5torch8autograd9generated14AddmmBackward0E`, or the whole text. */
static weir_text last_name(const char *mangled) {
  weir_text found = text(mangled);
  const char *at = mangled + (*mangled == 'N');
  while (*at >= '1' && *at <= '9') {
    char *end;
    unsigned long length = strtoul(at, &end, 10);
    if (length > strlen(end)) break;
    found = (weir_text){end, (uint32_t)length};
    at = end + length;
  }
  return found;
}

static int32_t backward_stack(weir_stacks *stacks, weir_recorder *recorder, const weir_autograd *autograd) {
  int32_t parent = forward_stack(stacks, autograd);
  int32_t stack = find(stacks, autograd->node_class, AT_BACKWARD, parent);
  if (stack >= 0) return stack;
  char name[256];
  weir_text node = last_name(autograd->class_name);
  /* All functions that are written in Python are of this class. Their own frames say which. */
  if (node.bytes == 6 && memcmp(node.text, "PyNode", 6) == 0) node = text("autograd.Function");
  snprintf(name, sizeof name, "backward of %.*s", (int)(node.bytes < 200 ? node.bytes : 200), node.text);
  stack = weir_recorder_stack(recorder, parent, text(name), text(""), 0);
  if (stack < 0) return -2;
  remember(stacks, (void *)(uintptr_t)autograd->node_class, AT_BACKWARD, parent, stack, 0);
  return stack;
}

/* ---- C and C++. */

static int32_t kind_of(weir_stacks *stacks, void *address) {
  int32_t kind = find(stacks, address, AT_CLASSIFIED, -1);
  if (kind > 0) return kind;
  Dl_info here, there;
  kind = PLAIN_CODE;
  if (dladdr(address, &there)) {
    if (dladdr((void *)(uintptr_t)&weir_stacks_capture, &here) && here.dli_fbase == there.dli_fbase) kind = OWN_CODE;
    else if (there.dli_sname && strncmp(there.dli_sname, "_PyEval_", 8) == 0) kind = PYTHON_CODE;
  }
  remember(stacks, address, AT_CLASSIFIED, -1, kind, 0);
  return kind;
}

static int32_t new_native_frame(weir_stacks *stacks, weir_recorder *recorder, void *address, int32_t parent) {
  Dl_info found = {0};
  char unnamed[32];
  snprintf(unnamed, sizeof unnamed, "%p", address);
  int known = dladdr(address, &found);
  const char *symbol = known && found.dli_sname ? found.dli_sname : NULL;
  char *demangled = symbol && stacks->demangle ? stacks->demangle(symbol, NULL, NULL, NULL) : NULL;
  weir_text name = text(demangled ? demangled : symbol ? symbol : unnamed);
  int32_t stack = weir_recorder_stack(recorder, parent, name, text(known && found.dli_fname ? found.dli_fname : ""), 0);
  free(demangled);
  if (stack >= 0) remember(stacks, address, AT_NATIVE, parent, stack, 0);
  return stack;
}

/* The frames of C and C++ between the innermost Python frame and the request. */
static int32_t native_stack(weir_stacks *stacks, weir_recorder *recorder, int32_t base) {
  void *addresses[NATIVE_DEPTH];
  int count = backtrace(addresses, NATIVE_DEPTH), first = 0, end;
  while (first < count && kind_of(stacks, addresses[first]) == OWN_CODE) first++;
  for (end = first; end < count && kind_of(stacks, addresses[end]) != PYTHON_CODE;) end++;
  int32_t stack = base;
  while (end-- > first) {
    int32_t parent = stack;
    stack = find(stacks, addresses[end], AT_NATIVE, parent);
    if (stack < 0) stack = new_native_frame(stacks, recorder, addresses[end], parent);
    if (stack < 0) return -2;
  }
  return stack;
}

/* ---- Together. */

static int32_t capture(weir_stacks *stacks, weir_recorder *recorder, const weir_autograd *autograd) {
  int32_t stack = -1;
  if (autograd->class_name) stack = backward_stack(stacks, recorder, autograd);
  if (stack >= -1) stack = any_python_stack(stacks, recorder, stack, autograd->class_name != NULL);
  if (stack >= 0 && !autograd->class_name && autograd->made_nodes) note_forward(stacks, autograd, stack);
  if (stack >= -1 && stacks->natively) stack = native_stack(stacks, recorder, stack);
  return stack;
}

int32_t weir_stacks_capture(weir_stacks *stacks, weir_recorder *recorder, const weir_autograd *autograd) {
  /* Once more in the same thread: a signal handler, or the program's own code for an object that Python lets go. */
  if (last.busy) return -1;
  last.busy = 1;
  adopt(stacks, recorder);
  int32_t stack = capture(stacks, recorder, autograd);
  if (stack == -2) weir_recorder_lose_stack(recorder);
  last.busy = 0;
  return stack < 0 ? -1 : stack;
}
