// The call stack of the request that this thread makes.
#include "request_stack.h"

namespace weir {

namespace {

thread_local RequestStack* innermost = nullptr;

} // namespace

RequestStack::RequestStack(Recording* recording, size_t bytes) : recording_(recording), outer_(innermost) {
  if (C10_LIKELY(!recording->stacks_wanted())) return;
  innermost = this;
  before_ = weir_recorder_hold_stack(-1);
  if (bytes > 0 && bytes >= recording->stacks_from()) capture();
}

RequestStack::~RequestStack() {
  if (C10_LIKELY(!recording_->stacks_wanted())) return;
  if (C10_UNLIKELY(failure_.has_value())) {
    capture();
    if (weir_recorder* const recorder = recording_->get()) weir_recorder_put(recorder, *failure_);
  }
  weir_recorder_hold_stack(before_);
  innermost = outer_;
}

void RequestStack::capture() {
  if (holds_) return;
  holds_ = true;
  weir_recorder_hold_stack(recording_->capture_stack());
}

void RequestStack::before_failure() {
  if (innermost) innermost->capture();
}

bool RequestStack::keeps(const weir_event& failure) {
  if (!innermost || innermost->holds_) return false;
  innermost->failure_ = failure;
  return true;
}

} // namespace weir
