"""The problems on which linear is judged, on every backend: one list for all tests."""

import dataclasses
import math
from functools import partial

import torch
from torch import Tensor

import thunderkittens
from tests.tools import kernel_kinds
from thunderkittens.testing import assert_close, tolerance

FP32, FP16, BF16, FP64 = torch.float32, torch.float16, torch.bfloat16, torch.float64
FEW = 16  # rows that the generic kernel takes, and the first of Hopper's
MOST = 64  # rows that a kernel takes
SHORT = {FP32: "fp32", FP16: "fp16", BF16: "bf16", FP64: "fp64"}


@dataclasses.dataclass(frozen=True)
class Case:
    """One call of linear.

    Attributes:
        leading: The sizes of x before K.
        in_features: K.
        out_features: N, of y.
        dtype: Of all tensors.
        bias: There is one.
        residual: There is one.
        activation: As given to the op.
        norm: There is one, of this eps; None: none.
        weight_layout: How the weight lies in memory: "contiguous", or "wide", with room behind its
            rows.
        x_layout: The same of x, also "odd", at addresses that are no multiples of 16 bytes, and
            "stepped".
        offset: Of all values of x and of the weight, which are else normally distributed.
        small: What x is multiplied by.
        generic: Whether `run_case` takes the generic kernel.
        constant: As weight_is_constant is given to the op.
    """

    leading: tuple[int, ...] = (1,)
    in_features: int = 256
    out_features: int = 48
    dtype: torch.dtype = BF16
    bias: bool = False
    residual: bool = False
    activation: str | None = None
    norm: float | None = None
    weight_layout: str = "contiguous"
    x_layout: str = "contiguous"
    offset: float = 0.0
    small: float = 1.0
    generic: bool = False
    constant: bool = False

    @property
    def weight_rows(self) -> int:
        """Of gate and up, where there are both."""
        return self.out_features * (1 if self.activation is None else 2)

    def __str__(self) -> str:
        sizes = (*self.leading, self.in_features, self.out_features)
        parts = ["x".join(map(str, sizes)), SHORT[self.dtype]]
        for field in dataclasses.fields(self)[4:]:
            value = getattr(self, field.name)
            if value != field.default:
                parts.append(field.name if value is True else f"{field.name}={value}")
        return ",".join(parts)


def sizes() -> list[Case]:
    """Rows to the kernel's 16; columns around tiles, passes and steps."""
    rows = (1, 2, 7, 8, 9, 15, 16)
    return [
        *(Case((m,), 200, 72, dtype) for m in rows for dtype in (BF16, FP16)),
        *(Case((3,), k, 40) for k in (8, 56, 64, 72, 256, 264, 1000)),
        *(Case((2,), 136, n, FP16) for n in (1, 15, 16, 17, 63, 64, 65, 180, 300)),
        *(Case((3,), k, 40, weight_layout="wide", x_layout="wide") for k in (1, 10, 63, 203)),
        Case((2, 3, 2), 64, 40),
        Case((5,), 2048, 700),
        Case((15,), 1032, 500),
        Case((6,), 1800, 190),  # of three tiles
    ]


def options() -> list[Case]:
    """What is added, gates, strides, and sums that are far from zero."""
    return [
        *(Case((m,), 136, 50, FP16, bias=True, residual=True) for m in (1, 10, 16)),
        Case((4,), bias=True),
        Case((2, 2), residual=True),
        *(
            Case((m,), 328, n, dtype, activation="swiglu")
            for m in (1, 8, 16)
            for n, dtype in ((20, BF16), (88, FP16), (301, BF16))
        ),
        Case((3,), 72, 40, BF16, True, True, "swiglu"),
        Case((3,), 72, 40, weight_layout="wide", activation="swiglu"),
        Case((3,), 72, 40, weight_layout="wide"),
        *(Case((2, 3), 72, 40, x_layout=x) for x in ("wide", "odd", "stepped")),
        Case((3,), 1024, 40, FP16, offset=1.0),
        *(Case((m,), k, 72, norm=1e-6) for m, k in ((1, 200), (7, 56), (16, 1032), (9, 64))),
        Case((2, 3), 136, 300, bias=True, residual=True, norm=1e-5),
        Case((10,), 1000, 88, bias=True, activation="swiglu", norm=0.5),
        Case((4,), 264, 40, x_layout="odd", norm=1e-6, offset=3.0),
        Case((3,), 2048, 40, norm=0.0, small=2.0**-60),
        Case((5,), 520, 700, norm=1e-6),  # several passes
    ]


