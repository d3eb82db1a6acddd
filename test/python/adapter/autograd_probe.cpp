// What native/torch/autograd.cpp says of this thread, for a program in Python: see ../autograd.test.ts.
#include "torch/autograd.cpp"

extern "C" __attribute__((visibility("default"))) void probe(weir_autograd* state) {
  static const weir::Autograd autograd;
  *state = autograd.now();
}
