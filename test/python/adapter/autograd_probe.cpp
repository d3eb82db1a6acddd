// What native/torch/autograd.cpp says of this thread, and the call stacks that come of it, for a program in Python: see
// ../autograd.test.ts.
#include "torch/autograd.cpp"

#define EXPORT extern "C" __attribute__((visibility("default")))

static const weir::Autograd& autograd() {
  static const weir::Autograd found;
  return found;
}

EXPORT void probe(weir_autograd* state) { *state = autograd().now(); }

static weir_recorder* recorder;
static weir_stacks* stacks;

EXPORT int start(const char* directory) {
  char why[256];
  stacks = weir_stacks_new(0, why, sizeof why);
  recorder = weir_recorder_open_with_stacks(directory, "weir", "0.0.0", 1 << 10, 1 << 10);
  return stacks && recorder;
}

// A row with the stack of this thread, as a request of so many bytes would leave.
EXPORT void request(uint64_t bytes) {
  const weir_autograd state = autograd().now();
  const int32_t before = weir_recorder_hold_stack(weir_stacks_capture(stacks, recorder, &state));
  weir_event event{};
  event.kind = WEIR_ALLOC;
  event.address = bytes << 20;
  event.size = bytes;
  event.stream = weir_recorder_stream(recorder, 0, 0);
  event.pool = -1;
  weir_recorder_put(recorder, event);
  weir_recorder_hold_stack(before);
}
