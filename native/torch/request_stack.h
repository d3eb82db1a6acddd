// The call stack of the request that this thread makes, for the rows that the request leads to.
// It is made before any lock is taken, and ends with the request.
#pragma once

#include <optional>

#include "recording.h"

namespace weir {

class RequestStack {
 public:
  RequestStack(Recording* recording, size_t bytes);
  ~RequestStack();
  RequestStack(const RequestStack&) = delete;
  RequestStack& operator=(const RequestStack&) = delete;

  // The request fails. To be called without a lock, before the failure is recorded: the stack of a small request is found only now.
  static void before_failure();
  // The row of a failure, which comes under PyTorch's lock. If it has no stack yet, it is kept until the request has left the
  // allocator.
  static bool keeps(const weir_event& failure);

 private:
  void capture();

  Recording* const recording_;
  RequestStack* const outer_;
  int32_t before_ = -1;
  bool holds_ = false;
  std::optional<weir_event> failure_;
};

} // namespace weir
