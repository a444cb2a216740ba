"""The problems on which layer_norm is judged, on every backend: one list, three files of tests."""

import dataclasses
import itertools

import torch

import thunderkittens
from tests.tools.tensors import BF16, FP16, FP32, FP64, SHORT, lay_out
from thunderkittens.testing import assert_close, tolerance

# Around a warp's vector loads, a block's threads, and the widths of known models.
WIDTHS = (1, 7, 8, 9, 127, 128, 129, 767, 768, 769, 1023, 1024, 1025)
WIDE = 8193  # the first width whose row does not fit one block's registers

LAYOUTS = ("contiguous", "sliced", "offset", "stepped", "permuted", "expanded")
GRADIENTS = ("contiguous", "sliced", "permuted", "expanded", "constant")
REGIMES = (
    "normal",
    "constant rows",
    "large mean",
    "huge",
    "tiny",
    "mixed rows",
    "mostly zeros",
    "far head",
)


@dataclasses.dataclass(frozen=True)
class Case:
    """One call of layer_norm.

    Attributes:
        width: N.
        leading: The sizes before it.
        dtype: Of x.
        weight: Its dtype, or None for no weight.
        bias: Its dtype, or None for no bias.
        layout: How x lies in memory, one of LAYOUTS.
        gradient: How dy does, one of GRADIENTS.
        regime: What values x has, one of REGIMES.
        eps: As given to the op.
    """

    width: int
    leading: tuple[int, ...] = (3,)
    dtype: torch.dtype = FP32
    weight: torch.dtype | None = FP32
    bias: torch.dtype | None = FP32
    layout: str = "contiguous"
    gradient: str = "contiguous"
    regime: str = "normal"
    eps: float = 1e-5

    def __str__(self) -> str:
        parts = ["x".join(map(str, (*self.leading, self.width))), SHORT[self.dtype]]
        for name in ("weight", "bias"):
            dtype = getattr(self, name)
            if dtype != self.dtype:
                parts.append(f"{name}={SHORT.get(dtype)}")
        for name in ("layout", "gradient", "regime", "eps"):
            if getattr(self, name) != Case.__dataclass_fields__[name].default:
                parts.append(f"{name}={getattr(self, name)}")
        return ",".join(parts).replace(" ", "_")


def widths(values=WIDTHS, dtypes=(FP32, FP16, BF16), leading=(3,)) -> list[Case]:
    """Every width in every dtype, weight and bias of x's dtype."""
    return [Case(w, leading, d, d, d) for w, d in itertools.product(values, dtypes)]


def options(width: int, leading=(3,)) -> list[Case]:
    """With and without weight and bias, and both of another dtype than x."""
    cases = [
        Case(width, leading, weight=w, bias=b)
        for w, b in itertools.product((FP32, None), (FP32, None))
    ]
    for dtype in (FP16, BF16):
        cases += [
            Case(width, leading, dtype, weight=w, bias=b)
            for w, b in itertools.product((dtype, FP32, None), (dtype, FP32, None))
            if (w, b) != (dtype, dtype)
        ]
    return [*cases, Case(width, leading, eps=0.0), Case(width, leading, eps=1.0)]


def layouts(width: int, leading=(2, 3)) -> list[Case]:
    """Every way that x, then dy, may lie in memory."""
    cases = [Case(width, leading, d, d, d, layout=x) for x in LAYOUTS for d in (FP32, BF16)]
    return cases + [Case(width, leading, BF16, BF16, BF16, gradient=g) for g in GRADIENTS[1:]]


def regimes(width: int, leading=(5,)) -> list[Case]:
    """Values that break sums of squares, one-pass variances and 16-bit intermediate results."""
    return [Case(width, leading, d, d, d, regime=r) for r in REGIMES for d in (FP32, FP16, BF16)]


def forms(rows: int) -> list[Case]:
    """The widths between which the forward's forms change, of more rows than count as few."""
    halves = (264, 760, 1000, 1544, 3080, 8200)
    cases = [Case(w, (rows,), BF16, d, d) for w in halves for d in (BF16, FP32, None)]
    cases += [Case(w, (rows,), BF16, BF16, None) for w in halves]
    return cases + [Case(w, (rows,)) for w in (264, 1032, 2056, 4104)]


def values(case: Case, device: str) -> torch.Tensor:
    """x in the case's regime, before it is laid out."""
    shape = (*case.leading, case.width)
    normal = torch.randn(shape, dtype=FP32, device=device)
    row = torch.arange(normal[..., :1].numel(), device=device).view(*case.leading, 1)
    made = {
        "normal": lambda: normal,
        "constant rows": lambda: (row * 1449.0).expand(shape),
        "large mean": lambda: 1e4 + 1e-2 * normal,
        "huge": lambda: 6e4 * normal.sign(),
        "tiny": lambda: 1e-4 * normal,
        "mixed rows": lambda: normal * 10.0 ** (row % 5 - 2),
        "far head": lambda: normal + 1e3 * (torch.arange(case.width, device=device) < 256),
        "mostly zeros": lambda: normal * (torch.rand(shape, device=device) > 0.75),
    }
    return made[case.regime]().to(case.dtype)


