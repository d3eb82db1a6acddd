// The message of an out-of-memory error: the request, the memory there is and where, and what would help.
// Figures of our memory are of the request's first failure. Figures of the GPU were read after everything had been tried.
#include "shortage.h"

#include <algorithm>
#include <sstream>

#include "versions/versions.h"

namespace weir {

namespace {

uint64_t above(uint64_t larger, uint64_t smaller) { return larger > smaller ? larger - smaller : 0; }

// Memory of the GPU that other programs and CUDA itself hold.
uint64_t foreign(const weir_shortage& s) { return above(s.device_total, s.device_free + s.reserved); }

// The largest request that would have been served: by a free piece, by stitching, or with new memory.
uint64_t would_fit(const weir_shortage& s) {
  uint64_t fresh = s.device_free;
  if (s.limit) fresh = std::min(fresh, above(s.limit, s.reserved));
  const uint64_t room = std::max(s.largest_piece, std::max(s.assemblable, fresh));
  // A request that was refused must not be said to fit.
  return room < s.requested ? room / WEIR_BLOCK_UNIT * WEIR_BLOCK_UNIT : 0;
}

std::string advice(const weir_shortage& s, uint64_t run_limit) {
  if (s.driver_error[0] && s.device_free >= s.requested && (!s.limit || s.limit >= s.reserved + s.requested)) {
    return "Memory was not short: the driver refused a call. Trying again may help; if it happens again, look at the kernel's log (dmesg) "
           "for NVRM.";
  }
  const uint64_t missing = above(s.reserved + s.requested, s.limit);
  if (s.limit && s.device_free + s.largest_piece >= s.requested) {
    const bool ours = s.limit == run_limit;
    return "The limit is what stands in the way: raise " +
           std::string(ours ? "--limit (weir run)" : "the fraction given to torch.cuda.set_per_process_memory_fraction") + " by up to " +
           format_size(std::min(missing ? missing : s.requested, s.requested)) + ".";
  }
  if (s.outside >= s.requested) {
    return "Private pools hold " + format_size(s.outside) + ": drop CUDA graphs or MemPools that are no longer used.";
  }
  if (s.free_elsewhere >= s.requested) {
    return "Other streams hold " + format_size(s.free_elsewhere) +
           " of free memory that could not be lent: synchronize them, and allocate on fewer streams.";
  }
  if (foreign(s) >= s.requested + (2ull << 30)) {
    return format_size(foreign(s)) + " of the GPU are held by other processes and by CUDA itself: stop what else runs there.";
  }
  return "The program needs the memory for what is live: make the batch smaller, or use activation checkpointing.";
}

} // namespace

std::string explain_shortage(int device, const weir_shortage& s, uint64_t run_limit) {
  std::ostringstream text;
  text << "CUDA out of memory. Tried to allocate " << format_size(s.requested) << ". GPU " << device << " has a total capacity of "
       << format_size(s.device_total) << " of which " << format_size(s.device_free) << " is free. ";
  if (s.limit) {
    text << "This process may hold " << format_size(s.limit) << " ("
         << (s.limit == run_limit ? "weir run --limit" : "set_per_process_memory_fraction") << "). ";
  }
  text << "Weir has reserved " << format_size(s.reserved);
  if (s.outside) text << " (" << format_size(s.outside) << " of it in private pools, for CUDA graphs and MemPools)";
  text << "; " << format_size(s.allocated) << " are allocated, " << format_size(s.live)
       << " of that asked for by the program. Free for this stream: " << format_size(s.free_here) << ", the largest piece "
       << format_size(s.largest_piece) << ", " << format_size(s.assemblable) << " if pieces are joined; " << format_size(s.free_elsewhere)
       << " on other streams. ";
  if (s.driver_error[0]) text << "The driver said: " << s.driver_error << ". ";
  const uint64_t fits = would_fit(s);
  if (fits >= WEIR_BLOCK_UNIT) text << "A request of up to " << format_size(fits) << " would have fit. ";
  text << advice(s, run_limit);
  return text.str();
}

} // namespace weir
