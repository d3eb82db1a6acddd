// What autograd does in this thread, read without PyTorch's headers of autograd: they would multiply the compile time.
// Virtual functions of a node are not called: those of nodes that are written in Python wait for the GIL.
#include "autograd.h"

#include <c10/util/intrusive_ptr.h>
#include <dlfcn.h>

#include <cstring>
#include <memory>
#include <typeinfo>

namespace weir {

namespace {

// The base of a node is one of these. The numbers that we need follow it: its number, two others, its thread.
struct SharedBase : std::enable_shared_from_this<SharedBase> {
  virtual ~SharedBase() = default;
};
constexpr size_t kIntrusiveBase = 16; // the table of virtual functions, and the count of references
constexpr size_t kThreadAfterNumber = 24;

// Exported by PyTorch, and named after the type of the pointers to nodes.
constexpr const char* kTakesSharedNodes =
    "_ZN5torch8autograd6Engine23execute_with_graph_taskERKSt10shared_ptrINS0_9GraphTaskEES2_INS0_4NodeEEONS0_11InputBufferE";
constexpr const char* kTakesIntrusiveNodes =
    "_ZN5torch8autograd6Engine23execute_with_graph_taskERKSt10shared_ptrINS0_9GraphTaskEEN3c1013intrusive_ptrINS0_4NodeENS7_6detail34"
    "intrusive_target_default_null_typeIS9_EEEEONS0_11InputBufferE";

template <typename Function>
Function symbol(void* library, const char* name) {
  return reinterpret_cast<Function>(dlsym(library, name));
}

} // namespace

Autograd::Autograd() noexcept {
  void* const library = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
  if (!library) return;
  constexpr const char* kCurrentNode = "_ZN5torch8autograd16get_current_nodeEv";
  next_number_ = symbol<uint64_t (*)()>(library, "_ZN2at15sequence_number4peekEv");
  thread_ = symbol<uint64_t (*)()>(library, "_ZN2at14RecordFunction15currentThreadIdEv");
  if (!next_number_ || !thread_) return;
  if (dlsym(library, kTakesSharedNodes)) shared_node_ = symbol<std::shared_ptr<void> (*)()>(library, kCurrentNode);
  else if (dlsym(library, kTakesIntrusiveNodes) && sizeof(c10::intrusive_ptr_target) == kIntrusiveBase)
    intrusive_node_ = symbol<IntrusivePointer (*)()>(library, kCurrentNode);
}

// While a node runs, the engine keeps it, so the pointer stays valid and ours is never the last.
const void* Autograd::current_node() const noexcept {
  if (shared_node_) return shared_node_().get();
  const IntrusivePointer pointer = intrusive_node_();
  void* const found = pointer.node;
  // Not by c10's own class: it takes care of Python objects at the last references but one, and asserts that there are none.
  if (found) __atomic_fetch_sub(reinterpret_cast<uint64_t*>(static_cast<char*>(found) + sizeof(void*)), 1, __ATOMIC_ACQ_REL);
  return found;
}

weir_autograd Autograd::now() const noexcept {
  weir_autograd state{};
  if (!shared_node_ && !intrusive_node_) return state;
  const char* const node = static_cast<const char*>(current_node());
  if (node) {
    const std::type_info& type = typeid(*reinterpret_cast<const SharedBase*>(node));
    const char* const number = node + (shared_node_ ? sizeof(SharedBase) : kIntrusiveBase);
    state.node_class = &type;
    state.class_name = type.name();
    std::memcpy(&state.node_number, number, sizeof state.node_number);
    std::memcpy(&state.node_thread, number + kThreadAfterNumber, sizeof state.node_thread);
    return state;
  }
  const uint64_t next = next_number_();
  // Also where gradients are off: functions that are written in Python run so, after their node was made.
  state.made_nodes = next > 0;
  state.last_number = next - 1;
  state.thread = thread_();
  return state;
}

} // namespace weir
