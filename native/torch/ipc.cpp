// Our memory in other processes, by CUDA IPC: the handles that a sender makes, and what a receiver has mapped.
// Mappings end in destructors, on any thread, perhaps while the process ends. So nothing is thrown there.
#include "ipc.h"

#include <c10/util/Exception.h>

#include <unistd.h>

#include <cstring>
#include <random>

namespace weir {

namespace {

// PyTorch's handles begin with a small version number or are exactly 64 bytes long. Ours do neither, so a PyTorch without Weir
// reports that the handle comes from a future version.
constexpr char kMark[8] = {'W', 'E', 'I', 'R', 'I', 'P', 'C', '1'};

struct Header {
  char mark[8];
  uint64_t sender; // the mark of the sending process
  uint64_t bytes;  // of all pieces
  int32_t process;
  int32_t device;
  uint32_t count;
  uint32_t zero;
};
static_assert(sizeof(Header) == 40 && sizeof(weir_piece) == 32, "the receiver relies on these sizes");
static_assert((64 - sizeof(Header)) % sizeof(weir_piece) != 0, "never as long as a cudaIpcMemHandle_t");
constexpr uint32_t kMostPieces = 1 << 20;

bool unpack(const std::string& handle, Header* header, std::vector<weir_piece>* pieces) {
  if (handle.size() < sizeof *header) return false;
  memcpy(header, handle.data(), sizeof *header);
  if (header->count == 0 || header->count > kMostPieces) return false;
  if (handle.size() != sizeof *header + header->count * sizeof(weir_piece)) return false;
  pieces->resize(header->count);
  memcpy(pieces->data(), handle.data() + sizeof *header, header->count * sizeof(weir_piece));
  return true;
}

// Files of another process, opened here. The destructor closes them.
struct Fetched {
  std::vector<weir_piece> pieces;
  size_t open = 0;

  bool fetch(int64_t process, uint64_t mark, char* why, size_t room) noexcept {
    for (; open < pieces.size(); open++) {
      const int file = weir_fetch_file(process, mark, pieces[open].file, why, room);
      if (file < 0) return false;
      pieces[open].file = file;
    }
    return true;
  }
  ~Fetched() {
    for (size_t index = 0; index < open; index++) close(pieces[index].file);
  }
};

} // namespace

bool Ipc::is_ours(const std::string& handle) noexcept { return handle.compare(0, sizeof kMark, kMark, sizeof kMark) == 0; }

std::string Ipc::pack(int device, const std::vector<weir_piece>& pieces) {
  Header header{};
  memcpy(header.mark, kMark, sizeof kMark);
  {
    std::lock_guard<std::recursive_mutex> guard(mutex_);
    std::random_device random;
    while (mark_ == 0) mark_ = (static_cast<uint64_t>(random()) << 32) | random();
    header.sender = mark_;
    weir_serve_files(mark_);
  }
  header.process = getpid();
  header.device = device;
  header.count = static_cast<uint32_t>(pieces.size());
  for (const weir_piece& piece : pieces) header.bytes += piece.bytes;
  std::string handle(reinterpret_cast<const char*>(&header), sizeof header);
  handle.append(reinterpret_cast<const char*>(pieces.data()), pieces.size() * sizeof(weir_piece));
  return handle;
}

std::shared_ptr<void> Ipc::open(const std::string& handle, int device, weir_backend* backend) {
  Header header;
  Fetched fetched;
  TORCH_CHECK(unpack(handle, &header, &fetched.pieces), "weir: the handle of a tensor sent by CUDA IPC is damaged");
  TORCH_CHECK(backend->import, "weir: memory of other processes cannot be used here");
  const std::string key = std::to_string(device) + ' ' + handle;
  // One thread at a time, so that two threads that receive parts of one block share one mapping.
  std::lock_guard<std::recursive_mutex> guard(mutex_);
  if (const auto found = mapped_.find(key); found != mapped_.end()) {
    if (std::shared_ptr<void> there = found->second.second.lock()) return there;
  }
  char why[256] = "";
  TORCH_CHECK(fetched.fetch(header.process, header.sender, why, sizeof why), "weir: a tensor sent by CUDA IPC cannot be opened: ", why,
              ".");
  const int64_t address = backend->import(backend->driver.context, fetched.pieces.data(), header.count);
  TORCH_CHECK(address > 0, "weir: a tensor sent by CUDA IPC cannot be mapped: ", backend->last_error(backend->driver.context), ".");
  const Mapping mapping{backend, static_cast<uint64_t>(address)};
  std::shared_ptr<void> made(reinterpret_cast<void*>(address), [this, key, mapping, process = getpid()](void*) noexcept {
    // The child of a fork has no CUDA to unmap it.
    if (process == getpid()) drop(key, mapping);
  });
  mapped_[key] = {mapping.second, made};
  return made;
}

void Ipc::drop(const std::string& key, Mapping mapping) noexcept {
  {
    std::lock_guard<std::recursive_mutex> guard(mutex_);
    // Another thread may have mapped the same memory again in between.
    const auto found = mapped_.find(key);
    if (found != mapped_.end() && found->second.first == mapping.second) mapped_.erase(found);
    if (holds_ > 0) {
      try {
        late_.push_back(mapping);
      } catch (...) {
        // Without host memory for the list, it stays mapped.
      }
      return;
    }
    dropping_++;
  }
  unmap(mapping);
}

// Waits for the GPU, so it needs `dropping_` to be counted.
void Ipc::unmap(const Mapping& mapping) noexcept {
  mapping.first->drop_import(mapping.first->driver.context, mapping.second);
  std::lock_guard<std::recursive_mutex> guard(mutex_);
  if (--dropping_ == 0) dropped_.notify_all();
}

void Ipc::hold() noexcept {
  std::unique_lock<std::recursive_mutex> guard(mutex_);
  holds_++;
  dropped_.wait(guard, [this] { return dropping_ == 0; });
}

void Ipc::release() noexcept {
  std::vector<Mapping> late;
  {
    std::lock_guard<std::recursive_mutex> guard(mutex_);
    if (holds_ > 0 && --holds_ == 0) late.swap(late_);
    dropping_ += static_cast<int>(late.size());
  }
  for (const Mapping& mapping : late) unmap(mapping);
}

void Ipc::forked() noexcept {
  new (&mutex_) std::recursive_mutex;
  new (&dropped_) std::condition_variable_any;
  mark_ = 0;
  weir_serve_files_forked();
  mapped_.clear();
  late_.clear();
  holds_ = 0;
  dropping_ = 0;
}

} // namespace weir
