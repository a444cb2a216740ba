"""The problems on which quantized_linear is judged, on every backend."""

import dataclasses

import torch
from torch import Tensor

import thunderkittens
from tests.families.linear import cases
from tests.families.linear.cases import BF16, FP16, SHORT
from thunderkittens.testing import assert_close, tolerance

E4M3 = torch.float8_e4m3fn
NAN_CODE = 0x7F  # beside the sign


@dataclasses.dataclass(frozen=True)
class QuantizedCase:
    """One call of quantized_linear.

    Attributes:
        leading: The sizes of x before K.
        in_features: K.
        out_features: N, of y.
        group: Columns that share a scale of int4; 0: the weight is of e4m3.
        dtype: Of x and y.
        zero: int4 has a zero of each group.
        bias: There is one.
        residual: There is one.
        activation: As given to the op.
        norm: There is one, of this eps; None: none.
        constant: As weight_is_constant is given to the op.
    """

    leading: tuple[int, ...] = (1,)
    in_features: int = 256
    out_features: int = 48
    group: int = 0
    dtype: torch.dtype = BF16
    zero: bool = False
    bias: bool = False
    residual: bool = False
    activation: str | None = None
    norm: float | None = None
    constant: bool = False

    @property
    def weight_rows(self) -> int:
        """Of gate and up, where there are both."""
        return self.out_features * (1 if self.activation is None else 2)

    def __str__(self) -> str:
        sizes = "x".join(map(str, (*self.leading, self.in_features, self.out_features)))
        form = f"int4/{self.group}" if self.group else "e4m3"
        parts = [sizes, form, SHORT[self.dtype]]
        for field in dataclasses.fields(self)[5:]:
            value = getattr(self, field.name)
            if value != field.default:
                parts.append(field.name if value is True else f"{field.name}={value}")
        return ",".join(parts)


def every() -> list[QuantizedCase]:
    """Rows to the kernel's 16, columns around steps, groups, and what is around the product."""
    case = QuantizedCase
    e4m3 = [
        *(case((m,), 208, 72, dtype=dtype) for m in (1, 8, 9, 16) for dtype in (BF16, FP16)),
        *(case((3,), k, 40) for k in (16, 48, 64, 80, 1008)),
        *(case((2,), 144, n, dtype=FP16) for n in (1, 15, 17, 33, 300)),
    ]
    int4 = [
        *(
            case((m,), 192, 72, 32, dtype, z)
            for m in (1, 9)
            for dtype in (BF16, FP16)
            for z in (False, True)
        ),
        *(case((16,), k, 40, group) for k, group in ((32, 32), (96, 96), (384, 128), (1280, 64))),
        *(case((2,), 160, n, 32, FP16, zero=True) for n in (1, 15, 17, 33, 300)),
        case((3,), 2048, 20, 2048),
    ]
    # Of whole steps, whose sums are scaled: even numbers of groups, and with zeros multiples of 4.
    steps = [
        *(
            case((m,), 512, 72, 128, dtype, z)
            for m in (1, 8, 9, 16)
            for dtype in (BF16, FP16)
            for z in (False, True)
        ),
        *(case((5,), k, 40, group) for k, group in ((256, 128), (1792, 128), (1024, 512))),
        *(case((6,), 768, 40, 128, zero=z) for z in (False, True)),
        *(case((2,), 256, n, 128, FP16) for n in (1, 4, 15, 17, 33, 300)),
    ]
    options = [
        *(
            case(
                (2, 3),
                1024 if group == 128 else 320,
                50,
                group,
                BF16,
                group > 0,
                True,
                True,
                act,
                norm,
            )
            for group in (0, 64, 128)
            for act in (None, "swiglu")
            for norm in (None, 1e-5)
        ),
        *(case((5,), 320, 300, g, FP16, activation="swiglu", bias=True) for g in (0, 32)),
    ]
    constants = [
        *(case((m,), 208, 72, constant=True) for m in (1, 9)),
        case((16,), 1008, 300, dtype=FP16, activation="swiglu", constant=True),
        *(case((3,), k, n, 32, zero=True, constant=True) for k, n in ((32, 1), (1600, 300))),
        case((11,), 384, 50, 64, FP16, bias=True, residual=True, constant=True),
        *(case((m,), 1536, 88, 128, zero=True, constant=True) for m in (1, 12)),
        case((2,), 320, 40, 64, zero=True, activation="swiglu", norm=1e-5, constant=True),
    ]
    return [*e4m3, *int4, *steps, *options, *constants]


