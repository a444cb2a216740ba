"""Calls of the public ops that tests of all ops make: the families' calls.py.

There, `CALLS` has each differentiable op, for backward() inside autocast, and `RECORDED` those that
record a node of ours in autograd's graph on the CPU too, with what is to be expected of it.
`SHORT_FORMS`, if an op has one, has for each short form a function from `x(*shape)`, which makes a
tensor that has a gradient, to inputs. `WRONG_TYPES` has calls with arguments of the wrong Python
type, each under the sentence that it ends in. `NO_BACKWARD` names ops that have none.
`MORE_ARGUMENTS` has for an op what its function must be given and its table of arguments lacks,
`CHECKED_BY_OP` tensors that the op itself is given and checks. `OF_TORCH` names public functions
that are made of torch's own ops.
"""

import dataclasses
from collections.abc import Callable

import torch
from torch import Tensor

from tests.tools import families
from thunderkittens.testing import memory

FP32, BF16 = torch.float32, torch.bfloat16


def of_torch() -> set[str]:
    """Public functions that are made of torch's own ops."""
    return {name for m in families.each("calls.py") for name in getattr(m, "OF_TORCH", ())}


@dataclasses.dataclass(frozen=True)
class Call:
    """A call of an op.

    Attributes:
        op: Its public name.
        shapes: Of the tensors that have a gradient.
        call: Takes those, and gives the op's outputs.
        kind: What sets it apart from the op's other calls.
    """

    op: str
    shapes: tuple[tuple[int, ...], ...]
    call: Callable[..., Tensor | tuple[Tensor, ...]]
    kind: str = ""

    def __str__(self) -> str:
        return f"{self.op} {self.kind}".strip()


@dataclasses.dataclass(frozen=True)
class Recorded(Call):
    """A call, and what it records for the backward.

    Attributes:
        below: The op that it runs below autograd, if not `op`.
        saved_inputs: Those that must not be written before the backward.
        saved_outputs: Outputs that must not, for the gradients of the others.
        alone: For an output that depends on some inputs alone, those.
        refuses: As messages name the op whose double backward is refused, if not `op`; None where
            the call is differentiable twice.
    """

    below: str = ""
    saved_inputs: tuple[int, ...] = ()
    saved_outputs: tuple[int, ...] = ()
    alone: dict[int, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    refuses: str | None = ""

    @property
    def forward(self) -> str:
        return self.below or self.op


def check(call: Call, dtype: torch.dtype, device: str, forward_in_autocast: bool) -> None:
    """Asserts that autocast around the backward changes no bit of a gradient."""
    leaves = [torch.randn(s, device=device).to(dtype).requires_grad_() for s in call.shapes]
    with torch.autocast(device, BF16, enabled=forward_in_autocast):
        outputs = call.call(*leaves)
    outputs = [outputs] if isinstance(outputs, Tensor) else list(outputs)
    given = [torch.randn(o.shape, device=device).to(o.dtype) for o in outputs]

    def gradients(autocast: bool) -> tuple[Tensor, ...]:
        with torch.autocast(device, BF16, enabled=autocast):
            return torch.autograd.grad(outputs, leaves, given, retain_graph=True)

    want, got = gradients(autocast=False), gradients(autocast=True)
    assert all(map(memory.bits_equal, got, want))
    assert all(bool(t.any()) for t in want)
