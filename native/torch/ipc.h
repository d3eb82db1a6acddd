// Our memory in other processes, by CUDA IPC: the handles that a sender makes, and what a receiver has mapped.
// A handle names pieces of memory by files that are open in the sender. The receiver fetches and maps them.
#pragma once

#include <condition_variable>
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
  // Whether a handle is one of ours. PyTorch's own handles are passed on to PyTorch.
  static bool is_ours(const std::string& handle) noexcept;
  std::string pack(int device, const std::vector<weir_piece>& pieces);

  // Maps the memory behind a handle of another process. It is mapped once, for as long as it is used here. Throws on failure.
  std::shared_ptr<void> open(const std::string& handle, int device, weir_backend* backend);

  // During a graph capture nobody may wait for the GPU. So imports dropped meanwhile stay mapped until the last capture ends, and
  // `hold` waits for those that are being dropped.
  void hold() noexcept;
  void release() noexcept;
  void forked() noexcept;

 private:
  using Mapping = std::pair<weir_backend*, uint64_t>;
  void drop(const std::string& key, Mapping mapping) noexcept;
  void unmap(const Mapping& mapping) noexcept;

  std::recursive_mutex mutex_; // recursive: if host memory runs out, a mapping is dropped while it is held
  uint64_t mark_ = 0;          // random, to tell this process from others with the same pid
  std::unordered_map<std::string, std::pair<uint64_t, std::weak_ptr<void>>> mapped_;
  int holds_ = 0;
  int dropping_ = 0; // mappings that threads are dropping, without the lock
  std::condition_variable_any dropped_;
  std::vector<Mapping> late_;
};

} // namespace weir
