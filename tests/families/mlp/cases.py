"""The problems on which mlp is judged, on every backend: one list for all tests."""

import dataclasses

import torch
from torch import Tensor
from torch.nn import functional

import thunderkittens
from tests.tools.tensors import BF16, FP16, FP32, FP64, SHORT, lay_out
from thunderkittens.testing import assert_close, tolerance

LAYOUTS = ("contiguous", "offset", "sliced", "stepped", "permuted", "expanded")
RESULTS = ("y", "dx", "dfc1_weight", "dfc1_bias", "dfc2_weight", "dfc2_bias")


@dataclasses.dataclass(frozen=True)
class Case:
    """One call, and its backward.

    Attributes:
        leading: The sizes of x before K.
        inputs: K.
        hidden: F.
        outputs: N, of y.
        dtype: Of all tensors.
        approximate: As given to the op.
        bias: Both layers have one.
        transposed: Both weights lie as [in, out].
        layout: How x and dy lie in memory, one of LAYOUTS.
        large: What x is multiplied by.
    """

    leading: tuple[int, ...]
    inputs: int
    hidden: int
    outputs: int
    dtype: torch.dtype = BF16
    approximate: str = "none"
    bias: bool = True
    transposed: bool = False
    layout: str = "contiguous"
    large: float = 1.0

    def __str__(self) -> str:
        sizes = (*self.leading, self.inputs, self.hidden, self.outputs)
        parts = ["x".join(map(str, sizes)), SHORT[self.dtype], self.approximate]
        for name in ("bias", "transposed", "layout", "large"):
            if getattr(self, name) != Case.__dataclass_fields__[name].default:
                parts.append(f"{name}={getattr(self, name)}")
        return ",".join(parts)


EXAMPLE = Case((40,), 72, 136, 64)  # of `make sim`
# What tests/tools/budgets.py measures.
BUDGETS = {
    "mlp": Case((300,), 136, 264, 72),
    "mlp, tanh, transposed": Case((300,), 136, 264, 72, approximate="tanh", transposed=True),
}
SMALL = "--leading 20 --inputs 64 --hidden 72 --outputs 64"  # of `make sim`, for its tests


def sizes(dtypes=(BF16, FP16)) -> list[Case]:
    """Around tiles of 128 × 128, their atoms of 64 rows, steps of 64 and the ring of five."""
    shapes = (
        ((1,), 8, 8, 8),
        ((5,), 8, 16, 24),
        ((64,), 456, 72, 64),
        ((130,), 64, 600, 40),
        ((2, 3, 43), 136, 136, 328),
        ((300,), 136, 264, 72),
    )
    return [
        Case(*shape, dtype, approximate, transposed=(i + j) % 2 == 1)
        for i, shape in enumerate(shapes)
        for j, (dtype, approximate) in enumerate((d, a) for d in dtypes for a in ("none", "tanh"))
    ]


def options(dtypes=(BF16, FP16)) -> list[Case]:
    """Layouts, biases, and what saturates gelu."""
    return [
        *(
            Case((2, 3, 20), 40, 72, 24, dtype, "tanh", layout=x)
            for x in LAYOUTS
            for dtype in dtypes
        ),
        *(Case((70,), 64, 136, 8, dtypes[0], a, bias=False) for a in ("none", "tanh")),
        *(Case((70,), 64, 136, 8, dtypes[0], a, large=30.0) for a in ("none", "tanh")),
        # More tiles than the simulated device has blocks at a time.
        Case((1100,), 64, 264, 64, dtypes[0], "tanh", transposed=True),
    ]


def every(dtypes=(BF16, FP16)) -> list[Case]:
    """All of them."""
    return [*sizes(dtypes), *options(dtypes)]


def make(case: Case, device: str = "cpu") -> tuple[Tensor | None, ...]:
    """x, both layers' weight and bias, and dy."""

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=FP32, device=device)

    def weight(out: int, inputs: int) -> Tensor:
        values = (normal(out, inputs) * max(inputs, 1) ** -0.5).to(case.dtype)
        return values.t().contiguous().t() if case.transposed else values

    x = (normal(*case.leading, case.inputs) * case.large).to(case.dtype)
    dy = normal(*case.leading, case.outputs).to(case.dtype)
    layers = []
    for out, inputs in ((case.hidden, case.inputs), (case.outputs, case.hidden)):
        bias = normal(out).to(case.dtype) if case.bias else None
        layers += [weight(out, inputs), bias]
    return lay_out(x, case.layout), *layers, lay_out(dy, case.layout)