def constants() -> list[Case]:
    """With the promise: rings that are filled in one pass and in several, and ends of rows."""
    case = partial(Case, constant=True)
    return [
        *(case((m,), 200, 72, dtype) for m in (1, 9, 16) for dtype in (BF16, FP16)),
        *(case((3,), k, 40) for k in (8, 72, 264, 3000)),
        *(case((3,), k, n, weight_layout="wide") for k, n in ((10, 1), (203, 300), (1001, 40))),
        case((15,), 1032, 700, bias=True, residual=True),
        case((8,), 328, 301, activation="swiglu", bias=True),
        case((5,), 520, 700, norm=1e-6),
        case((2, 3), 72, 40, x_layout="odd"),
    ]


def many() -> list[Case]:
    """More than 16 rows, by Hopper's second kernel: around its tiles of rows, steps and passes."""
    rows = (17, 24, 32, 33, 48, 64)
    return [
        *(Case((m,), 200, 72, dtype) for m in rows for dtype in (BF16, FP16)),
        *(Case((20,), k, 40) for k in (8, 64, 72, 128, 136, 1000)),
        *(Case((33,), 136, n, FP16) for n in (1, 15, 17, 64, 65, 300)),
        *(Case((33,), k, 40, weight_layout="wide", x_layout="wide") for k in (1, 10, 203)),
        Case((3, 2, 4), 64, 40),
        *(Case((m,), 328, 600, dtype) for m, dtype in ((40, BF16), (64, FP16))),
        *(Case((m,), 136, 50, FP16, bias=True, residual=True) for m in (17, 64)),
        *(
            Case((m,), 328, n, dtype, bias=True, activation="swiglu")
            for m, n, dtype in ((24, 20, BF16), (33, 88, FP16), (64, 301, BF16))
        ),
        *(
            Case((m,), k, n, norm=1e-6)
            for m, k, n in ((17, 200, 72), (64, 1032, 40), (48, 56, 500))
        ),
        Case((6, 5), 136, 300, bias=True, residual=True, norm=1e-5),
        Case((40,), 264, 88, BF16, True, True, "swiglu", 0.5),
        *(Case((2, 12), 72, 40, x_layout=x) for x in ("odd", "stepped")),
        Case((50,), 1024, 40, FP16, offset=1.0),
        *(
            Case((m,), k, n, constant=True)
            for m, k, n in ((17, 8, 1), (33, 1000, 300), (64, 3000, 40))
        ),
        Case((64,), 328, 301, activation="swiglu", bias=True, constant=True),
        Case((24,), 520, 700, norm=1e-6, constant=True),
    ]


def launched(case: Case) -> str:
    """The name by which launches of its kernel are counted: the generic one's are linear's."""
    return "linear" if math.prod(case.leading) <= FEW else "linear_rows"


def every() -> list[Case]:
    """Those that both of two kernels take."""
    return [*sizes(), *options(), *constants()]


EXAMPLE = Case((3,), 512, 160, BF16, bias=True)  # of `make sim`
# What tests/tools/budgets.py measures.
BUDGETS = {
    "linear": Case((4,), 512, 256),
    "linear, swiglu": Case((4,), 512, 128, activation="swiglu"),
    "linear, norm": Case((4,), 512, 256, norm=1e-6),
    "linear, constant": Case((4,), 512, 256, constant=True),
    "linear, many rows": Case((24,), 512, 256),
    "linear, many rows, swiglu": Case((40,), 512, 128, activation="swiglu"),
    "linear, generic": Case((4,), 512, 256, generic=True),
    "linear, generic, constant": Case((4,), 512, 256, generic=True, constant=True),
    "linear, generic, swiglu": Case((4,), 512, 128, activation="swiglu", generic=True),
}
SMALL = "--leading 2 --in-features 72 --out-features 24"  # options of `make sim`, for its tests


