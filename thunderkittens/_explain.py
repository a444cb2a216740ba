"""Which backend a call takes, and why."""

import dataclasses
import inspect

import torch

from thunderkittens import _C
from thunderkittens.ops._fallback import computed_by_torch
from thunderkittens.ops.scaled_dot_product_attention import by_attention, why_torch

_COMPOSED = "scaled_dot_product_attention"  # in Python, of an op of another name


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
    backend: str
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

    names = sorted({*public_ops(), _COMPOSED})
    if op not in names:
        raise ValueError(f"explain: op must be one of {', '.join(names)}, got {op!r}")
    function = getattr(thunderkittens, op)
    if op == _COMPOSED:
        bound = inspect.signature(function).bind(*args, **kwargs)
        bound.apply_defaults()
        given = bound.arguments
        reason = why_torch(**{name: given[name] for name in given if name != "scale"})
        if reason is not None:
            computed_by_torch(op, reason, given["query"].is_cuda, warns=False)
            return Explanation(op, "torch", reason)
        names_of_ours = ("query", "key", "value", "is_causal", "scale")
        args, kwargs = tuple(given[name] for name in names_of_ours), {}
        function = by_attention
    with torch.no_grad():
        found = _C.explain(lambda: function(*args, **kwargs))
    if found is None:
        return Explanation(op, "torch", "the tensors hold no data")
    _, backend, reason, notes = found
    return Explanation(op, backend, reason, tuple(notes))


def public_ops() -> list[str]:
    """The public functions that are ops, each once."""
    import thunderkittens

    ops = dict.fromkeys(kernel["op"] for kernel in _C.kernels())
    return [op for op in ops if op in thunderkittens.__all__]
