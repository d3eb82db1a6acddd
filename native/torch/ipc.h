// Memory of ours in other processes, for CUDA IPC: what a sender puts into a handle, and what a receiver has mapped.
// A handle names pieces of memory by files that are open in the sender; the receiver fetches and maps them.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/weir_runtime.h"

namespace weir {

class Ipc {
 public:
  // Whether a handle is one of ours; PyTorch's are left to PyTorch.
  static bool is_ours(const std::string& handle) noexcept;
  std::string pack(int device, const std::vector<weir_piece>& pieces);

  // The memory behind a handle of another process, mapped once for as long as somebody here has it; throws what was wrong.
  std::shared_ptr<void> open(const std::string& handle, int device, weir_backend* backend);

  // While graphs are captured nobody may wait for the GPU: what is let go of then is kept until the last one ends.
  void hold() noexcept;
  void release() noexcept;
  void forked() noexcept;

 private:
  using Mapping = std::pair<weir_backend*, uint64_t>;
  void drop(const std::string& key, Mapping mapping) noexcept;

  std::recursive_mutex mutex_; // where memory for the books runs out, a mapping ends inside it
  uint64_t mark_ = 0;          // tells this process from others that had or will have its number
  std::unordered_map<std::string, std::pair<uint64_t, std::weak_ptr<void>>> mapped_;
  int holds_ = 0;
  std::vector<Mapping> late_;
};

} // namespace weir