def lay_out(values: Tensor, layout: str) -> Tensor:
    """The same values with other strides."""
    *leading, width = values.shape
    if layout == "contiguous":
        return values
    if layout == "wide":
        whole = -(-width // 8) * 8  # rows at multiples of 16 bytes
        room = values.new_zeros(*leading, whole + 24)[..., 8 : width + 8]
    elif layout == "odd":
        room = values.new_zeros(*leading, width + 3)[..., 1 : width + 1]
    else:
        room = values.new_zeros(*leading, 2 * width)[..., ::2]
    return room.copy_(values)


def make(case: Case, device: str = "cpu") -> tuple[Tensor | None, ...]:
    """x, weight, bias, residual and the norm's weight."""

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=FP32, device=device)

    x = ((normal(*case.leading, case.in_features) + case.offset) * case.small).to(case.dtype)
    weight = normal(case.weight_rows, case.in_features) + case.offset
    weight = (weight * case.in_features**-0.5).to(case.dtype)
    bias = normal(case.weight_rows).to(case.dtype) if case.bias else None
    residual = None
    if case.residual:
        residual = normal(*case.leading, case.out_features).to(case.dtype)
    norm = None
    if case.norm is not None:
        norm = (1 + 0.2 * normal(case.in_features)).to(case.dtype)
    x, weight = lay_out(x, case.x_layout), lay_out(weight, case.weight_layout)
    if case.constant and x.is_cuda:
        torch.cuda.synchronize()  # the weight was written before
    return x, weight, bias, residual, norm


def run_case(case: Case, inputs) -> tuple[Tensor]:
    """y, by the backend in force."""
    x, weight, bias, residual, norm_weight = inputs
    norm = None if norm_weight is None else (norm_weight, case.norm)
    options = {"residual": residual, "activation": case.activation, "norm": norm}
    options["weight_is_constant"] = case.constant
    with kernel_kinds.taking(case.generic):
        return (thunderkittens.linear(x, weight, bias, **options),)


def check_case(case: Case, inputs, results) -> None:
    """Asserts y against float64."""
    (y,) = results
    assert y.dtype == case.dtype
    assert y.is_contiguous()
    assert_close(y, *reference(case.activation, case.norm, *inputs), "y")


def reference(
    activation: str | None,
    eps: float | None,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    residual: Tensor | None,
    norm_weight: Tensor | None,
    weight_error: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """y in float64 and its bound.

    A product is a sum of K terms in float32 and, in torch's path, rounded. So are silu, whose slope
    is below 1.1, its product with up, and the sum with the residual. With a norm what is multiplied
    with the weight is rounded to x's dtype, and the mean of K squares is a sum in float32.
    `weight_error`: how far the weight that is multiplied may be from the one given.
    """
    inner = FP64 if x.dtype == FP64 else FP32
    wide = [t if t is None else t.double() for t in (x, weight, bias, residual)]
    of_factors = 0.0
    if norm_weight is not None:
        root = (wide[0].square().mean(-1, keepdim=True) + eps).sqrt()
        wide[0] = wide[0] * norm_weight.double() / root
        of_factors += tolerance.unit(x.dtype) + tolerance.accumulation(x.shape[-1] + 8, inner)
    y = torch.nn.functional.linear(*wide[:3])
    absolute = [t if t is None else t.abs() for t in wide[:3]]
    size = torch.nn.functional.linear(*absolute)
    rounding = 2 * tolerance.unit(x.dtype)
    bound = (
        tolerance.accumulation(x.shape[-1] + 1, inner) + of_factors
    ) * size + rounding * y.abs()
    if weight_error is not None:
        bound = bound + wide[0].abs() @ weight_error.T
    if activation is not None:
        gate, up = y.chunk(2, -1)
        gate_bound, up_bound = bound.chunk(2, -1)
        silu = torch.nn.functional.silu(gate)
        silu_bound = 1.1 * gate_bound + (rounding + 16 * tolerance.unit(inner)) * silu.abs()
        y = silu * up
        bound = silu_bound * (up.abs() + up_bound) + silu.abs() * up_bound + rounding * y.abs()
    if residual is not None:
        y = y + wide[3]
        bound = bound + rounding * y.abs()
    return y, bound + tolerance.floor(x.dtype)
