"""Which steps of optimizers may be taken in chunks of parameters with the same bits.

All of these hold for each optimizer here, by its code in PyTorch: `step()` is `_init_group` and one function per group, which treats
every element of every parameter alike and independently of all others. What it decides for a whole list of tensors (kernels for lists or
a loop, the fast or the slow way of such a kernel) must be the same for each part of the list. `is_uniform` sees to that."""

import inspect
import sys

import torch

# Class: the function that computes, the arguments of `_init_group` after `group`, and most tensors of state for a parameter.
KNOWN = {
    "Adam": ("adam", ("params_with_grad", "grads", "exp_avgs", "exp_avg_sqs", "max_exp_avg_sqs", "state_steps"), 3),
    "AdamW": ("adam", ("params_with_grad", "grads", "exp_avgs", "exp_avg_sqs", "max_exp_avg_sqs", "state_steps"), 3),
    "SGD": ("sgd", ("params", "grads", "momentum_buffer_list"), 1),
    "RMSprop": (
        "rmsprop",
        ("params_with_grad", "grads", "square_avgs", "momentum_buffer_list", "grad_avgs", "state_steps"),
        3,
    ),
    "Adagrad": ("adagrad", ("params_with_grad", "grads", "state_sums", "state_steps"), 1),
    "Adadelta": ("adadelta", ("params_with_grad", "grads", "square_avgs", "acc_deltas", "state_steps"), 2),
    "Adamax": ("adamax", ("params_with_grad", "grads", "exp_avgs", "exp_infs", "state_steps"), 2),
    "NAdam": ("nadam", ("params_with_grad", "grads", "exp_avgs", "exp_avg_sqs", "mu_products", "state_steps"), 2),
    "RAdam": ("radam", ("params_with_grad", "grads", "exp_avgs", "exp_avg_sqs", "state_steps"), 2),
    "Rprop": ("rprop", ("params", "grads", "prevs", "step_sizes", "state_steps"), 2),
}
# SGD makes its state in its function, and keeps it only afterwards.
KEPT_AFTERWARDS = {"SGD": ("momentum_buffer_list", "momentum_buffer")}
# Single kernels for everything, graphs and derivatives: not shown to give the same bits.
OTHER_WAYS = ("fused", "capturable", "differentiable")


class Kind:
    """A class of optimizers, as this PyTorch has it."""

    def __init__(self, cls, owner, step, names, function, arguments, most_state):
        self.owner = owner  # the class that has `_init_group`
        self.code = step.__code__
        self.names, self.function = names, function  # where `step()` looks for its function, by which name
        self.ways = [name for name in (f"_single_tensor_{function}", f"_multi_tensor_{function}") if name in names]
        self.arguments = arguments
        self.most_state = most_state
        self.kept_afterwards = KEPT_AFTERWARDS.get(cls.__name__)

    def computes_as_pytorch(self):
        """Whether nobody has put another function in the place of those that the function calls for a whole list."""
        return all(is_of_pytorch(self.names.get(name)) for name in self.ways)


def kind_of(optimizer):
    """None if it may not be taken in chunks, or if this PyTorch has it otherwise."""
    cls = type(optimizer)
    known = KNOWN.get(cls.__name__)
    if known is None or getattr(torch.optim, cls.__name__, None) is not cls:
        return None
    function, arguments, most_state = known
    step = inspect.unwrap(cls.step)
    owner = next((base for base in cls.__mro__ if "_init_group" in base.__dict__), None)
    called = getattr(getattr(step, "__code__", None), "co_names", ())
    names = getattr(step, "__globals__", {})
    if owner is None or not {"_init_group", function} <= set(called) or function not in names or not is_of_pytorch(step):
        return None
    found = tuple(inspect.signature(owner._init_group).parameters)[2:]
    takes = inspect.signature(names[function]).parameters
    # The first two lists have other names in the function.
    if found != arguments or not set(found[2:]) <= set(takes):
        return None
    return Kind(cls, owner, step, names, function, found, most_state)


