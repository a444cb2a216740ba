"""The problems on which swiglu, geglu and gelu are judged, on every backend: one list."""

import dataclasses
import itertools
import math

import torch

import thunderkittens
from thunderkittens.testing import assert_close, memory, tolerance

FP32, FP16, BF16, FP64 = torch.float32, torch.float16, torch.bfloat16, torch.float64
SHORT = {FP32: "fp32", FP16: "fp16", BF16: "bf16", FP64: "fp64"}
OPS = (("swiglu", "none"), ("geglu", "tanh"), ("geglu", "none"), ("gelu", "tanh"), ("gelu", "none"))

# Around a run, a warp's slice of either kind, and a block of four of them.
SIZES = (1, 7, 8, 9, 511, 512, 513, 1023, 1024, 1025, 4099, 8201)

LAYOUTS = ("contiguous", "halves", "offset", "sliced", "stepped", "permuted", "expanded")
GRADIENTS = ("contiguous", "halves", "permuted", "constant")
REGIMES = ("normal", "tail", "large", "tiny", "zeros")


@dataclasses.dataclass(frozen=True)
class Case:
    """One call of an op of the family.

    Attributes:
        op: "swiglu", "geglu" or "gelu".
        width: The last size.
        leading: The sizes before it.
        dtype: Of all tensors.
        approximate: Of the gelus.
        layout: How gate and up (gelu: x) lie in memory, one of LAYOUTS.
        gradient: How dy does, one of GRADIENTS.
        regime: What values gate has, one of REGIMES.
    """

    op: str
    width: int
    leading: tuple[int, ...] = (3,)
    dtype: torch.dtype = FP32
    approximate: str = "tanh"
    layout: str = "contiguous"
    gradient: str = "contiguous"
    regime: str = "normal"

    def __str__(self) -> str:
        parts = [self.op, "x".join(map(str, (*self.leading, self.width))), SHORT[self.dtype]]
        for name in ("approximate", "layout", "gradient", "regime"):
            if getattr(self, name) != Case.__dataclass_fields__[name].default:
                parts.append(f"{name}={getattr(self, name)}")
        return ",".join(parts)

    @property
    def function(self) -> str:
        """What `tolerance` calls it."""
        return "silu" if self.op == "swiglu" else self.approximate


def of_each_op(width: int, leading: tuple[int, ...] = (3,), dtypes=(FP32, FP16, BF16), **more):
    """A case of every op and dtype."""
    return [
        Case(op, width, leading, dtype, approximate, **more)
        for (op, approximate), dtype in itertools.product(OPS, dtypes)
    ]


def sizes(values=SIZES, dtypes=(FP32, FP16, BF16)) -> list[Case]:
    """Contiguous tensors of every size, each op in turn."""
    cases = []
    for index, (size, dtype) in enumerate(itertools.product(values, dtypes)):
        op, approximate = OPS[index % len(OPS)]
        cases.append(Case(op, size, (), dtype, approximate))
    return cases


def layouts(width: int) -> list[Case]:
    """Every way that the inputs, then dy, may lie in memory."""
    leading = (2, 3)
    cases = [
        Case(op, width, leading, dtype, layout=layout)
        for op, layout in itertools.product(("swiglu", "gelu"), LAYOUTS)
        for dtype in (FP32, BF16)
    ]
    return cases + [
        Case(op, width, leading, BF16, gradient=gradient)
        for op, gradient in itertools.product(("geglu", "gelu"), GRADIENTS[1:])
    ]


def regimes(width: int, dtypes=(FP32, FP16, BF16)) -> list[Case]:
    """Values where 1 + tanh, 1 + erf and 1 − σ cancel, and where exponentials overflow."""
    return [case for regime in REGIMES for case in of_each_op(width, dtypes=dtypes, regime=regime)]


def lay_out(values: torch.Tensor, layout: str) -> torch.Tensor:
    """The same values (of the first row alone when expanded) with other strides."""
    *leading, width = values.shape
    if layout == "contiguous":
        return values
    if layout == "expanded":
        return values[(0,) * len(leading)].expand_as(values)
    if layout == "constant":  # what y.sum().backward() gives: one number, all strides 0
        return values.flatten()[0].expand_as(values)
    if layout == "offset":
        room = values.new_zeros(values.numel() + 1)[1:].view(values.shape)
    elif layout == "halves":
        room = values.new_zeros(*leading, 2 * width).chunk(2, -1)[1]
    elif layout == "sliced":
        room = values.new_zeros(*leading, width + 3)[..., 1 : width + 1]
    elif layout == "stepped":
        room = values.new_zeros(*leading, 2 * width)[..., ::2]
    else:
        room = values.new_zeros(*reversed(leading), width)
        room = room.permute(*reversed(range(len(leading))), len(leading))
    return room.copy_(values)


def gate_values(case: Case, device: str) -> torch.Tensor:
    """gate (gelu: x) in the case's regime, before it is laid out."""
    shape = (*case.leading, case.width)
    normal = torch.randn(shape, dtype=FP32, device=device)
    made = {
        "normal": lambda: 2 * normal,
        "tail": lambda: -3 - 10 * torch.rand(shape, dtype=FP32, device=device),
        "large": lambda: 100 * normal,
        "tiny": lambda: 1e-4 * normal,
        "zeros": lambda: 0 * normal,
    }
    return made[case.regime]().to(case.dtype)


