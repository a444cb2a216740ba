"""A linear layer of few rows and a weight of fewer bits, and how such a weight is made."""

from collections.abc import Callable
from typing import Literal, NamedTuple, NoReturn

import torch
from torch import Tensor

from thunderkittens.ops._mistakes import refuse_keywords, refuse_types
from thunderkittens.ops.linear import NO_NORM, weight_and_eps

_quantized_linear: Callable[..., Tensor] = torch.ops.thunderkittens.quantized_linear.default

INT4_VALUES = 16
LARGEST_E4M3 = 448.0


class QuantizedWeight(NamedTuple):
    """What `quantized_linear` takes of a weight [N, K], in its order.

    Attributes:
        weight: float8_e4m3fn [N, K], or uint8 [N, K / 2], two int4 a byte.
        scale: float32 [N], or of int4 [N, K / group_size] of the original's dtype.
        zero: uint8, scale's shape; None for e4m3, and where it is 8.
    """

    weight: Tensor
    scale: Tensor
    zero: Tensor | None


def quantized_linear(
    x: Tensor,
    weight: Tensor,
    scale: Tensor,
    zero: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    residual: Tensor | None = None,
    activation: Literal["none", "swiglu"] | None = "none",
    norm: tuple[Tensor, float] | None = None,
    weight_is_constant: bool = False,
    **_foreign: NoReturn,
) -> Tensor:
    """A linear layer whose weight has 8 or 4 bits a number: y = act(z Wᵀ + b) + residual.

    z, act and the residual are those of `linear`. W is, by the dtype of `weight`,

        float8_e4m3fn   W[n, k] = weight[n, k] · scale[n]
        uint8           W[n, k] = (q[n, k] − zero[n, k // g]) · scale[n, k // g], 0 ≤ q < 16

    with g = K / scale.size(1). A step of decoding takes as long as its weights take to be read, and
    these are half or a quarter of the bytes; to convert them takes its time, too
    (benchmarks/linear.md). `quantize_weight` makes all three tensors:

        y = quantized_linear(x, *quantize_weight(w, torch.float8_e4m3fn))

    Of q, eight neighbours of a row are four bytes: numbers 0, 2, 4, 6, 1, 3, 5, 7 from the lowest
    bits on. `pack_int4` brings them into this order, `unpack_int4` back.

    Args:
        x: [..., K], float32, float16, bfloat16 or float64. The rows are all leading dimensions
            together.
        weight: float8_e4m3fn [N, K], or uint8 [N, K / 2]; for "swiglu" 2 N rows, gate first.
        scale: With e4m3 float32 [N]; with int4 x's dtype [N, groups], where groups divides K. For
            "swiglu" of 2 N rows.
        zero: With int4 uint8, scale's shape, each below 16; None is 8 everywhere. With e4m3 None.
        bias: [N], x's dtype; for "swiglu" [2 N]. None for none.
        residual: [..., N], x's dtype and leading dimensions: added last. None for none.
        activation: "none", which None is too, or "swiglu".
        norm: The norm's weight, [K], x's dtype, and its eps, at least 0. None for none.
        weight_is_constant: Promises that the kernel in front of this call writes none of weight,
            scale and zero, which are then read before that has ended: as in `linear`.

    Returns:
        y, [..., N], x's dtype, contiguous.

    Raises:
        ValueError: A shape, a device or a word is not as above.
        TypeError: A dtype or an argument's Python type is not as above.
        NotImplementedError: A tensor is sparse or nested.

    Backends:
        The kernel (compute capability 8.0 and later) takes 1 to 16 rows of bfloat16 and, without a
        norm, float16, K a multiple of 16 with e4m3, and with int4 groups of a multiple of 32
        columns. Groups of a multiple of 128, an even number of them in a row (with zeros a multiple
        of 4), are faster than others (benchmarks/linear.md). Torch computes the rest, and without a
        warning more rows, from a weight that it makes of x's dtype at each call. So it does where a
        gradient is needed: x, bias, residual, norm and scale have theirs. (`explain` answers for a
        call under torch.no_grad().)

    Numerics:
        As `linear`. Numbers of e4m3 are exact in x's dtype, and sums are multiplied by the scale in
        float32, where torch's path rounds W. Numbers of int4 times their scale are rounded to x's
        dtype, but for the kernel's faster groups: there a group's sums of (c + q) x and of x, c 128
        in bfloat16 and 64 in float16, are added up in float32, and (Σ (c + q) x − (c + zero) Σ x)
        times the scale is what is added to y. So W is not rounded, which is the smaller error; but
        where such a sum overflows, as of an infinite x or of |x| above 2¹²⁰, y is NaN. NaN stays
        NaN.

    Source:
        csrc/kernels/linear: linear_weights.cuh, quantized_linear.cuh. The weight is read once; x
        from the caches, once for each 32 or 64 columns of y. That four bits become the mantissa of
        2ᵏ + q: Kim et al., arXiv:2211.10017.

    Example:
        >>> import torch, thunderkittens
        >>> x, w = torch.randn(2, 1, 64), torch.randn(96, 64)
        >>> q = thunderkittens.quantize_weight(w, "int4", group_size=32)
        >>> thunderkittens.quantized_linear(x, *q).shape
        torch.Size([2, 1, 96])
    """
    if _foreign:
        refuse_keywords("quantized_linear", _foreign)
    try:
        act = "none" if activation is None else activation
        with_eps = NO_NORM if norm is None else weight_and_eps("quantized_linear", norm)
        return _quantized_linear(
            x, weight, scale, zero, bias, residual, act, *with_eps, weight_is_constant
        )
    except RuntimeError as error:
        refuse_types("quantized_linear", error)
        raise