def run_case(case: Case, inputs) -> list[Tensor]:
    """y and the gradients of all that is given, by the backend in force."""
    *given, dy = inputs
    leaves = [t if t is None else t.detach().requires_grad_() for t in given]
    y = thunderkittens.mlp(*leaves, approximate=case.approximate)
    return [y.detach(), *torch.autograd.grad(y, [t for t in leaves if t is not None], dy)]


def names(case: Case) -> list[str]:
    """What `run_case` gives."""
    return [name for name in RESULTS if case.bias or "bias" not in name]


def check_case(case: Case, inputs, results) -> None:
    """Asserts what `run_case` gave against float64."""
    wanted = reference(case.approximate, *inputs)
    given = dict(zip(RESULTS[1:], inputs[:-1], strict=True))
    for name, got in zip(names(case), results, strict=True):
        assert got.dtype == case.dtype, f"{name} is {got.dtype}"
        as_weight = name.endswith("weight") and case.transposed
        assert (got.t() if as_weight else got).is_contiguous(), name
        if name != "y":
            assert got.shape == given[name].shape, name
        assert_close(got, *wanted[name], name)


def reference(
    approximate: str,
    x: Tensor,
    fc1_weight: Tensor,
    fc1_bias: Tensor | None,
    fc2_weight: Tensor,
    fc2_bias: Tensor | None,
    dy: Tensor,
) -> dict[str, tuple[Tensor, Tensor]]:
    """Each result in float64 and its bound.

    A product is a sum in float32 (the tensor cores add with fewer bits), rounded; so are hidden,
    gelu of it, and dhidden, whose product torch's path rounds, too. gelu's slope is below 1.13, its
    second derivative below 0.8; both are computed to 2⁻¹⁴ for 16 bits.
    """
    inner = FP64 if x.dtype == FP64 else FP32
    rounding = 2 * tolerance.unit(x.dtype)
    of_gelu = 2.0**-14 if x.dtype in (FP16, BF16) else 64 * tolerance.unit(inner)
    floor = tolerance.floor(x.dtype)
    rows, dy_rows = (t.double().flatten(0, -2) for t in (x, dy))
    w1, w2 = fc1_weight.double(), fc2_weight.double()

    def product(a: Tensor, b: Tensor, a_bound: Tensor | float = 0.0, bias: Tensor | None = None):
        """a bᵀ + bias, and how far its sum may be off before it is rounded."""
        size, value, of_bias = a.abs() @ b.abs().T, a @ b.T, 0.0
        if bias is not None:  # torch's CPU path rounds what it is added to
            of_bias = rounding * value.abs()
            value, size = value + bias.double(), size + bias.double().abs()
        bound = tolerance.accumulation(a.shape[-1] + 1, inner) * size + of_bias
        return value, bound if isinstance(a_bound, float) else bound + a_bound @ b.abs().T

    def rounded(value: Tensor, bound: Tensor, times: float = 1.0) -> tuple[Tensor, Tensor]:
        return value, bound + times * rounding * (value.abs() + bound) + floor

    hidden, hidden_bound = rounded(*product(rows, w1, bias=fc1_bias))
    leaf = hidden.detach().requires_grad_()
    active = functional.gelu(leaf, approximate=approximate)
    (slope,) = torch.autograd.grad(active.sum(), leaf)
    active = active.detach()
    of_active = 1.13 * hidden_bound + of_gelu * active.abs()
    active, active_bound = rounded(active, of_active)
    y = rounded(*product(active, w2, active_bound, fc2_bias))

    back, back_bound = rounded(*product(dy_rows, w2.T))
    of_slope = 0.8 * hidden_bound + 1.13 * of_gelu
    of_dhidden = 1.13 * back_bound + back.abs() * of_slope
    dhidden, dhidden_bound = rounded(back * slope, of_dhidden)

    def sums(value: Tensor, bound: Tensor | float = 0.0) -> tuple[Tensor, Tensor]:
        size = tolerance.accumulation(len(value), inner) * value.abs().sum(0)
        total = size if isinstance(bound, float) else size + bound.sum(0)
        return rounded(value.sum(0), total)

    dx = rounded(*product(dhidden, w1.T, dhidden_bound))
    of_rows = rounded(*product(dhidden.T, rows.T, dhidden_bound.T))
    back_active = product(active.T, dy_rows.T, active_bound.T)
    of_active_rows = rounded(*(t.T for t in back_active))
    return {
        "y": tuple(t.unflatten(0, x.shape[:-1]) for t in y),
        "dx": tuple(t.unflatten(0, x.shape[:-1]) for t in dx),
        "dfc1_weight": of_rows,
        "dfc1_bias": sums(dhidden, dhidden_bound),
        "dfc2_weight": of_active_rows,
        "dfc2_bias": sums(dy_rows),
    }
