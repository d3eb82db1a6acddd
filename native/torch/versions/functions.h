// Every virtual function of PyTorch's CUDAAllocator and its bases, in the order of the class, by version. Included several times,
// each time with other meanings of the macros: interface.h. What is missing or misplaced here stops the build with a sentence.
//   WEIR_KNOWN(result, name, parameters, qualifiers)                 the base's own definition is right
//   WEIR_PASSED(result, name, parameters, arguments, qualifiers)     passed on to PyTorch's allocator; our classes may override it
//   WEIR_ADAPTED(result, name, parameters, call)                     calls one of our functions, which has one form for all versions

// clang-format off

// c10::Allocator
WEIR_PASSED(DataPtr, allocate, (size_t n), (n), )
WEIR_KNOWN(bool, is_simple_data_ptr, (const DataPtr&), const)
WEIR_PASSED(c10::DeleterFnPtr, raw_deleter, (), (), const)
WEIR_PASSED(void, copy_data, (void* to, const void* from, std::size_t count), (to, from, count), const)

// c10::DeviceAllocator
#if WEIR_TORCH_MINOR >= 9
WEIR_PASSED(bool, initialized, (), (), )
WEIR_ADAPTED(void, emptyCache, (MempoolId_t id), empty_cache(id))
// Calls the function below with a CUDAStream.
WEIR_KNOWN(void, recordStream, (const DataPtr&, c10::Stream), )
WEIR_PASSED(DeviceStats, getDeviceStats, (DeviceIndex device), (device), )
WEIR_PASSED(void, resetAccumulatedStats, (DeviceIndex device), (device), )
WEIR_PASSED(void, resetPeakStats, (DeviceIndex device), (device), )
#endif
#if WEIR_TORCH_MINOR >= 10
WEIR_ADAPTED(MemoryInfo, getMemoryInfo, (DeviceIndex device), memory_info(device))
#endif

// c10::cuda::CUDACachingAllocator::CUDAAllocator
WEIR_PASSED(void*, raw_alloc, (size_t n), (n), )
WEIR_PASSED(void*, raw_alloc_with_stream, (size_t n, cudaStream_t stream), (n, stream), )
WEIR_PASSED(void, raw_delete, (void* ptr), (ptr), )
WEIR_PASSED(void, init, (int device_count), (device_count), )
#if WEIR_TORCH_MINOR < 9
WEIR_PASSED(bool, initialized, (), (), )
#endif
WEIR_PASSED(double, getMemoryFraction, (DeviceIndex device), (device), )
WEIR_PASSED(void, setMemoryFraction, (double fraction, DeviceIndex device), (fraction, device), )
#if WEIR_TORCH_MINOR == 8
WEIR_ADAPTED(void, emptyCache, (MempoolId_t id), empty_cache(id))
#elif WEIR_TORCH_MINOR < 8
WEIR_ADAPTED(void, emptyCache, (), empty_cache(active_pool()))
#endif
#if WEIR_TORCH_MINOR >= 10
WEIR_PASSED(std::vector<torch_alloc::StreamSegmentSize>, getExpandableSegmentSizes, (DeviceIndex device), (device), )
#endif
WEIR_PASSED(void, enable, (bool value), (value), )
WEIR_PASSED(bool, isEnabled, (), (), const)
WEIR_PASSED(void, cacheInfo, (DeviceIndex device, size_t* largest), (device, largest), )
WEIR_PASSED(void*, getBaseAllocation, (void* ptr, size_t* size), (ptr, size), )
WEIR_PASSED(void, recordStream, (const DataPtr& ptr, c10::cuda::CUDAStream stream), (ptr, stream), )
#if WEIR_TORCH_MINOR < 9
WEIR_PASSED(DeviceStats, getDeviceStats, (DeviceIndex device), (device), )
WEIR_PASSED(void, resetAccumulatedStats, (DeviceIndex device), (device), )
WEIR_PASSED(void, resetPeakStats, (DeviceIndex device), (device), )
#endif
#if WEIR_TORCH_MINOR >= 11
WEIR_ADAPTED(SnapshotInfo, snapshot, (MempoolId_t id, bool include_traces), take_snapshot(id, include_traces))
#elif WEIR_TORCH_MINOR >= 8
WEIR_ADAPTED(SnapshotInfo, snapshot, (MempoolId_t id), take_snapshot(id, true))
#else
WEIR_ADAPTED(SnapshotInfo, snapshot, (), take_snapshot(active_pool(), true))
#endif
WEIR_PASSED(void, beginAllocateToPool, (DeviceIndex device, MempoolId_t id, PoolFilter filter), (device, id, std::move(filter)), )
WEIR_PASSED(void, endAllocateToPool, (DeviceIndex device, MempoolId_t id), (device, id), )
#if WEIR_TORCH_MINOR >= 13
WEIR_ADAPTED(void, markCaptureBegin, (DeviceIndex device), mark_capture(device, true))
WEIR_ADAPTED(void, markCaptureEnd, (DeviceIndex device), mark_capture(device, false))
#endif
WEIR_PASSED(void, releasePool, (DeviceIndex device, MempoolId_t id), (device, id), )
WEIR_PASSED(int, getPoolUseCount, (DeviceIndex device, MempoolId_t id), (device, id), )
#if WEIR_TORCH_MINOR >= 11
WEIR_PASSED(void, createOrIncrefPool, (DeviceIndex device, MempoolId_t id, std::shared_ptr<CUDAAllocator> from), (device, id, std::move(from)), )
WEIR_ADAPTED(void, setUseOnOOM, (DeviceIndex device, MempoolId_t id, bool use), set_use_on_oom(device, id, use))
#elif WEIR_TORCH_MINOR >= 8
WEIR_PASSED(void, createOrIncrefPool, (DeviceIndex device, MempoolId_t id, CUDAAllocator* from), (device, id, from), )
WEIR_ADAPTED(void, setUseOnOOM, (DeviceIndex device, MempoolId_t id), set_use_on_oom(device, id, true))
#else
WEIR_PASSED(void, ensureExistsAndIncrefPool, (DeviceIndex device, MempoolId_t id), (device, id), )
#endif
#if WEIR_TORCH_MINOR >= 10
WEIR_PASSED(void, setNoSplit, (DeviceIndex device, MempoolId_t id), (device, id), )
#endif
WEIR_PASSED(bool, checkPoolLiveAllocations, (DeviceIndex device, MempoolId_t id, const std::unordered_set<void*>& live), (device, id, live), )
WEIR_PASSED(torch_alloc::ShareableHandle, shareIpcHandle, (void* ptr), (ptr), )
WEIR_PASSED(std::shared_ptr<void>, getIpcDevPtr, (std::string handle), (std::move(handle)), )
WEIR_PASSED(bool, isHistoryEnabled, (), (), )
#if WEIR_TORCH_MINOR >= 12
WEIR_ADAPTED(Context, getContextForPointer, (const void* ptr), context_at(ptr))
#endif
#if WEIR_TORCH_MINOR >= 11
WEIR_ADAPTED(void, recordHistory, (bool on, CreateContextFn gather, size_t most, RecordContext when, bool clear, const Words& skip),
             record_history(on, gather, most, when, clear, skip))