def is_of_pytorch(function):
    """Programs wrap functions of PyTorch, or put their own in their place. Those may do anything with a whole list of parameters."""
    while function is not None:
        where = getattr(function, "__globals__", {}).get("__name__", "")
        if not where.startswith("torch.optim."):
            return False
        function = getattr(function, "__wrapped__", None)
    return True


def is_uniform(optimizer, kind, group, is_mine):
    """Whether all parameters of a group are treated in the same way, whichever of them are in one list."""
    # A group of another class may give its values otherwise than a plain one.
    if (
        type(group) is not dict
        or any(group.get(way) for way in OTHER_WAYS)
        or any(_holds_tensor(value) for name, value in group.items() if name != "params")
    ):
        return False
    with_state, ways = [], set()
    for parameter in group["params"]:
        gradient = parameter.grad
        if gradient is None:
            continue
        part = part_of(parameter)
        state = dict.get(optimizer.state, parameter)
        if part is None or not part.is_floating_point() or not is_mine(part) or not _is_like(gradient, parameter):
            return False
        if not all(_may_be_state(value, parameter) for value in (state or {}).values()):
            return False
        with_state.append(kind.kept_afterwards is not None and (state or {}).get(kind.kept_afterwards[1]) is not None)
        ways.add(_placed(parameter)[:1])
    # Some lists with tensors that are not there yet are treated otherwise.
    return len(ways) <= 1 and len(set(with_state)) <= 1 and _are_apart(optimizer, group)


def part_of(tensor):
    """The plain tensor of this process; None for classes that are not known."""
    if type(tensor) in (torch.Tensor, torch.nn.Parameter):
        return tensor
    return tensor._local_tensor if _is_sharded(tensor) else None


def bytes_of(parameter):
    part = part_of(parameter)
    return 0 if part is None else part.numel() * part.element_size()


def _is_sharded(tensor):
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and type(tensor) is module.DTensor and not any(placed.is_partial() for placed in tensor.placements)


def _placed(tensor):
    """On which processes, and how. Operations between tensors that are placed alike move nothing between processes."""
    return (tensor.device_mesh, tensor.placements) if _is_sharded(tensor) else (None, None)


def _holds_tensor(value):
    return any(isinstance(one, torch.Tensor) for one in (value if isinstance(value, (tuple, list)) else (value,)))


def _is_like(tensor, parameter):
    """Kernels for lists take the fast way only if all lists are so."""
    mine, part = part_of(tensor), part_of(parameter)
    return (
        mine is not None
        and _placed(tensor) == _placed(parameter)
        and mine.layout == torch.strided
        and part.layout == torch.strided
        and mine.dtype == part.dtype
        and mine.device == part.device
        and mine.shape == part.shape
        and mine.stride() == part.stride()
        and torch.ops.aten.is_non_overlapping_and_dense(mine)
        and not (mine.is_conj() or mine.is_neg())
    )


def _may_be_state(value, parameter):
    """Numbers are on the host, everything else is like the parameter."""
    if not isinstance(value, torch.Tensor):
        return True
    is_number = part_of(value) is not None and value.numel() == 1 and value.device.type == "cpu"
    return is_number or _is_like(value, parameter)


def _are_apart(optimizer, group):
    """No parameter is there twice, and no memory belongs to two of them: parameters, gradients, state. Kernels for lists would write to
    such memory for all parameters, and then read it."""
    ranges, entries, storages = [], [], []
    for parameter in group["params"]:
        if parameter.grad is None:
            continue
        tensors = [parameter, parameter.grad]
        state = dict.get(optimizer.state, parameter)
        if state:
            entries.append(id(state))
            of_entry = [value for value in state.values() if isinstance(value, torch.Tensor)]
            tensors += of_entry
            # Swapped-out state has no address.
            storages += [part_of(value).untyped_storage()._cdata for value in of_entry]
        for part in map(part_of, tensors):
            ranges.append((part.data_ptr(), part.numel() * part.element_size()))
    ranges = sorted(one for one in ranges if one[0] != 0 and one[1] > 0)
    are_once = len(set(entries)) == len(entries) and len(set(storages)) == len(storages)
    return are_once and all(begin + size <= following for (begin, size), (following, _) in zip(ranges, ranges[1:]))