# What tests/tools/budgets.py measures.
BUDGETS = {
    "quantized_linear, e4m3": QuantizedCase((4,), 512, 256),
    "quantized_linear, int4": QuantizedCase((4,), 512, 256, 128, zero=True),
    "quantized_linear, int4, constant": QuantizedCase(
        (4,), 512, 256, 128, zero=True, constant=True
    ),
}


def make(case: QuantizedCase, device: str = "cpu") -> tuple[Tensor | None, ...]:
    """x, weight, scale, zero, bias, residual and the norm's weight: numbers of all codes."""

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, device=device)

    rows, width = case.weight_rows, case.in_features
    codes = torch.randint(256, (rows, width), device=device, dtype=torch.uint8)
    zero = None
    if case.group:
        weight = thunderkittens.pack_int4(codes % 16)
        scale = (0.5 + torch.rand(rows, width // case.group, device=device)) / 7
        scale = (scale * width**-0.5).to(case.dtype)
        if case.zero:
            zero = torch.randint(16, tuple(scale.shape), device=device, dtype=torch.uint8)
    else:
        weight = torch.where(codes % 128 == NAN_CODE, 0, codes).view(E4M3)
        scale = (0.5 + torch.rand(rows, device=device)) / 100 * width**-0.5
    given = [normal(*case.leading, width), weight, scale, zero, None, None, None]
    given[4] = normal(rows) if case.bias else None
    given[5] = normal(*case.leading, case.out_features) if case.residual else None
    given[6] = 1 + 0.2 * normal(width) if case.norm is not None else None
    if case.constant and given[0].is_cuda:
        torch.cuda.synchronize()  # the weight was written before
    return tuple(
        t if t is None or i in (1, 2, 3) else t.to(case.dtype) for i, t in enumerate(given)
    )


def run_case(case: QuantizedCase, inputs) -> tuple[Tensor]:
    """y, by the backend in force."""
    *given, residual, norm_weight = inputs
    norm = None if norm_weight is None else (norm_weight, case.norm)
    options = {"residual": residual, "activation": case.activation, "norm": norm}
    options["weight_is_constant"] = case.constant
    return (thunderkittens.quantized_linear(*given, **options),)


def check_case(case: QuantizedCase, inputs, results) -> None:
    """Asserts y against float64."""
    x, weight, scale, zero, bias, residual, norm_weight = inputs
    wide, error = weight_and_error(weight, scale, zero, case.dtype)
    (y,) = results
    assert y.dtype == case.dtype
    want = cases.reference(case.activation, case.norm, x, wide, bias, residual, norm_weight, error)
    assert_close(y, *want, "y")


def weight_and_error(
    weight: Tensor, scale: Tensor, zero: Tensor | None, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """W in float64, and how far what is multiplied may be from it.

    Numbers of int4 times their scale are rounded to x's dtype, by the kernel as by torch; where
    groups are multiples of 128 columns by torch alone, as those of e4m3. There the kernel has sums
    of (128 + q) x and of x, whose roundings are those of numbers up to 143.
    """
    is_int4 = weight.dtype != E4M3
    group = 2 * weight.shape[1] // scale.shape[1] if is_int4 else 0
    if is_int4 and group % 128 != 0:
        wide = dequantized(weight, scale, zero)
        return wide, torch.zeros_like(wide)
    wide = dequantized(weight, scale, zero, rounded=False)
    info = torch.finfo(dtype)
    error = (wide.abs() + info.smallest_normal) * info.eps / 2
    if is_int4:
        of_sums = 2 * 143 * tolerance.accumulation(group, torch.float32)
        error = error + of_sums * scale.double().abs().repeat_interleave(group, 1)
    return wide, error


def dequantized(weight: Tensor, scale: Tensor, zero: Tensor | None, rounded: bool = True) -> Tensor:
    """W in float64, written again: number by number, from the order that is documented.

    `rounded`: to scale's dtype, where it is of int4.
    """
    if weight.dtype == E4M3:
        return weight.double() * scale.double()[:, None]
    rows, width = weight.shape[0], 2 * weight.shape[1]
    q = torch.empty(rows, width, dtype=torch.float64, device=weight.device)
    for place, number in enumerate((0, 2, 4, 6, 1, 3, 5, 7)):  # from the lowest bits on
        q[:, number::8] = (weight[:, place // 2 :: 4] >> (place % 2 * 4) & 15).double()
    group = width // scale.shape[1]
    shift = 8.0 if zero is None else zero.double().repeat_interleave(group, 1)
    product = (q - shift) * scale.double().repeat_interleave(group, 1)
    return product.to(scale.dtype).double() if rounded else product