#elif WEIR_TORCH_MINOR >= 8
WEIR_ADAPTED(void, recordHistory, (bool on, CreateContextFn gather, size_t most, RecordContext when, bool clear),
             record_history(on, gather, most, when, clear, {}))
#else
// What was recorded before is kept, as PyTorch does there.
WEIR_ADAPTED(void, recordHistory, (bool on, CreateContextFn gather, size_t most, RecordContext when),
             record_history(on, gather, most, when, false, {}))
#endif
WEIR_PASSED(void, recordAnnotation, (const Annotation& annotation), (annotation), )
#if WEIR_TORCH_MINOR >= 8
WEIR_ADAPTED(void, pushCompileContext, (std::string& context), push_compile_context(context))
WEIR_ADAPTED(void, popCompileContext, (), pop_compile_context())
#endif
#if WEIR_TORCH_MINOR >= 14
WEIR_PASSED(bool, supportsUserMetadata, (), (), )
#endif
#if WEIR_TORCH_MINOR >= 10
WEIR_ADAPTED(void, setUserMetadata, (const std::string& metadata), set_user_metadata(metadata))
WEIR_ADAPTED(std::string, getUserMetadata, (), get_user_metadata())
#endif
#if WEIR_TORCH_MINOR >= 14
WEIR_ADAPTED(void, annotateMemory, (const void* ptr, const std::string& metadata), annotate(ptr, metadata))
#endif
WEIR_PASSED(void, attachOutOfMemoryObserver, (OutOfMemoryObserver observer), (std::move(observer)), )
#if WEIR_TORCH_MINOR >= 12
WEIR_ADAPTED(void, attachOomRejectionObserver, (RejectionObserver observer), attach_rejection_observer(std::move(observer)))
#endif
WEIR_PASSED(void, attachAllocatorTraceTracker, (AllocatorTraceTracker tracker), (std::move(tracker)), )
WEIR_PASSED(void, enablePeerAccess, (DeviceIndex device, DeviceIndex to), (device, to), )
WEIR_PASSED(cudaError_t, memcpyAsync, (void* to, int to_device, const void* from, int from_device, size_t count, cudaStream_t stream, bool p2p),
            (to, to_device, from, from_device, count, stream, p2p), )
WEIR_PASSED(std::shared_ptr<torch_alloc::AllocatorState>, getCheckpointState, (DeviceIndex device, MempoolId_t id), (device, id), )
WEIR_PASSED(torch_alloc::CheckpointDelta, setCheckpointPoolState, (DeviceIndex device, std::shared_ptr<torch_alloc::AllocatorState> state),
            (device, std::move(state)), )
#if WEIR_TORCH_MINOR >= 13
WEIR_ADAPTED(DataPtr, allocateWithAddress, (size_t n, void* address), allocate_at(n, address))
#endif
// When PyTorch reads its settings again and they name a backend, it asserts this name.
WEIR_PASSED(std::string, name, (), (), )
