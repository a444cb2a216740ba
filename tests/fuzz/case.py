"""What a family of ops hands over: a call, what goes into it, and how its results are judged."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from types import ModuleType

import torch
from torch import Tensor

from tests.fuzz.placement import Placed
from tests.tools import families

Tensors = dict[str, Tensor]


@dataclasses.dataclass
class Judged:
    """The reference of a result.

    Attributes:
        want: In float64. NaN where a NaN must be.
        bound: The largest allowed error; infinite where anything is right.
    """

    want: Tensor
    bound: Tensor


@dataclasses.dataclass
class Case:
    """One call of an op.

    Attributes:
        title: Its shapes and options, for whoever reads of its failure.
        inputs: Every tensor that it gets, by name, as it lies in memory.
        call: From tensors, which are those of `inputs`, to the results by name.
        judge: From all results (an input's gradient is "d" and its name; what is written in place
            has the input's own name) to the references of those that are judged.
        leaves: The inputs whose gradients are asked for.
        incoming: The gradients of the results, by the results' names; none: no backward.
        written: Inputs that the call writes in place.
        nondeterministic: Results whose bits may change from run to run.
        own: Whether a kernel of ours, if any, computes the call. Torch's own backward is not
            made for autocast.
        graph: Whether it can be captured in a CUDA graph and gives the same in each replay.
    """

    title: str
    inputs: dict[str, Placed]
    call: Callable[[Tensors], Tensors]
    judge: Callable[[Tensors], dict[str, Judged]]
    leaves: tuple[str, ...] = ()
    incoming: dict[str, Placed] = dataclasses.field(default_factory=dict)
    written: tuple[str, ...] = ()
    nondeterministic: tuple[str, ...] = ()
    own: bool = True
    graph: bool = True

    @property
    def dtype(self) -> torch.dtype:
        """Of its first tensor."""
        return next(iter(self.inputs.values())).view.dtype

    @property
    def placed(self) -> dict[str, Placed]:
        """All tensors that the call or its backward reads."""
        return {**self.inputs, **{f"d{name}": p for name, p in self.incoming.items()}}


def ops() -> dict[str, ModuleType]:
    """Every op, and the module of its family that makes its cases."""
    modules = [module for module in families.each("fuzz*.py") if hasattr(module, "OPS")]
    return {op: module for module in modules for op in module.OPS}


def describe(**parts: object) -> str:
    """A title: `name=value`, without what is None, False or empty."""
    shown = []
    for name, value in parts.items():
        if value is None or value is False or value == ():
            continue
        text = str(value).replace("torch.", "").replace(" ", "")
        shown.append(name if value is True else f"{name}={text}")
    return " ".join(shown)


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
