"""Which backend a call takes, and why."""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch.utils._pytree import tree_map

from thunderkittens import _C
from thunderkittens.ops._fallback import computed_by_torch
from thunderkittens.ops.attention import note_of_layout
from thunderkittens.ops.scaled_dot_product_attention import by_attention, why_torch

_NOTES = {"attention": note_of_layout}  # on calls that are legal, and perhaps not meant
_COMPOSED = "scaled_dot_product_attention"  # in Python, of an op of another name
_OF_TORCH = ("based_features",)  # in Python, of torch's ops


@dataclasses.dataclass(frozen=True)
class Explanation:
    """The answer of `explain`; printed, it is one sentence.

    Attributes:
        op: The op that was asked about.
        backend: "cuda", "torch" or "simulator".
        reason: Why that one.
        notes: What else the call would do, such as copying an argument first.
    """

    op: str
    backend: Literal["cuda", "torch", "simulator"]
    reason: str
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "; ".join([f"{self.op}: {self.backend} ({self.reason})", *self.notes])


def explain(op: str, *args: object, **kwargs: object) -> Explanation:
    """Says which backend a call would take, without computing anything.

    The arguments are checked as in the call itself, and the choice is made by the same code.

    Args:
        op: The public function's name, such as "layer_norm".
        *args: Its arguments.
        **kwargs: Its keyword arguments.

    Returns:
        The backend, the reason and notes.

    Raises:
        ValueError: There is no such op.
        Exception: Whatever the call itself would raise for these arguments, also where
            THUNDERKITTENS_STRICT=1 makes a fallback an error.

    Example:
        >>> import torch, thunderkittens
        >>> print(thunderkittens.explain("layer_norm", torch.ones(2, 8)))
        layer_norm: torch (the tensors are on the cpu)
    """
    import thunderkittens

    names = sorted({*public_ops(), _COMPOSED, *_OF_TORCH})
    if op not in names:
        raise ValueError(f"explain: op must be one of {', '.join(names)}, got {op!r}")
    function = getattr(thunderkittens, op)
    if op == _COMPOSED:
        return _explain_composed(inspect.signature(function).bind(*args, **kwargs))
    if op in _OF_TORCH:
        with torch.no_grad():  # its checks, on tensors without data: it may write into its state
            function(*_without_data(args), **_without_data(kwargs))
        return Explanation(op, "torch", "there is no kernel of it")
    found = _asked(op, lambda: function(*args, **kwargs))
    if op in _NOTES:
        note = _NOTES[op](**inspect.signature(function).bind(*args, **kwargs).arguments)
        found = found if note is None else dataclasses.replace(found, notes=(*found.notes, note))
    return found


def _without_data(given: object) -> Any:
    """The same, tensors in it on the device "meta"."""
    return tree_map(lambda x: x.to("meta") if isinstance(x, torch.Tensor) else x, given)


def _asked(op: str, call: Callable[[], object]) -> Explanation:
    with torch.no_grad():
        found = _C.explain(call)
    if found is None:
        return Explanation(op, "torch", "the tensors hold no data")
    _, backend, reason, notes = found
    return Explanation(op, backend, reason, tuple(notes))


def _explain_composed(bound: inspect.BoundArguments) -> Explanation:
    """Of a call that our op never sees where torch computes it."""
    bound.apply_defaults()
    given = bound.arguments
    scale = given.pop("scale")
    reason = why_torch(**given)
    if reason is not None:
        computed_by_torch(_COMPOSED, reason, given["query"].is_cuda, warns=False)
        return Explanation(_COMPOSED, "torch", reason)
    q, k, v, is_causal = (given[name] for name in ("query", "key", "value", "is_causal"))
    return _asked(_COMPOSED, lambda: by_attention(q, k, v, is_causal, scale))


def public_ops() -> list[str]:
    """The public functions that are ops, each once."""
    import thunderkittens

    ops = dict.fromkeys(kernel["op"] for kernel in _C.kernels())
    return [op for op in ops if op in thunderkittens.__all__]