def make(case: Case, device: str = "cpu") -> tuple[torch.Tensor | None, ...]:
    """x, weight, bias and dy of a case."""

    def parameter(dtype, centre):
        if dtype is None:
            return None
        return (centre + 0.5 * torch.randn(case.width, dtype=FP32, device=device)).to(dtype)

    x = lay_out(values(case, device), case.layout)
    dy = torch.randn(x.shape, dtype=FP32, device=device).to(case.dtype)
    return x, parameter(case.weight, 1.0), parameter(case.bias, 0.0), lay_out(dy, case.gradient)


def run(x, weight, bias, dy, eps=1e-5) -> list[torch.Tensor | None]:
    """y, dx, dweight, dbias through autograd; None for a parameter that is not there."""
    leaves = [None if t is None else t.detach().requires_grad_() for t in (x, weight, bias)]
    y = thunderkittens.layer_norm(*leaves, eps)
    given = [t for t in leaves if t is not None]
    gradients = iter(torch.autograd.grad(y, given, dy))
    return [y.detach(), *(None if t is None else next(gradients) for t in leaves)]


def check(case: Case, inputs, results) -> None:
    """Asserts the results of `run` against float64, element by element and row by row."""
    x, weight, bias, dy = inputs
    y, dx, dweight, dbias = results
    statistics = FP64 if case.dtype == FP64 else FP32
    assert_close(y, *tolerance.layer_norm(x, weight, bias, case.eps, statistics), "y")
    wants = tolerance.layer_norm_backward(dy, x, weight, bias, case.eps, statistics)
    for got, like, want, name in zip(
        (dx, dweight, dbias), (x, weight, bias), wants, ("dx", "dweight", "dbias"), strict=True
    ):
        if like is not None:
            assert got.dtype == like.dtype, f"{name} is {got.dtype}"
            assert_close(got, *want, name)
    assert y.dtype == x.dtype
    assert y.is_contiguous()
    assert dx.is_contiguous()


EXAMPLE = Case(1024, (20,), BF16, BF16, BF16)  # of `make sim`
# What tests/tools/budgets.py measures.
BUDGETS = {
    "layer_norm": Case(1024, (20,), BF16, BF16, BF16),
    "layer_norm, few rows": Case(1024, (5,), BF16, BF16, BF16),
    "layer_norm, long": Case(3000, (20,), BF16, BF16, BF16),
    "layer_norm, wide": Case(WIDE, (3,), BF16, BF16, BF16),
}
SMALL = "--width 72 --weight none"  # options of `make sim`, for its tests


def run_case(case: Case, inputs) -> list[torch.Tensor | None]:
    """The calls of a case, forward and backward, by the backend in force."""
    return run(*inputs, case.eps)


def check_case(case: Case, inputs, results) -> None:
    """Asserts what `run_case` gave against float64."""
    check(case, inputs, results)


def check_large_mean(device: str) -> None:
    """Asserts that a mean of 10⁶ standard deviations costs y and dx nothing.

    x − mean is exact here (both lie within a factor of two), so what is left are the roundings of
    sums of 1000 numbers of one deviation, about √1000 · 2⁻²⁴ = 2e-6: 1e-5 for y, twice that for dx,
    which has two such sums. A mean rounded to float alone would cost 5e-2.
    """
    x = (1e4 + 1e-2 * torch.randn(5, 1000, dtype=FP32)).to(device).requires_grad_()
    dy = torch.randn(5, 1000, dtype=FP32).to(device)
    exact = x.detach().double().requires_grad_()
    y = thunderkittens.layer_norm(x, eps=0.0)
    want = torch.nn.functional.layer_norm(exact, (1000,), eps=0.0)
    assert (y - want).abs().max() < 1e-5
    (dx,) = torch.autograd.grad(y, x, dy)
    (want_dx,) = torch.autograd.grad(want, exact, dy.double())
    assert (dx - want_dx).abs().max() < 2e-5 * want_dx.abs().max()


def check_tiny_eps(device: str) -> None:
    """Asserts that a row of equal values gives the bias under the smallest positive eps."""
    x = torch.full((2, 40), 3.0, device=device)
    bias = torch.randn(40, device=device)
    for eps in (1e-45, 1e-39, 1e-37):
        assert torch.equal(thunderkittens.layer_norm(x, None, bias, eps), bias.expand(2, 40))


def check_not_finite(device: str) -> None:
    """Asserts that a NaN or an infinity spoils its row, statistics included, and no other."""
    x = torch.randn(4, 1100, dtype=FP32, device=device)
    want = torch.ops.thunderkittens.layer_norm_forward(x, None, None, 1e-5)
    x[1, 700], x[2, 3] = float("nan"), float("inf")
    got = torch.ops.thunderkittens.layer_norm_forward(x, None, None, 1e-5)
    for spoilt, whole, name in zip(got, want, ("y", "mean", "rstd"), strict=True):
        assert torch.equal(spoilt[::3], whole[::3]), name
        assert spoilt[1].isnan().all(), name
        assert not spoilt[2].isfinite().any(), name
