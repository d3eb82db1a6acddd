"""The C functions of the compiled adapter, as declared in native/torch/options.h."""

import _thread
import array
import contextlib
import ctypes

from .abi import DIGEST, GAUGES, AdapterOptions, Gauges

_Relief = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_uint64)

_library = None
_left_out = ""
_relief = None  # kept alive for as long as the adapter may call it


def load(path):
    """Loads the compiled adapter. It needs PyTorch's libraries, which are loaded already."""
    library = ctypes.CDLL(path)
    library.weir_torch_install.argtypes = [ctypes.POINTER(AdapterOptions), ctypes.c_char_p, ctypes.c_size_t]
    library.weir_torch_mark.argtypes = [ctypes.c_char_p]
    library.weir_torch_mark.restype = None
    library.weir_torch_gauges.argtypes = [ctypes.c_int, ctypes.POINTER(Gauges)]
    library.weir_torch_swapped.argtypes = [ctypes.c_int, *[ctypes.c_uint64] * 4]
    library.weir_torch_swapped.restype = None
    library.weir_torch_steps.argtypes = [ctypes.c_uint64, ctypes.c_int]
    library.weir_torch_steps.restype = None
    library.weir_torch_on_shortage.argtypes = [ctypes.c_void_p]
    library.weir_torch_on_shortage.restype = None
    library.weir_torch_expandable.argtypes = []
    library.weir_torch_attempt.argtypes = [ctypes.c_int]
    library.weir_torch_attempt.restype = None
    library.weir_torch_categories.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint32]
    library.weir_torch_categories.restype = None
    library.weir_torch_operator.argtypes = [
        ctypes.c_char_p, ctypes.c_int, ctypes.c_double, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint32
    ]  # fmt: skip
    library.weir_torch_operator.restype = None
    library.weir_torch_check.argtypes = [ctypes.c_uint32]
    library.weir_torch_check.restype = ctypes.c_uint32
    return library


def install(path, *, allocator, directory, torch_version, limit, ring_rows, lend, stacks, stacks_from, fine, planned, faults, faults_seed):
    """Installs the allocator. Returns None, or why it was refused. `left_out` says what it does without."""
    global _library, _left_out
    library = load(path)
    options = AdapterOptions(
        digest=DIGEST,
        allocator=allocator.encode(),
        directory=directory.encode() if directory else None,
        torch_version=torch_version.encode(),
        limit=limit,
        ring_rows=ring_rows,
        lend=int(lend),
        stacks=stacks,
        stacks_from=stacks_from,
        fine=int(fine),
        planned=int(planned),
        faults=faults,
        faults_seed=faults_seed,
    )
    why = ctypes.create_string_buffer(512)
    if library.weir_torch_install(ctypes.byref(options), why, len(why)) != 0:
        return why.value.decode("utf-8", "replace")
    _library = library
    _left_out = why.value.decode("utf-8", "replace")
    return None


def left_out():
    """A sentence about what the adapter could not do, or an empty text."""
    return _left_out


def library():
    """The loaded adapter, for weir_gpu; None if no allocator is in place."""
    return _library


def mark(name):
    if _library is not None:
        _library.weir_torch_mark(str(name).encode("utf-8", "replace"))


def gauges(device):
    found = Gauges()
    if _library is None or not _library.weir_torch_gauges(device, ctypes.byref(found)):
        return None
    return {name: getattr(found, name) for name in GAUGES}


def categories(device, known):
    """Tells what live allocations hold: {address: category}."""
    if _library is not None and known:
        addresses = array.array("Q", known)
        _library.weir_torch_categories(device, addresses.buffer_info()[0], bytes(known.values()), len(known))


def operator(name, device, microseconds, known):
    """An operator has just ended: {address: whether it is written}."""
    if _library is not None and known:
        addresses = array.array("Q", known)
        _library.weir_torch_operator(name.encode(), device, microseconds, addresses.buffer_info()[0], bytes(known.values()), len(known))


def swapped(device, out, back, stalls, stall_ns):
    """Records the totals of swapping since the start."""
    if _library is not None:
        _library.weir_torch_swapped(device, int(out), int(back), int(stalls), int(stall_ns))


def steps(ended, swap_settled):
    """Training steps that have ended, and whether swapping does the same in every step from now on: for the supervisor."""
    if _library is not None:
        _library.weir_torch_steps(ended, int(swap_settled))


def on_shortage(relieve):
    """Calls relieve(device, bytes) if a request finds no memory; it returns whether some was freed. Returns a function that ends this."""
    global _relief
    if _library is None:
        return lambda: None

    def answer(device, size):
        # An exception cannot pass through C.
        try:
            return int(bool(relieve(device, size)))
        except KeyboardInterrupt:
            _thread.interrupt_main()
        except BaseException:
            pass
        return 0

    _relief = _Relief(answer)
    _library.weir_torch_on_shortage(ctypes.cast(_relief, ctypes.c_void_p))
    return lambda: _library.weir_torch_on_shortage(None)


@contextlib.contextmanager
def attempting():
    """Requests of this thread in here are attempts: one that fails is no out-of-memory error of the program."""
    if _library is None:
        yield
        return
    _library.weir_torch_attempt(1)
    try:
        yield
    finally:
        _library.weir_torch_attempt(0)


def check(level):
    return _library.weir_torch_check(level) if _library is not None else 0
