"""What ops compute by ATen, seen call by call.

A mode of Python's sees our ops alone: what they call lies below it. `Inside` has each computed by
its implementation under the mode itself, so that it sees what that calls, too.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

# Which of an op's implementations calls others: ours, and those of ATen's that are but calls.
_COMPOSED = {
    "thunderkittens": torch._C.DispatchKey.CompositeExplicitAutograd,
    "aten": torch._C.DispatchKey.CompositeImplicitAutograd,
}


class Inside(TorchDispatchMode):
    """Keeps what would give other bits on another run of a GPU.

    Args:
        fake: Whether tensors have no values: then nothing is looked for, but what reads one raises.

    Attributes:
        calls: How many calls of ATen there were.
        unordered: The names of those whose sums a GPU adds up in any order.
    """

    def __init__(self, fake: bool = False) -> None:
        super().__init__()
        self.fake = fake
        self.calls = 0
        self.unordered: list[str] = []

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        key = _COMPOSED.get(op.namespace)
        if key is not None and torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), key):
            with self:
                return op._op_dk(key, *args, **kwargs)
        self.calls += 1
        name = op._schema.name.removeprefix("aten::").rstrip("_")
        if not self.fake and is_unordered(name, *args, **kwargs):
            self.unordered.append(f"{name} of {list(args[0].shape)}")
        return op(*args, **kwargs)


def is_unordered(name: str, given: Tensor, *args, **kwargs) -> bool:
    """Whether a GPU adds floats up in an order of the moment's: by atomics, or by CUB's scan."""
    if not isinstance(given, Tensor) or not given.dtype.is_floating_point:
        return False
    if name in ("cumsum", "cumprod", "logcumsumexp"):
        return 1 < given.numel() == given.shape[args[0]]
    if name in ("index_add", "scatter_add", "scatter_reduce"):
        dim, index = args[:2]
        return _comes_twice(index, dim if name != "index_add" else 0)
    if name in ("index_put", "_index_put_impl") and (
        args[2:3] == (True,) or kwargs.get("accumulate")
    ):
        index = torch.stack(torch.broadcast_tensors(*(i for i in args[0] if i is not None)))
        return len(index.flatten(1).T.unique(dim=0)) < index[0].numel()
    return name in (
        "bincount",
        "histc",
        "put",
        "embedding_dense_backward",
        "grid_sampler_2d_backward",
    )


def _comes_twice(index: Tensor, dim: int) -> bool:
    ordered = index.sort(dim).values
    return bool((ordered.diff(dim=dim) == 0).any())
