// The engine's ranges as the segments and blocks of a PyTorch memory snapshot.
// A stitched block appears as its pieces, each where its memory lies, so that sizes add up to what is reserved.
#include "segments.h"

#include <algorithm>

#include "weir_abi.h"

namespace weir {

namespace {

bool is(const weir_range& range, weir_range_state state) { return static_cast<int>(range.state) == state; }

std::vector<weir_range> ranges_of(weir_device* device) {
  std::vector<weir_range> ranges;
  // Other threads allocate meanwhile, so ask again until all ranges fit.
  for (uint32_t count = weir_device_snapshot(device, nullptr, 0); count > ranges.size();) {
    ranges.resize(count + count / 8 + 64);
    const uint32_t there = weir_device_snapshot(device, ranges.data(), static_cast<uint32_t>(ranges.size()));
    if (there <= ranges.size()) {
      ranges.resize(there);
      break;
    }
    count = there;
  }
  // Addresses without memory belong to no segment. A carved slab appears as the small blocks inside it, and memory of plans as
  // the planned blocks, at their own addresses.
  ranges.erase(std::remove_if(
                   ranges.begin(), ranges.end(),
                   [](const weir_range& r) { return is(r, WEIR_RANGE_UNBACKED) || is(r, WEIR_RANGE_CARVED) || is(r, WEIR_RANGE_PLANNED); }),
               ranges.end());
  std::sort(ranges.begin(), ranges.end(), [](const weir_range& a, const weir_range& b) { return a.address < b.address; });
  return ranges;
}

} // namespace

std::vector<SegmentInfo> segments_of(weir_device* device, c10::DeviceIndex index,
                                     const std::function<std::shared_ptr<c10::GatheredContext>(uint64_t)>& context) {
  std::vector<SegmentInfo> segments;
  double end = 0;
  double stream = -1, small = -1;
  for (const weir_range& range : ranges_of(device)) {
    if (range.address != end || range.stream != stream || range.small != small) {
      SegmentInfo segment;
      segment.device = index;
      segment.address = static_cast<size_t>(range.address);
      segment.stream = reinterpret_cast<decltype(segment.stream)>(static_cast<uintptr_t>(range.stream));
      segment.is_large = range.small == 0;
      segment.is_expandable = true;
      segments.push_back(std::move(segment));
    }
    end = range.address + range.size;
    stream = range.stream;
    small = range.small;

    SegmentInfo& segment = segments.back();
    BlockInfo block;
    block.size = static_cast<size_t>(range.size);
    block.requested_size = static_cast<size_t>(range.requested);
    block.allocated = is(range, WEIR_RANGE_LIVE);
    block.active = block.allocated || is(range, WEIR_RANGE_PENDING) || is(range, WEIR_RANGE_PARKED);
    if (block.allocated && range.given != 0) block.context_when_allocated = context(static_cast<uint64_t>(range.given));
    segment.total_size += block.size;
    if (block.allocated) segment.allocated_size += block.size;
    if (block.active) {
      segment.active_size += block.size;
      segment.requested_size += block.requested_size;
    }
    segment.blocks.push_back(std::move(block));
  }
  return segments;
}

} // namespace weir
