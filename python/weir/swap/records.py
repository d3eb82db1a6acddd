"""A saved tensor on its way: the storage is what moves, handles are what autograd keeps in place of the tensors on it."""

import weakref

import torch

from .backend import owners

RESIDENT, LEAVING, GONE, RETURNING = range(4)

CHANGED = (
    "one of the variables needed for gradient computation has been modified by an inplace operation: "
    "[{kind} {shape}] is at version {now}; expected version {then} instead. Hint: enable anomaly detection to find the "
    "operation that failed to compute its gradient, with torch.autograd.set_detect_anomaly(True)."
)


def changed(tensor, now, then):
    """What PyTorch itself says; it leaves the check to the hooks when there are some."""
    return RuntimeError(CHANGED.format(kind=tensor.type(), shape=list(tensor.shape), now=now, then=then))


class Handle:
    """One saved tensor. Holds a detached tensor of its own while the storage is there, and how to make another when it is not."""

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

    def let_go(self):
        """Gives up the storage but not the version counter: changes of the tensor in place are still noticed."""
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
            # A copy out of, or into, this memory may still be under way: the compute stream must wait before the memory is free.
            if record.unwaited is not None and self.alias is not None:
                record.graveyard.append((self.alias, record.unwaited))
        except AttributeError:
            pass


class Record:
    """A storage with saved tensors on it."""

    __slots__ = (
        "graveyard", "dead", "index", "size", "cdata", "state", "handles", "slot", "storage", "unwaited", "copied", "frozen",
        "waited_ticks", "sole_at", "check", "layer", "__weakref__",
    )  # fmt: skip

    def __init__(self, graveyard, dead, size, cdata, index):
        self.graveyard = graveyard
        self.dead = dead
        self.index = index
        self.size = size
        self.cdata = cdata
        self.state = RESIDENT
        self.handles = []
        self.slot = None
        self.storage = None  # only after a return: before, the handles' tensors hold it
        self.unwaited = None  # a copy that the compute stream was not told to wait for
        self.copied = False  # the host copy is what the storage holds
        self.frozen = False  # never moves again
        self.waited_ticks = 0
        self.sole_at = -1
        self.check = None
        self.layer = None  # whose parameter this is a view of: it moves with the layer, if at all

    def add(self, tensor):
        handle = Handle(self, tensor)
        self.handles.append(weakref.ref(handle))
        return handle

    def live_handles(self):
        return [handle for reference in self.handles if (handle := reference()) is not None]

    def is_ours(self):
        """Nobody but our handles holds the storage: nobody else can read or write it from now on."""
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
                self.graveyard.append((self.storage, self.unwaited))
            # Told, not done: a destructor may run in the midst of anything.
            self.dead.append((self.slot, self.size if self.state == GONE else 0, self.cdata))
        except AttributeError:
            pass
