// What the Python side tells about memory: categories of allocations, and the operators that use them.
// After installation.cpp in the compilation unit, whose recording it writes to.
#include <algorithm>
#include <cstring>

#include "options.h"

namespace weir {

namespace {

// Rows are added in pieces: whoever allocates waits for the same lock.
constexpr uint32_t kRowsAtOnce = 128;

weir_recorder* recorder_of(int device) {
  if (!recording || device < 0 || device >= WEIR_RING_DEVICES || !installed->used(device)) return nullptr;
  return recording->get();
}

weir_event row_of(weir_recorder* recorder, int device, uint8_t kind) {
  weir_event event{};
  event.kind = kind;
  event.device = static_cast<uint16_t>(device);
  event.stream = std::max(weir_recorder_stream(recorder, device, 0), 0);
  event.pool = -1;
  event.stack = -1;
  return event;
}

} // namespace

} // namespace weir

void weir_torch_categories(int device, const uint64_t* addresses, const uint8_t* categories, uint32_t count) {
  weir_recorder* const recorder = weir::recorder_of(device);
  if (!recorder) return;
  weir_event blank = weir::row_of(recorder, device, WEIR_CATEGORY);
  blank.fields = WEIR_EVENT_DETAIL;
  for (uint32_t from = 0; from < count; from += weir::kRowsAtOnce) {
    weir_event rows[weir::kRowsAtOnce];
    const uint32_t length = std::min(weir::kRowsAtOnce, count - from);
    for (uint32_t index = 0; index < length; index++) {
      rows[index] = blank;
      rows[index].address = addresses[from + index];
      rows[index].detail = categories[from + index];
    }
    weir_recorder_put_all(recorder, rows, length);
  }
}

void weir_torch_operator(const char* name, int device, double microseconds, const uint64_t* addresses, const uint8_t* writes,
                         uint32_t count) {
  weir_recorder* const recorder = weir::recorder_of(device);
  if (!recorder || !name || !(microseconds >= 0)) return;
  weir_event blank = weir::row_of(recorder, device, WEIR_READ);
  // Rows are in the order of their times, so all have that of the operator. Its results may have been allocated since: then readers
  // move it behind them.
  blank.time_us = weir_recorder_now(recorder) - microseconds;
  weir_event rows[weir::kRowsAtOnce];
  rows[0] = blank;
  rows[0].kind = WEIR_OPERATOR;
  std::memcpy(&rows[0].size, &microseconds, sizeof microseconds);
  rows[0].detail = static_cast<int32_t>(weir_recorder_string(recorder, name));
  rows[0].fields = WEIR_EVENT_DETAIL;
  uint32_t length = 1;
  for (uint32_t index = 0; index < count; index++) {
    if (length == weir::kRowsAtOnce) {
      weir_recorder_put_all(recorder, rows, length);
      length = 0;
    }
    rows[length] = blank;
    rows[length].kind = writes[index] ? WEIR_WRITE : WEIR_READ;
    rows[length++].address = addresses[index];
  }
  weir_recorder_put_all(recorder, rows, length);
}
