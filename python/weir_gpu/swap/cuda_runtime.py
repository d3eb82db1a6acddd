"""Calls of the CUDA runtime that PyTorch does not offer, or offers at a higher price."""

import ctypes

import torch

# cudaMemcpyKind
TO_DEVICE, TO_HOST = 1, 2
# cudaStreamCaptureModeRelaxed
RELAXED = 2


def loaded_runtime():
    """The CUDA runtime that PyTorch has loaded, or None if it is linked in."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
            path = next((line.split(maxsplit=5)[5].strip() for line in maps if "/libcudart.so" in line), None)
        return ctypes.CDLL(path) if path else None
    except OSError:
        return None


def capture_query(runtime):
    """A function that tells of a stream's handle whether it is being captured. It may be called during any capture."""
    try:
        query, last_error = runtime.cudaStreamIsCapturing, runtime.cudaGetLastError
    except AttributeError:
        return None
    query.argtypes = [ctypes.c_void_p, ctypes.POINTER(ctypes.c_int)]
    query.restype = last_error.restype = ctypes.c_int

    def is_captured(handle):
        status = ctypes.c_int(0)
        if query(handle, ctypes.byref(status)) == 0:
            return status.value != 0
        # The default stream cannot be asked while another stream is captured. CUDA keeps the error, unless it is read.
        last_error()
        return True

    return is_captured


def asynchronous_memcpy(runtime):
    """cudaMemcpyAsync.

    A step may make hundreds of copies, and PyTorch's own copy takes about 20 microseconds of host time each."""
    try:
        memcpy, last_error = runtime.cudaMemcpyAsync, runtime.cudaGetLastError
    except AttributeError:
        return None
    memcpy.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
    memcpy.restype = last_error.restype = ctypes.c_int

    def checked(code, _function, _arguments):
        if code != 0:
            # CUDA keeps the error and would report it at the next kernel launch.
            last_error()
            raise RuntimeError(f"cudaMemcpyAsync answered {code}")
        return code

    memcpy.errcheck = checked
    return memcpy


class Registration:
    """Pins and unpins host memory that exists already. PyTorch's own pinned memory is rounded up to powers of two."""

    def __init__(self, runtime):
        self.last_error = None
        try:
            register, unregister = runtime.cudaHostRegister, runtime.cudaHostUnregister
            self.last_error = runtime.cudaGetLastError
        except AttributeError:
            runtime = torch.cuda.cudart()
            self.register = lambda address, size: int(runtime.cudaHostRegister(address, size, 0))
            self.unregister = lambda address: int(runtime.cudaHostUnregister(address))
            return
        register.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint]
        unregister.argtypes = [ctypes.c_void_p]
        register.restype = unregister.restype = self.last_error.restype = ctypes.c_int
        self.register = lambda address, size: register(address, size, 0)
        self.unregister = unregister

    def forget_error(self, device):
        """CUDA keeps an error for the thread that made it, and would report it at the program's next kernel launch."""
        if self.last_error is not None:
            self.last_error()
            return
        try:
            torch.zeros(1, device=device)
        except RuntimeError:
            pass


def relax_captures(runtime):
    """While some thread captures a graph, calls of this one are allowed and not captured."""
    try:
        exchange = runtime.cudaThreadExchangeStreamCaptureMode
    except AttributeError:
        return
    exchange.argtypes = [ctypes.POINTER(ctypes.c_int)]
    exchange.restype = ctypes.c_int
    exchange(ctypes.byref(ctypes.c_int(RELAXED)))
