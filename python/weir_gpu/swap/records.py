"""Saved tensors: a record is a storage that can be swapped, a handle is what autograd keeps instead of a tensor on it."""

import weakref

import torch

from .backend import owners

RESIDENT, SWAPPING_OUT, SWAPPED_OUT, SWAPPING_IN, GONE = range(5)

MOST_HANDLES = 32

CHANGED = (
    "one of the variables needed for gradient computation has been modified by an inplace operation: "
    "[{kind} {shape}] is at version {now}; expected version {then} instead. Hint: enable anomaly detection to find the "
    "operation that failed to compute its gradient, with torch.autograd.set_detect_anomaly(True)."
)


def changed(tensor, now, then):
    """PyTorch's own error message. With hooks, PyTorch leaves this check to them."""
    return RuntimeError(CHANGED.format(kind=tensor.type(), shape=list(tensor.shape), now=now, then=then))


class Handle:
    """One saved tensor. While the storage is there, it holds a detached tensor; otherwise it knows how to make one."""

    __slots__ = ("record", "alias", "version", "witness", "saved_version", "dtype", "shape", "stride", "offset", "__weakref__")

    def __init__(self, record, tensor):
        self.record = record
        self.alias = tensor.detach()
        self.version = tensor._version
        self.witness = None
        self.saved_version = self.version
        self.dtype = tensor.dtype
        self.shape = tuple(tensor.shape)
        self.stride = tensor.stride()
        self.offset = tensor.storage_offset()

    def check(self):
        if self.alias is not None and self.alias._version != self.version:
            raise changed(self.alias, self.alias._version, self.version)
        if self.witness is not None and self.witness._version != self.saved_version:
            raise changed(self.witness, self.witness._version, self.saved_version)

    def unchanged(self):
        return (self.alias is None or self.alias._version == self.version) and (
            self.witness is None or self.witness._version == self.saved_version
        )

    def drop_alias(self):
        """Gives up the storage but not the version counter, so that in-place changes of the tensor are still noticed."""
        if self.alias is None:
            return
        if self.witness is None:
            witness = self.alias.detach()
            witness.data = torch.empty(0, dtype=self.dtype, device=self.alias.device)
            self.witness = witness
        self.alias = None

    def rebuild(self, storage, device):
        alias = torch.empty(0, dtype=self.dtype, device=device)
        alias.set_(storage, self.offset, self.shape, self.stride)
        self.alias = alias
        self.version = alias._version

    def __del__(self):
        try:
            record = self.record
            # A copy may still use this memory: the compute stream must wait for it before the memory is freed.
            if record.unwaited is not None and self.alias is not None:
                record.pending_frees.append((self.alias, record.unwaited))
        except AttributeError:
            pass


class Record:
    """A storage with saved tensors on it."""

    __slots__ = (
        "pending_frees", "dead", "index", "size", "cdata", "state", "handles", "slot", "storage", "unwaited", "copied", "frozen",
        "waited_ticks", "sole_at", "check", "layer", "most_handles", "unread", "__weakref__",
    )  # fmt: skip

    def __init__(self, pending_frees, dead, size, cdata, index):
        self.pending_frees = pending_frees
        self.dead = dead
        self.index = index
        self.size = size
        self.cdata = cdata
        self.state = RESIDENT
        self.handles = []
        self.most_handles = MOST_HANDLES  # more than these are searched for dead ones
        self.slot = None
        self.storage = None  # set after a swap-in; before, the handles' tensors hold it
        self.unwaited = None  # a copy that the compute stream does not wait for yet
        self.copied = False  # the host copy equals the storage
        self.frozen = False  # never swapped again
        self.waited_ticks = 0
        self.sole_at = -1
        self.check = None
        self.unread = False  # the operation that saved it need not have read it, so another stream may still be writing to it
        self.layer = None  # the layer whose parameter this is a view of: it is swapped with the layer

    def add(self, tensor):
        handle = Handle(self, tensor)
        self.handles.append(weakref.ref(handle))
        if len(self.handles) >= self.most_handles:
            self.handles = [reference for reference in self.handles if reference() is not None]
            self.most_handles = max(MOST_HANDLES, 2 * len(self.handles))
        return handle

    def live_handles(self):
        return [handle for reference in self.handles if (handle := reference()) is not None]

    def is_exclusive(self):
        """Whether only our handles hold the storage: then nobody else can read or write it from now on."""
        if self.cdata == 0:
            return False
        aliases = 0
        for reference in self.handles:
            handle = reference()
            if handle is not None and handle.alias is not None:
                aliases += 1
        return aliases > 0 and owners(self.cdata, self.storage is not None) == aliases

    def unchanged(self):
        return all(handle.unchanged() for handle in self.live_handles())

    def __del__(self):
        try:
            if self.unwaited is not None and self.storage is not None:
                self.pending_frees.append((self.storage, self.unwaited))
            # Only noted: a destructor may run at any point of the program.
            away, self.state = self.state == SWAPPED_OUT, GONE
            self.dead.append((self.slot, self.size if away else 0, self.cdata, self.index))
        except AttributeError:
            pass
