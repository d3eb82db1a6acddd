// All of the adapter in one unit: PyTorch's headers are most of the time it takes to compile, and are read once so.
#include "adapter.cpp"
#include "adapter_state.cpp"
#include "history.cpp"
#include "install.cpp"
#include "passthrough.cpp"
#include "recording.cpp"
#include "segments.cpp"
#include "shortage.cpp"
