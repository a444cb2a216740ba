"""What is repeated on a GPU of cross_entropy: rows that its ring streams, or are read twice."""

import dataclasses
from collections.abc import Sequence

import torch
from torch import Tensor

import thunderkittens
from tests.families.cross_entropy import cases
from tests.families.cross_entropy.cases import BF16, FP16, FP32
from tests.stress.problem import Results, Stress
from thunderkittens.testing import tolerance

ELEMENTS_AT_ONCE = 2**23  # of logits, in float64: a reference is made of some twenty such tensors


@dataclasses.dataclass(frozen=True)
class Problem(Stress):
    """One of cross_entropy's.

    Attributes:
        loss_alone: Without a gradient.
    """

    loss_alone: bool = False

    def __str__(self) -> str:
        return f"{super().__str__()}{',loss_alone' if self.loss_alone else ''}"

    def run(self, inputs: Sequence[Tensor | None]) -> Results:
        """Its call, and the gradient unless the loss is wanted alone."""
        if self.loss_alone:
            logits, targets = inputs
            return [thunderkittens.cross_entropy(logits, targets, **self.case.options)]
        return super().run(inputs)

    def check(self, inputs: Sequence[Tensor | None], results: Results) -> None:
        """Asserts the results against float64."""
        check(self.case, *inputs, *results)


def check(
    case: cases.Case,
    logits: Tensor,
    targets: Tensor,
    loss: Tensor,
    gradient: Tensor | None = None,
) -> None:
    """As cases.check, some rows at a time and on the device; of the mean alone."""
    assert case.reduction == "mean", case
    count = int((targets != -100).sum())
    total, bound, size = 0.0, 0.0, 0.0
    wrong = torch.zeros((), dtype=torch.int64, device=logits.device)
    rows = max(1, ELEMENTS_AT_ONCE // case.width)
    for at in range(0, len(logits), rows):
        part = slice(at, at + rows)
        (losses, losses_bound), (want, want_bound) = tolerance.cross_entropy(
            logits[part], targets[part], case.dloss / count, reduction="none"
        )
        total, bound = total + losses.sum(), bound + losses_bound.sum()
        size = size + losses.abs().sum()
        if gradient is not None:
            wrong += (~((gradient[part].double() - want).abs() <= want_bound)).sum()
    assert int(wrong) == 0, f"gradient: {int(wrong)} of {logits.numel()} elements are off"
    bound = (bound + tolerance.accumulation(len(targets)) * size) / count
    error = (loss.double() - total / count).abs()
    assert bool(error <= bound), f"loss: off by {float(error):.3g}, allowed {float(bound):.3g}"


def problems() -> list[Problem]:
    """Through the ring: rows that do not fit in registers. Those of issue reports come first."""
    case = cases.Case
    some = [
        case(262144, (61,), BF16, "offset", ignored=0),
        case(262144, (61,), FP16, "offset", ignored=0),
        case(131073, (122,), FP32, "offset", ignored=0),
        case(128256, (4096,), BF16, "offset", ignored=0),
        case(50257, (400,), BF16),
        case(50304, (8192,), BF16),
        case(50304, (300,), BF16, "offset", inplace=True, dloss=0.3),
        case(20001, (120,), BF16),  # few rows, whose last block adds up the losses
    ]
    found = [Problem("cross_entropy_stream", each, cases) for each in some]
    alone = case(50304, (132,), BF16, "offset")
    found.append(Problem("cross_entropy_stream", alone, cases, loss_alone=True))
    of_generic = [
        case(128256, (400,), BF16, "offset", generic=True),
        case(50304, (1000,), BF16, inplace=True, dloss=0.3, generic=True),
        case(9001, (120,), FP32, generic=True),
    ]
    return [*found, *(Problem("cross_entropy_two_pass", each, cases) for each in of_generic)]


CASES = tuple(problems())