def quantize_weight(
    weight: Tensor,
    dtype: torch.dtype | Literal["int4"],
    *,
    group_size: int = 128,
    symmetric: bool = True,
) -> QuantizedWeight:
    """A weight rounded to 8 or 4 bits a number, for `quantized_linear`.

    With torch.float8_e4m3fn, scale[n] = max |weight[n]| / 448. With "int4", of each group of
    `group_size` neighbours of a row: symmetric, scale = max |weight| / 7, q − 8 from −8 to 7; else
    scale = (max(weight, 0) − min(weight, 0)) / 15, and zero is the number that stands for 0. The
    scale is rounded to weight's dtype before numbers are.

    Args:
        weight: [N, K], float32, float16 or bfloat16, as of torch.nn.Linear.
        dtype: torch.float8_e4m3fn, or "int4".
        group_size: With int4: a multiple of 8 that divides K. The kernel wants multiples of 32.
        symmetric: With int4: whether zero is 8 everywhere, and no tensor.

    Returns:
        Weight, scale and zero, on weight's device.

    Raises:
        ValueError: A shape, group_size or dtype is not as above, or a number is not finite.

    Example:
        >>> import torch, thunderkittens
        >>> q = thunderkittens.quantize_weight(torch.randn(8, 256), "int4", symmetric=False)
        >>> q.weight.shape, q.scale.shape, q.zero.dtype
        (torch.Size([8, 128]), torch.Size([8, 2]), torch.uint8)
    """
    if weight.dim() != 2:
        raise ValueError(f"quantize_weight: weight must be [N, K], got {list(weight.shape)}")
    if not bool(weight.isfinite().all()):
        raise ValueError("quantize_weight: weight must be finite, got infinities or NaN")
    wide = weight.detach().float()
    if dtype == torch.float8_e4m3fn:
        largest = wide.abs().amax(1) if weight.shape[1] else wide.new_zeros(len(wide))
        scale = _not_zero(largest / LARGEST_E4M3)
        scaled = (wide / scale[:, None]).clamp(-LARGEST_E4M3, LARGEST_E4M3)
        return QuantizedWeight(scaled.to(torch.float8_e4m3fn), scale, None)
    if dtype != "int4":
        raise ValueError(
            f'quantize_weight: dtype must be torch.float8_e4m3fn or "int4", got {dtype}'
        )
    width = weight.shape[1]
    if group_size < 8 or group_size % 8 != 0 or width % group_size != 0 or width == 0:
        raise ValueError(
            "quantize_weight: group_size must be a multiple of 8 that divides weight.size(1) "
            f"{width}, got {group_size}"
        )
    groups = wide.unflatten(1, (-1, group_size))
    if symmetric:
        scale = _not_zero((groups.abs().amax(-1) / 7).to(weight.dtype))
        zero, shift = None, 8.0
    else:
        low, high = groups.amin(-1).clamp(max=0), groups.amax(-1).clamp(min=0)
        scale = _not_zero(((high - low) / (INT4_VALUES - 1)).to(weight.dtype))
        zero = (-low / scale.float()).round().clamp(0, INT4_VALUES - 1).to(torch.uint8)
        shift = zero.float()[..., None]
    q = (groups / scale.float()[..., None]).round() + shift
    return QuantizedWeight(
        pack_int4(q.clamp(0, INT4_VALUES - 1).to(torch.uint8).flatten(1)), scale, zero
    )


