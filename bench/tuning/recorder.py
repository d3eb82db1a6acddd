"""Records the requests of a real PyTorch program without a GPU: models live on the meta device, so that only shapes are computed.
Every new storage is a request, and its end is a free. Workspaces of kernels and further streams are not seen."""

from __future__ import annotations

import gzip
import weakref
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Recorder(TorchDispatchMode):
    """While it is active, notes requests and frees. A line of the file: `+BYTES` for the next slot, `-SLOT` for a free."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.slots = 0
        self.live = 0
        self.peak = 0
        self.known: dict[int, weakref.ref[Any]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                self.note(leaf.untyped_storage())
        return result

    def note(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata
        bytes_ = storage.nbytes()
        if key in self.known or bytes_ == 0:
            return
        slot = self.slots
        self.slots += 1
        self.live += bytes_
        self.peak = max(self.peak, self.live)
        self.lines.append(f"+{bytes_}")

        def ended(_: Any) -> None:
            self.known.pop(key, None)
            self.live -= bytes_
            self.lines.append(f"-{slot}")

        self.known[key] = weakref.ref(storage, ended)

    def save(self, path: Path) -> None:
        with gzip.open(path, "wt") as file:
            file.write("\n".join(self.lines))
