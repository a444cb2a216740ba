"""The problems on which linear_cross_entropy is judged, on every backend."""

import dataclasses
import itertools
import math

import torch

import thunderkittens
from tests.families.cross_entropy.cases import BF16, FP16, FP32, FP64, OPTIONS, SHORT
from thunderkittens.testing import assert_close, tolerance


@dataclasses.dataclass(frozen=True)
class LinearCase:
    """One call of linear_cross_entropy.

    Attributes:
        width: V.
        hidden: H.
        leading: The sizes of x before it.
        dtype: Of x, weight and bias.
        bias: There is one.
        chunk_rows: Of the inner op; None for what the op chooses.
        reduction: As given to the op, like all that follow.
        label_smoothing: 0 … 1.
        z_loss: Weight of the squared log-sum-exp.
        dloss: The loss's own gradient.
    """

    width: int
    hidden: int = 24
    leading: tuple[int, ...] = (10,)
    dtype: torch.dtype = FP32
    bias: bool = False
    chunk_rows: int | None = None
    reduction: str = "mean"
    label_smoothing: float = 0.0
    z_loss: float = 0.0
    dloss: float = 1.0

    def __str__(self) -> str:
        parts = ["x".join(map(str, (*self.leading, self.hidden, self.width))), SHORT[self.dtype]]
        for field in dataclasses.fields(self)[4:]:
            if getattr(self, field.name) != field.default:
                parts.append(f"{field.name}={getattr(self, field.name)}")
        return ",".join(parts)

    @property
    def options(self) -> dict:
        """What the op and its reference take alike."""
        names = ("reduction", "label_smoothing", "z_loss")
        return {name: getattr(self, name) for name in names}


def every(width: int = 33, dtypes=(FP32, FP16, BF16)) -> list[LinearCase]:
    """Dtypes with and without a bias, several chunks, options, gradients that are not 1."""
    cases = [
        LinearCase(width, dtype=d, bias=b) for d, b in itertools.product(dtypes, (False, True))
    ]
    cases += [
        LinearCase(width, dtype=d, bias=True, chunk_rows=c) for d in dtypes for c in (1, 4, 5)
    ]
    cases += [LinearCase(width, dtype=BF16, bias=True, **o) for o in OPTIONS]
    cases += [LinearCase(width, dtype=BF16, dloss=-0.3, bias=b) for b in (False, True)]
    # Vocabularies of one product each, and of two.
    cases += [LinearCase(w, dtype=d, bias=True) for w in (1, 7, 8, 15) for d in (FP32, BF16)]
    return [*cases, LinearCase(width, leading=(2, 3))]


def make(case: LinearCase, device: str = "cpu") -> list[torch.Tensor | None]:
    """x, weight, bias and targets of a case."""

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, dtype=FP32, device=device).to(case.dtype)

    targets = torch.randint(0, case.width, case.leading, device=device)
    targets.view(-1)[1::4] = -100
    bias = normal(case.width) if case.bias else None
    weight = normal(case.width, case.hidden) / 4
    return [normal(*case.leading, case.hidden), weight, bias, targets]


def run(case: LinearCase, x, weight, bias, targets) -> list[torch.Tensor | None]:
    """The loss without a gradient, that with one, dx, dweight and dbias."""
    if case.chunk_rows is not None:
        forward = torch.ops.thunderkittens.linear_cross_entropy_forward
        options = case.options | {"chunk_rows": case.chunk_rows}
        alone = forward(x, weight, targets, bias, [False] * 3, **options)[0]
        needs = [True, True, bias is not None]
        loss, dx, dweight, dbias = forward(x, weight, targets, bias, needs, **options)
        return [alone, loss, dx, dweight, dbias if case.bias else None]
    call = thunderkittens.linear_cross_entropy
    alone = call(x, weight, targets, bias=bias, **case.options)
    leaves = [None if t is None else t.detach().requires_grad_() for t in (x, weight, bias)]
    loss = call(leaves[0], leaves[1], targets, bias=leaves[2], **case.options)
    given = [t for t in leaves if t is not None]
    gradients = iter(torch.autograd.grad(loss, given, torch.full_like(loss, case.dloss)))
    return [alone, loss.detach(), *(None if t is None else next(gradients) for t in leaves)]


def check(case: LinearCase, inputs, results) -> None:
    """Asserts the results of `run` against float64, element by element and row by row.

    What the products round stands in the bounds. A logit x is rounded to 16 bits before its
    exponential: with bfloat16 by up to 2⁻⁸ |x|, which is a relative error of its probability, and
    the largest logits shift those of the whole row as much. V of these gradients, or those of all
    rows, are added up, times numbers that are exact: where one of them is above all others, its
    error is that of a whole row of the result.
    """
    x, weight, bias, targets = inputs
    alone, loss, *gradients = results
    inner = FP64 if case.dtype == FP64 else FP32
    wide, w = x.double().flatten(0, -2), weight.double()
    logits = wide @ w.T + (0 if bias is None else bias.double())
    size = wide.abs() @ w.abs().T + (0 if bias is None else bias.double().abs())
    slack = 2 * tolerance.unit(case.dtype) * logits.abs()
    slack = slack + tolerance.accumulation(case.hidden, inner) * size
    (loss_want, loss_bound), (g, g_bound) = tolerance.cross_entropy(
        logits, targets.flatten(), case.dloss, dtype=case.dtype, slack=slack, **case.options
    )
    assert loss.dtype == inner
    assert torch.equal(alone, loss)
    assert_close(loss.flatten(), loss_want.flatten(), loss_bound.flatten(), "loss")
    wants = (
        (g @ w, g_bound @ w.abs(), g.abs() @ w.abs(), case.width, x),
        (g.T @ wide, g_bound.T @ wide.abs(), g.abs().T @ wide.abs(), len(g), weight),
        (g.sum(0), g_bound.sum(0), g.abs().sum(0), len(g), bias),
    )
    for got, (want, shared, terms, length, like), name in zip(
        gradients, wants, ("dx", "dweight", "dbias"), strict=True
    ):
        if like is None:
            assert got is None
            continue
        bound = shared + tolerance.accumulation(length, inner) * (terms + shared)
        rounded = 4 * tolerance.unit(case.dtype) * (want.abs() + shared)
        bound = bound + rounded + tolerance.floor(case.dtype)
        assert (got.dtype, got.shape) == (like.dtype, like.shape)
        assert_close(got.view(want.shape), want, bound, name, shared)


def check_gradients_of_loss_that_are_not_finite(device: str) -> None:
    """Asserts zeros in the gradients of ignored rows, whatever the loss's own gradient is."""
    for reduction, value in itertools.product(("mean", "none"), (math.inf, math.nan)):
        x, weight, bias, targets = make(LinearCase(33, bias=True), device)
        ignored = targets == -100
        x.requires_grad_()
        loss = thunderkittens.linear_cross_entropy(
            x, weight, targets, bias=bias, reduction=reduction
        )
        for last in (False, True):
            (dx,) = torch.autograd.grad(
                loss, x, torch.full_like(loss, value), retain_graph=not last
            )
            assert torch.equal(dx[ignored], torch.zeros_like(dx[ignored]))
            assert not dx[~ignored].isfinite().any()