def _not_zero(scale: Tensor) -> Tensor:
    """1 where all numbers are 0."""
    return torch.where(scale == 0, torch.ones_like(scale), scale)


def dequantize_weight(weight: Tensor, scale: Tensor, zero: Tensor | None = None) -> Tensor:
    """The weight [N, K] that `quantized_linear` multiplies with, of scale's dtype.

    Args:
        weight: As of `quantized_linear`.
        scale: The same.
        zero: The same.

    Returns:
        W. Of int4, rounded to scale's dtype as the kernel rounds it.

    Example:
        >>> import torch, thunderkittens
        >>> w = torch.eye(8)
        >>> torch.equal(
        ...     thunderkittens.dequantize_weight(
        ...         *thunderkittens.quantize_weight(w, "int4", group_size=8)
        ...     ),
        ...     w,
        ... )
        True
    """
    wide = torch.promote_types(scale.dtype, torch.float32)
    if weight.dtype != torch.uint8:
        dense: Tensor = weight.to(wide) * scale[:, None]
        return dense
    q = unpack_int4(weight).to(wide).unflatten(1, (scale.shape[1], -1))
    shift = 8 if zero is None else zero.to(wide)[..., None]
    grouped: Tensor = (q - shift) * scale.to(wide)[..., None]
    return grouped.flatten(1).to(scale.dtype)


def pack_int4(values: Tensor) -> Tensor:
    """Numbers 0 … 15 of 4 bits each, as `quantized_linear` has them.

    Of eight neighbours, numbers 0, 2, 4, 6, 1, 3, 5, 7 follow each other in four bytes, from the
    lowest bits on.

    Args:
        values: [..., K] of any integer dtype, K a multiple of 8.

    Returns:
        uint8 [..., K / 2].

    Raises:
        ValueError: K is not a multiple of 8, or a number is not one of 0 … 15.
    """
    if values.shape[-1] % 8 != 0:
        raise ValueError(
            f"pack_int4: values.size(-1) must be a multiple of 8, got {values.shape[-1]}"
        )
    if bool(((values < 0) | (values >= INT4_VALUES)).any()):
        raise ValueError("pack_int4: values must be from 0 to 15, got others")
    # [..., 4, 2]: neighbours are four nibbles apart.
    nibbles = values.to(torch.uint8).unflatten(-1, (-1, 4, 2)).transpose(-1, -2)
    low, high = nibbles.reshape(*values.shape[:-1], -1, 2).unbind(-1)
    packed: Tensor = low | high << 4
    return packed


def unpack_int4(packed: Tensor) -> Tensor:
    """What `pack_int4` was given.

    Args:
        packed: uint8 [..., K / 2].

    Returns:
        uint8 [..., K].

    Raises:
        TypeError: The dtype is not uint8.
    """
    if packed.dtype != torch.uint8:
        raise TypeError(f"unpack_int4: packed must have dtype uint8, got {packed.dtype}")
    nibbles = torch.stack([packed & 15, packed >> 4], -1).flatten(-2)
    values: Tensor = nibbles.unflatten(-1, (-1, 2, 4)).transpose(-1, -2).flatten(-3)
    return values
