/* The call stack of the request that this thread is about to make: Python frames, the forward line of a backward pass, frames of C.
 *
 * To be called without any lock of ours or of PyTorch's allocator: for frames that were never seen before it waits for the GIL, to
 * learn their names. Whoever has the GIL may wait for those locks. Nothing here throws. */
#ifndef WEIR_CALL_STACKS_H
#define WEIR_CALL_STACKS_H

#include "weir_runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_stacks weir_stacks;

/* What autograd does in this thread. Zeros: nothing is known. */
typedef struct weir_autograd {
  /* The node whose backward pass runs: its class (an address and a mangled name), its number and the thread that made it. */
  const void *node_class;
  const char *class_name; /* NULL: no backward pass runs */
  uint64_t node_number, node_thread;
  /* The forward pass: whether this thread has made nodes, the number of the last one, and of the thread. */
  int made_nodes;
  uint64_t last_number, thread;
} weir_autograd;

/* With frames of C and C++ if `natively`. NULL and a reason if there are no Python frames to read. */
weir_stacks *weir_stacks_new(int natively, char *why, size_t room);
/* The number of the stack in the recording; -1 if there is none, or no room for it, which is counted. */
int32_t weir_stacks_capture(weir_stacks *stacks, weir_recorder *recorder, const weir_autograd *autograd);
/* In the child of a fork: another thread of the parent may have held the lock. */
void weir_stacks_forked(weir_stacks *stacks);

#ifdef __cplusplus
}
#endif

#endif
