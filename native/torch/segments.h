// The engine's ranges as the segments and blocks of a PyTorch memory snapshot.
#pragma once

#include <functional>
#include <vector>

#include "runtime/weir_runtime.h"
#include "versions/versions.h"

namespace weir {

// One segment per contiguous extent of memory of one stream. `context` gives the stack kept for a block's address.
std::vector<SegmentInfo> segments_of(weir_device* device, c10::DeviceIndex index,
                                     const std::function<std::shared_ptr<c10::GatheredContext>(uint64_t)>& context);

} // namespace weir
