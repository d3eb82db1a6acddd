// Weir's engine as PyTorch's CUDA allocator: blocks that several GPUs use, and access from one GPU to the memory of another.
// The engine of a GPU knows nothing of the others.
#include "adapter.h"

#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>

#include <algorithm>

namespace weir {

// ---- Blocks that other GPUs use.

// Remembers a use that the engine cannot: a stream of another GPU, or no host memory in the engine.
void WeirAllocator::note_elsewhere(const void* ptr, c10::cuda::CUDAStream stream) {
  std::lock_guard<std::mutex> guard(elsewhere_mutex_);
  auto& streams = elsewhere_[reinterpret_cast<uint64_t>(ptr)];
  if (std::find(streams.begin(), streams.end(), stream) == streams.end()) streams.push_back(stream);
  elsewhere_count_ = elsewhere_.size();
}

// The engine's events belong to one GPU. So the block's own stream waits for the other GPU's work. The next user of the memory
// comes after that stream, and so after that work. False during a capture, which an event would spoil: the block is freed later.
bool WeirAllocator::await_other_gpus(Slot& slot, uint64_t address, bool late) {
  {
    std::lock_guard<std::mutex> guard(elsewhere_mutex_);
    if (elsewhere_.find(address) == elsewhere_.end()) return true;
  }
  bool waited = true;
  // Inside this lock no capture begins.
  pools_.locked([&](int open) {
    std::vector<c10::cuda::CUDAStream> streams;
    {
      std::lock_guard<std::mutex> guard(elsewhere_mutex_);
      const auto found = elsewhere_.find(address);
      if (found == elsewhere_.end()) return;
      waited = open == 0;
      if (!waited) {
        late_.push_back(address);
        return;
      }
      streams = std::move(found->second);
      elsewhere_.erase(found);
      elsewhere_count_ = elsewhere_.size();
    }
    await(slot, address, streams, late);
  });
  return waited;
}

// Frees the blocks that had to wait for the end of a capture. If another is under way, they wait again.
void WeirAllocator::free_late() {
  std::vector<uint64_t> late;
  {
    std::lock_guard<std::mutex> guard(elsewhere_mutex_);
    late.swap(late_);
  }
  for (const uint64_t address : late) {
    void* const ptr = reinterpret_cast<void*>(address);
    Slot* const slot = owner_of(ptr);
    if (slot && await_other_gpus(*slot, address, true)) free_ours(*slot, ptr);
  }
}

void WeirAllocator::await(Slot& slot, uint64_t address, const std::vector<c10::cuda::CUDAStream>& streams, bool late) {
  weir_device* const engine = slot.engine.load(std::memory_order_acquire);
  weir_allocation block;
  if (!weir_device_find(engine, address, &block)) return;
  const bool may_be_gone = weir_device_is_foreign(engine, block.stream);
  for (const auto& stream : streams) {
    DeviceIndex before = 0;
    cudaEvent_t event = nullptr;
    // The program keeps a recorded stream until it frees the block, but no longer. The id of its own streams is their handle.
    const bool gone = late && stream.id() != 0 && stream.id() == reinterpret_cast<int64_t>(stream.stream());
    bool ordered = c10::cuda::GetDevice(&before) == cudaSuccess && c10::cuda::SetDevice(stream.device_index()) == cudaSuccess && !gone &&
                   !may_be_gone && cudaEventCreateWithFlags(&event, cudaEventDisableTiming) == cudaSuccess &&
                   cudaEventRecord(event, stream.stream()) == cudaSuccess;
    ordered = ordered && c10::cuda::SetDevice(slot.device) == cudaSuccess &&
              cudaStreamWaitEvent(reinterpret_cast<cudaStream_t>(block.stream), event, 0) == cudaSuccess;
    // An event may be destroyed while work still waits for it: CUDA keeps it until then.
    if (event) cudaEventDestroy(event);
    if (!ordered) {
      (void)cudaGetLastError();
      if (gone) cudaDeviceSynchronize();
      else cudaStreamSynchronize(stream.stream());
      (void)cudaGetLastError();
    }
    c10::cuda::SetDevice(before);
  }
}

// ---- Access.

// NCCL and kernels of the program use the memory of other GPUs without telling PyTorch. CUDA then opens what cudaMalloc gave, but
// not our mappings. So the GPUs of a process are open to each other from the first use of the second one.
void WeirAllocator::open_to_peers(Slot& slot) {
  const auto open = [](Slot& to, int peer) {
    if (std::find(to.peers.begin(), to.peers.end(), peer) != to.peers.end()) return;
    // If the driver refuses, copies still work, and a library finds out by itself.
    if (weir_cuda_can_access(to.backend, peer) && weir_cuda_allow_peer(to.backend, peer)) to.peers.push_back(peer);
  };
  for (int device = 0; device < used_.load(); device++) {
    if (device == slot.device || !engine(device)) continue;
    open(slots_[device], slot.device);
    open(slot, device);
  }
}

void WeirAllocator::enablePeerAccess(DeviceIndex device, DeviceIndex to) {
  native_->enablePeerAccess(device, to);
  Slot& slot = slots_[to];
  std::lock_guard<std::mutex> guard(making_);
  if (std::find(slot.peers.begin(), slot.peers.end(), device) != slot.peers.end()) return;
  if (slot.engine.load(std::memory_order_acquire)) {
    TORCH_CHECK(weir_cuda_allow_peer(slot.backend, device), "weir: GPU ", static_cast<int>(device),
                " could not be given access to the memory of GPU ", static_cast<int>(to), " (",
                slot.backend->last_error(slot.backend->driver.context), "); run with --allocator expandable");
  }
  // Only after success, so that a failed call is tried again.
  slot.peers.push_back(device);
}

cudaError_t WeirAllocator::memcpyAsync(void* dst, int dst_device, const void* src, int src_device, size_t count, cudaStream_t stream,
                                       bool p2p) {
  if (src_device == dst_device || p2p) return cudaMemcpyAsync(dst, src, count, cudaMemcpyDeviceToDevice, stream);
  // Mapped memory, like ours, can be copied to a GPU without access to it only in this way.
  if (owner_of(dst) || owner_of(src)) return cudaMemcpyPeerAsync(dst, dst_device, src, src_device, count, stream);
  return native_->memcpyAsync(dst, dst_device, src, src_device, count, stream, p2p);
}

} // namespace weir
