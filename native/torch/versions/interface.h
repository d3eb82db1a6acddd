// PyTorch's CUDAAllocator in one form for all versions: a class that passes everything on to PyTorch's own allocator, and functions
// of ours in place of those whose signature changed or that some versions lack. The build stops where functions.h is not complete.
#pragma once

#include <cstddef>
#include <cstring>
#include <string>
#include <type_traits>
#include <unordered_set>
#include <utility>
#include <vector>

#include "versions.h"

namespace weir {

class Interface : public CUDAAllocator {
 public:
  explicit Interface(CUDAAllocator* native) : native_(native), native_deleter_(native->raw_deleter()) {}

#define WEIR_KNOWN(result, name, parameters, qualifiers)
#define WEIR_PASSED(result, name, parameters, arguments, qualifiers) \
  result name parameters qualifiers override { return native_->name arguments; }
#define WEIR_ADAPTED(result, name, parameters, call) \
  result name parameters final { return call; }
  using CUDAAllocator::recordStream;
#include "functions.h"
#undef WEIR_KNOWN
#undef WEIR_PASSED
#undef WEIR_ADAPTED

  // Ours. A version that lacks the function never calls it.
  virtual void empty_cache(MempoolId_t id) { calls::empty_cache(native_, id); }
  virtual SnapshotInfo take_snapshot(MempoolId_t id, bool include_traces) { return calls::take_snapshot(native_, id, include_traces); }
  virtual void record_history(bool on, CreateContextFn gather, size_t most, RecordContext when, bool clear, const Words& skip) {
    calls::record_history(native_, on, gather, most, when, clear, skip);
  }
  virtual void set_use_on_oom(DeviceIndex device, MempoolId_t id, bool use) { calls::set_use_on_oom(native_, device, id, use); }
  virtual void mark_capture(DeviceIndex device, bool begins) { calls::mark_capture(native_, device, begins); }
  virtual void push_compile_context(std::string& context) { calls::push_compile_context(native_, context); }
  virtual void pop_compile_context() { calls::pop_compile_context(native_); }
  virtual void set_user_metadata(const std::string& metadata) { calls::set_user_metadata(native_, metadata); }
  virtual std::string get_user_metadata() { return calls::get_user_metadata(native_); }
  virtual void annotate(const void* ptr, const std::string& metadata) { calls::annotate(native_, ptr, metadata); }
  virtual Context context_at(const void* ptr) { return calls::context_at(native_, ptr); }
  virtual MemoryInfo memory_info(DeviceIndex device) { return calls::memory_info(native_, device); }
  virtual void attach_rejection_observer(RejectionObserver observer) { calls::attach_rejection_observer(native_, std::move(observer)); }
  virtual DataPtr allocate_at(size_t bytes, void* address) { return calls::allocate_at(native_, bytes, address); }

 protected:
  CUDAAllocator* const native_;
  const c10::DeleterFnPtr native_deleter_;
};

static_assert(!std::is_abstract_v<Interface>, "weir: PyTorch's allocator demands a function that Weir does not know");

// ---- The table of virtual functions must be the one that functions.h lists: a function with a default that we do not know would be
// left to that default, and PyTorch's allocator, which knows it, would never hear of the call.

// The Itanium C++ ABI: a pointer to a virtual member function holds 1 + its offset in the table.
template <typename Function>
inline std::ptrdiff_t slot_of(Function function) {
  std::ptrdiff_t words[2];
  static_assert(sizeof function == sizeof words, "weir: this compiler lays out classes in an unknown way");
  std::memcpy(words, &function, sizeof words);
#if defined(__aarch64__)
  return words[0] / static_cast<std::ptrdiff_t>(sizeof(void*)); // the 1 is in the second word
#else
  return (words[0] - 1) / static_cast<std::ptrdiff_t>(sizeof(void*));
#endif
}

struct Afterwards : CUDAAllocator {
  virtual void first_of_ours() = 0;
};

// Called only where a comparison fails, which compilers find out while they optimize: then the attribute is an error. Where they
// cannot, interface_differs tells it before anything is installed.
#if defined(__has_attribute)
#if __has_attribute(error)
#define WEIR_STOPS_BUILD(sentence) __attribute__((error(sentence)))
#endif
#endif
#ifndef WEIR_STOPS_BUILD
#define WEIR_STOPS_BUILD(sentence)
#endif

#define WEIR_JOINED(a, b) a##b
#define WEIR_STOP(number) WEIR_JOINED(weir_allocator_of_pytorch_differs_, number)
#define WEIR_EXPECTED(place, slot) WEIR_EXPECTED_NUMBERED(place, slot, WEIR_STOP(__COUNTER__))
#define WEIR_EXPECTED_NUMBERED(place, slot, stop)                                                                                    \
  if (!differs) {                                                                                                                    \
    void stop() WEIR_STOPS_BUILD("weir: before " place " PyTorch's allocator has a function that Weir does not know, or lacks one"); \
    const std::ptrdiff_t found = slot;                                                                                               \
    if (__builtin_constant_p(found) && found != expected) stop();                                                                    \
    if (found != expected) differs = place;                                                                                          \
    expected++;                                                                                                                      \
  }

// The name of the first function that is not where functions.h has it; null if all are.
inline const char* interface_differs() {
  const char* differs = nullptr;
  std::ptrdiff_t expected = 2; // after the two entries of the destructor
#define WEIR_KNOWN(result, name, parameters, qualifiers) \
  WEIR_EXPECTED(#name, slot_of(static_cast<result(CUDAAllocator::*) parameters qualifiers>(&CUDAAllocator::name)))
#define WEIR_PASSED(result, name, parameters, arguments, qualifiers) WEIR_KNOWN(result, name, parameters, qualifiers)
#define WEIR_ADAPTED(result, name, parameters, call) WEIR_KNOWN(result, name, parameters, )
#include "functions.h"
#undef WEIR_KNOWN
#undef WEIR_PASSED
#undef WEIR_ADAPTED
  WEIR_EXPECTED("the end", slot_of(&Afterwards::first_of_ours))
  return differs;
}

} // namespace weir
