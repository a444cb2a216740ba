"""Activations of feed-forward layers: gated (SwiGLU, GEGLU) and plain (GELU)."""

from collections.abc import Callable
from typing import Literal, NoReturn

import torch
from torch import Tensor

from thunderkittens.ops._mistakes import refuse_keywords, refuse_types

_swiglu: Callable[..., Tensor] = torch.ops.thunderkittens.swiglu.default
_geglu: Callable[..., Tensor] = torch.ops.thunderkittens.geglu.default
_gelu: Callable[..., Tensor] = torch.ops.thunderkittens.gelu.default


def swiglu(gate: Tensor, up: Tensor, **_foreign: NoReturn) -> Tensor:
    """silu(gate) · up, element by element, differentiable once.

    silu(x) = x · σ(x) with σ(x) = 1 / (1 + exp(−x)).

    Args:
        gate: [...], any shape, float32, float16, bfloat16 or float64, any strides. Contiguous
            tensors are read in place, and so are rows that are one distance apart with contiguous
            elements, such as the halves `x.chunk(2, dim=-1)` of one projection; others from a copy.
        up: [...], gate's shape and dtype, any strides.

    Returns:
        y, [...], gate's dtype, contiguous.

    Raises:
        ValueError: A shape or a device is not as above.
        TypeError: A dtype or an argument's Python type is not as above.
        NotImplementedError: A tensor is sparse or nested, the backward is differentiated, or
            differentiation is forward-mode.

    Numerics:
        In float32 (float64 for float64), rounded once. |error| ≤ (u + 2⁻¹⁴) · |y| for 16 bits, u
        half an ulp at 1 (2⁻⁸, 2⁻¹¹), and ≤ 2⁻²⁰ · |y| for float32, but where σ(gate) is below
        2⁻¹²⁶, which may count as 0. gate = −∞ gives NaN, as in torch. Forward and backward give the
        same bits on every run. Under autocast gate and up may differ in dtype: the wider counts.

    Source:
        Kernels for 16 and 32 bits: csrc/kernels/activation/swiglu.cu. Torch computes everything
        else; `thunderkittens.explain` tells.

    Example:
        >>> import torch, thunderkittens
        >>> thunderkittens.swiglu(torch.tensor([0.0, 100.0]), torch.tensor([3.0, 2.0]))
        tensor([  0., 200.])
    """
    if _foreign:
        refuse_keywords("swiglu", _foreign)
    try:
        return _swiglu(gate, up)
    except RuntimeError as error:
        refuse_types("swiglu", error)
        raise


def geglu(
    gate: Tensor,
    up: Tensor,
    *,
    approximate: Literal["none", "tanh"] = "none",
    **_foreign: NoReturn,
) -> Tensor:
    """gelu(gate) · up, element by element, differentiable once.

    Args:
        gate: [...], any shape, float32, float16, bfloat16 or float64, any strides. Contiguous
            tensors are read in place, and so are rows that are one distance apart with contiguous
            elements, such as the halves `x.chunk(2, dim=-1)` of one projection; others from a copy.
        up: [...], gate's shape and dtype, any strides.
        approximate: Which gelu, as in `gelu`: "none", the exact one, or "tanh".

    Returns:
        y, [...], gate's dtype, contiguous.

    Raises:
        ValueError: A shape, a device or approximate is not as above.
        TypeError: A dtype or an argument's Python type is not as above.
        NotImplementedError: A tensor is sparse or nested, the backward is differentiated, or
            differentiation is forward-mode.

    Numerics:
        Those of `gelu`, with one product more before the rounding. Under autocast gate and up may
        differ in dtype: the wider counts.

    Source:
        Kernels for 16 and 32 bits: csrc/kernels/activation/geglu.cu. Torch computes everything
        else; `thunderkittens.explain` tells.

    Example:
        >>> import torch, thunderkittens
        >>> thunderkittens.geglu(torch.tensor([0.0, 100.0]), torch.tensor([3.0, 2.0]))
        tensor([  0., 200.])
    """
    if _foreign:
        refuse_keywords("geglu", _foreign)
    try:
        if approximate == "none":
            return _geglu(gate, up)  # each argument costs the host up to half a microsecond
        return _geglu(gate, up, approximate=approximate)
    except RuntimeError as error:
        refuse_types("geglu", error)
        raise


def gelu(
    x: Tensor, *, approximate: Literal["none", "tanh"] = "none", **_foreign: NoReturn
) -> Tensor:
    """The Gaussian error linear unit, element by element, differentiable once.

    approximate="none": x · Φ(x), Φ the normal distribution; "tanh":
    x · (1 + tanh(√(2/π) · (x + 0.044715 · x³))) / 2.

    Args:
        x: [...], any shape, float32, float16, bfloat16 or float64, any strides. A contiguous tensor
            is read in place, and so are rows that are one distance apart with contiguous elements;
            others from a copy.
        approximate: "none" for the exact one, or "tanh"; names and default are those of
            `torch.nn.functional.gelu`.

    Returns:
        y, [...], x's dtype, contiguous.

    Raises:
        ValueError: approximate is not as above, or a device is not supported.
        TypeError: The dtype or an argument's Python type is not as above.
        NotImplementedError: The tensor is sparse or nested, the backward is differentiated, or
            differentiation is forward-mode.

    Numerics:
        In float32 (float64 for float64), rounded once. |error| ≤ (u + 2⁻¹⁴) · |y| for 16 bits, u
        half an ulp at 1 (2⁻⁸, 2⁻¹¹), and ≤ 2⁻²⁰ · (1 + ln(x / y) / 4) · |y| for float32, also in
        the tail x < 0, where 1 + tanh and 1 + erf cancel, but where y / x is below 2⁻¹²⁶, which may
        count as 0. x = −∞ gives NaN. Same bits on every run. What torch computes has torch's own
        errors.

    Source:
        Kernels for 16 and 32 bits: csrc/kernels/activation/gelu.cu. Torch computes everything else;
        `thunderkittens.explain` tells.

    Example:
        >>> import torch, thunderkittens
        >>> thunderkittens.gelu(torch.tensor([0.0, 100.0]))
        tensor([  0., 100.])
    """
    if _foreign:
        refuse_keywords("gelu", _foreign)
    try:
        if approximate == "none":
            return _gelu(x)
        return _gelu(x, approximate=approximate)
    except RuntimeError as error:
        refuse_types("gelu", error)
        raise
