"""Where tensors lie: the address of the memory behind a tensor, and the tensors inside of one. Runs no code of the program."""

import weakref

import torch

# Taken now: swapping replaces it by one that swaps in. It asks no subclass, as methods of tensors would.
storage_address = getattr(torch._C, "_data_address", None) or (lambda tensor: tensor.untyped_storage().data_ptr())

PLAIN, WRAPPER, OPAQUE = range(3)
# Inside of a wrapper there may be others.
MOST_DEPTH = 4

# Classes may come and go with the functions that make them.
_kinds = weakref.WeakKeyDictionary({torch.Tensor: PLAIN, torch.nn.Parameter: PLAIN})


def _kind_of(cls):
    """Whether tensors of a class have memory of their own, hold tensors that have, or neither."""
    if hasattr(cls, "__tensor_flatten__"):
        kind = WRAPPER
    elif cls.__module__.startswith(("torch._subclasses", "torch._higher_order_ops")):
        kind = OPAQUE  # made up while a compiler looks
    else:
        kind = PLAIN
    _kinds[cls] = kind
    return kind


def kind_of(tensor):
    cls = type(tensor)
    found = _kinds.get(cls)
    return _kind_of(cls) if found is None else found


def is_tensor(value):
    """Without asking the value, as isinstance() does: proxies answer that with code of the program."""
    cls = type(value)
    return cls in _kinds or issubclass(cls, torch.Tensor)


def places(tensor, device_of, depth=0):
    """(GPU, address) of all memory behind a tensor. A distributed tensor has its local one, and a quantized one its parts."""
    kind = kind_of(tensor)
    try:
        if kind == PLAIN:
            device = device_of(tensor)
            address = storage_address(tensor) if device >= 0 else 0
            return [(device, address)] if address else []
        if kind == OPAQUE or depth == MOST_DEPTH:
            return []
        found = []
        for name in tensor.__tensor_flatten__()[0]:
            inner = getattr(tensor, name)
            if is_tensor(inner):
                found += places(inner, device_of, depth + 1)
        return found
    except Exception:
        return []  # without memory: meta, sparse, inside of a transform


# Functions of the base class, in C: a subclass of the program may have attributes of the same names.
# The number of a tensor's GPU; -1 if it is on none.
get_device = torch._C.TensorBase.get_device
requires_grad = torch._C.TensorBase.requires_grad.__get__
_is_view = torch._C.TensorBase._is_view
_base = torch._C.TensorBase._base.__get__
_is_leaf = torch._C.TensorBase.is_leaf.__get__
_grad = torch._C.TensorBase.grad.__get__
shape_of = torch._C.TensorBase.shape.__get__
_grad_fn = torch._C.TensorBase.grad_fn.__get__


def gradient_of(tensor):
    """Of a leaf only: PyTorch warns if another tensor is asked.

    A view with a node is not asked whether it is a leaf. The node may be made only then, which changes the order of sums in a backward
    pass."""
    if _is_view(tensor) and requires_grad(_base(tensor)):
        return None
    return _grad(tensor) if _is_leaf(tensor) else None


def is_trained(tensor):
    """Whether backward passes leave a gradient in it."""
    return requires_grad(tensor) and not (_is_view(tensor) and requires_grad(_base(tensor))) and _is_leaf(tensor)


def gradients_of(tensors):
    """There may be thousands, so the usual case is done by functions in C."""
    are_plain = not any(map(_is_view, tensors)) and all(map(_is_leaf, tensors))
    return [gradient for gradient in map(_grad if are_plain else gradient_of, tensors) if gradient is not None]


def node_of(tensor):
    """The node that made a tensor. Of a view, it is that of the base, for the same reason."""
    try:
        return _grad_fn(_base(tensor) if _is_view(tensor) else tensor)
    except Exception:
        return None


class Telling:
    """What is told in one go. It holds the tensors until then, so that their memory is not freed and given out again in between."""

    def __init__(self, tell, device_of):
        self.tell = tell
        self.device_of = device_of
        self.by_device = {}  # GPU -> {address: category}
        self.held = []

    def add(self, tensor, category):
        if tensor is not None:
            self.add_all([tensor], category)

    def add_all(self, tensors, category):
        """There may be thousands, so the usual case is done by functions in C."""
        if not tensors:
            return
        self.held.append(tensors)
        try:
            if all(_kinds.get(cls) == PLAIN for cls in set(map(type, tensors))):
                devices = list(map(self.device_of, tensors))
                if len(set(devices)) == 1:
                    if devices[0] >= 0:
                        self._put_all(devices[0], list(map(storage_address, tensors)), category)
                    return
        except Exception:
            pass  # One of them has no memory.
        for tensor in tensors:
            for device, address in places(tensor, self.device_of):
                self.put(device, address, category)

    def _put_all(self, device, addresses, category):
        known = self.by_device.get(device)
        if known is None:
            known = self.by_device[device] = dict.fromkeys(addresses, category)
            known.pop(0, None)
            return
        # In place: tensors may come one by one, and each must not cost as much as all before it.
        for address in addresses:
            if address:
                known.setdefault(address, category)

    def put(self, device, address, category):
        """The first word on an address counts: a gradient may lie in the memory of a buffer."""
        known = self.by_device.get(device)
        if known is None:
            self.by_device[device] = {address: category}
        elif address not in known:
            known[address] = category

    def knows(self, device, address):
        return address in self.by_device.get(device, ())

    def send(self):
        for device, known in self.by_device.items():
            self.tell(device, known)
        self.by_device = {}
        self.held = []