def make(case: Case, device: str = "cpu") -> list[torch.Tensor]:
    """gate and up (gelu: x), then dy."""

    def normal() -> torch.Tensor:
        shape = (*case.leading, case.width)
        return torch.randn(shape, dtype=FP32, device=device).to(case.dtype)

    inputs = [lay_out(gate_values(case, device), case.layout)]
    if case.op != "gelu":
        inputs.append(lay_out(normal(), case.layout))
    return [*inputs, lay_out(normal(), case.gradient)]


def call(case: Case, inputs) -> torch.Tensor:
    """y of a case, by the public function."""
    options = {} if case.op == "swiglu" else {"approximate": case.approximate}
    return getattr(thunderkittens, case.op)(*inputs, **options)


def run_case(case: Case, inputs) -> list[torch.Tensor]:
    """y and the gradients of a case, by the backend in force."""
    *inputs, dy = inputs
    leaves = [t.detach().requires_grad_() for t in inputs]
    y = call(case, leaves)
    return [y.detach(), *torch.autograd.grad(y, leaves, dy)]


def expected(case: Case, inputs, **options) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """The references and bounds of what `run_case` gives; `options` of `tolerance.gated`."""
    *inputs, dy = inputs
    up = inputs[1] if len(inputs) == 2 else torch.ones_like(inputs[0])
    y = tolerance.gated(inputs[0], up, case.function, **options)
    gradients = tolerance.gated_backward(dy, inputs[0], up, case.function, **options)
    return [y, *gradients[: len(inputs)]]


def check_case(case: Case, inputs, results, **options) -> None:
    """Asserts what `run_case` gave against float64, element by element and row by row."""
    names = ("y", "dx") if case.op == "gelu" else ("y", "dgate", "dup")
    wants = expected(case, inputs, **options)
    for got, want, name in zip(results, wants, names, strict=True):
        assert got.dtype == case.dtype, f"{name} is {got.dtype}"
        assert got.is_contiguous(), name
        # Judged together where no few elements are most of the sum of squares.
        together = case.regime == "normal" and got.numel() >= 1024
        shape = (-1,) if together else (*got.shape, 1)
        assert_close(*(t.reshape(shape) for t in (got, *want)), name)


# Around the ends of a row, one run, and several slices of a warp.
UNALIGNED_WIDTHS = (*range(1, 41), 4095, 4097)


def check_rows_anywhere(case: Case, device: str) -> None:
    """Asserts that rows which start at any element give the bits of contiguous tensors.

    The inputs start at different ones, lie between guards and among NaN or infinities, and dy is
    contiguous or not.
    """
    whole = [t.contiguous() for t in make(case, device)]
    want = run_case(case, whole)
    for first in range(8):
        neighbours = math.nan if first % 2 else math.inf
        with memory.Poisoned(neighbours) as guards:
            inputs = []
            for index, t in enumerate(whole):
                gap = (first + index) % 3  # between the rows
                room = t.new_zeros(*t.shape[:-1], case.width + gap)[..., : case.width].copy_(t)
                inputs.append(guards.guard(room, (1 + 2 * index) * first % 8))
            results = run_case(case, inputs)
        for got, same in zip(results, want, strict=True):
            assert memory.bits_equal(got, same), f"{case}, first {first}"


EXAMPLE = Case("swiglu", 1024, (5,), BF16, layout="halves")  # of `make sim`
# What tests/tools/budgets.py measures.
BUDGETS = {
    "swiglu": EXAMPLE,
    "swiglu, unaligned": Case("swiglu", 1031, (5,), BF16, layout="halves"),
    "gelu": Case("gelu", 1024, (5,), BF16),
}
SMALL = "--width 72"  # options of `make sim`, for its tests

EDGES = (0.0, 1e-30, 1e-4, 0.7, 1.0, 3.0, 5.6, 13.0, 30.0, 87.0, 88.5, 90.0, 104.0, 1e4, 6e4)
FAR = (1e10, 1e20, 3e38)  # beyond float16


def with_ones(case: Case, x: torch.Tensor) -> list[torch.Tensor]:
    """x as gate (gelu: as x), with an up and a dy of ones."""
    return [x, *(torch.ones_like(x) for _ in range(1 if case.op == "gelu" else 2))]


def check_edges(device: str, by_torch: bool = False) -> None:
    """Asserts values and slopes from −3e38 to 3e38: finite, right, and y of the sign of x.

    Torch's formulas give NaN far out, and an exact zero another sign.
    """
    for case in of_each_op(1):
        sides = EDGES if case.dtype == FP16 else (*EDGES, *(() if by_torch else FAR))
        x = torch.tensor([sign * v for v in sides for sign in (1, -1)], device=device)
        inputs = with_ones(case, x.to(case.dtype))
        results = run_case(case, inputs)
        check_case(case, inputs, results, cancels=by_torch)
        assert by_torch or torch.equal(results[0].signbit(), inputs[0].signbit()), case
        assert results[1].isfinite().all(), case


def check_not_finite(device: str) -> None:
    """Asserts that NaN and the infinities give what torch's formulas give, and spoil no other."""
    for case in of_each_op(1):
        x = torch.tensor([math.nan, math.inf, -math.inf, 1.0], device=device).to(case.dtype)
        y, dx, *_ = run_case(case, with_ones(case, x))
        assert y.isnan().tolist() == [True, False, True, False], case
        assert y[1] == math.inf, case
        assert dx.isnan().tolist() == [True, True, True, False], case
