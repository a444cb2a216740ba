"""Norms over the last dimension."""

from collections.abc import Callable
from typing import Literal, NoReturn

import torch
from torch import Tensor

from thunderkittens.ops._mistakes import refuse_keywords, refuse_types

_layer_norm: Callable[..., Tensor] = torch.ops.thunderkittens.layer_norm.default
_rms_norm: Callable[..., Tensor] = torch.ops.thunderkittens.rms_norm.default
_rms_norm_plain: Callable[..., Tensor] = torch.ops.thunderkittens.rms_norm.plain

_TwoTensors = Callable[..., tuple[Tensor, Tensor]]
_add_layer_norm: _TwoTensors = torch.ops.thunderkittens.add_layer_norm.default
_add_layer_norm_plain: _TwoTensors = torch.ops.thunderkittens.add_layer_norm.plain
_add_rms_norm: _TwoTensors = torch.ops.thunderkittens.add_rms_norm.default
_add_rms_norm_plain: _TwoTensors = torch.ops.thunderkittens.add_rms_norm.plain

_REFUSALS = (ValueError, TypeError, NotImplementedError)


def layer_norm(
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    **_foreign: NoReturn,
) -> Tensor:
    """Layer normalisation over the last dimension, differentiable once.

    y = (x − mean) · rstd · weight + bias, with the row's mean and rstd = 1 / sqrt(variance + eps).

    Args:
        x: [..., N], float32, float16, bfloat16 or float64, any strides. Rows that are one distance
            apart with contiguous elements are read in place, others from a copy.
        weight: [N], x's dtype or float32; None for ones.
        bias: [N], x's dtype or float32; None for zeros.
        eps: Added to the variance; finite and ≥ 0.

    Returns:
        y, [..., N], x's dtype, contiguous.

    Raises:
        ValueError: A shape, a device or eps is not as above.
        TypeError: A dtype or an argument's Python type is not as above.
        NotImplementedError: A tensor is sparse or nested, the backward is differentiated, or
            differentiation is forward-mode.

    Numerics:
        Statistics and products in float32 (float64 for float64), rounded once to x's dtype. Against
        float64: |error| ≤ 2u·|y| + 2u·|weight|, u half an ulp of the dtype. A row of equal values
        gives the bias (eps > 0). Under autocast a weight or bias of another dtype counts as
        float32.

        Forward and backward give the same bits on every run. The kernels give a row its y whatever
        other rows there are, and its dx too where N > 256; of shorter rows the backward has one
        kernel for up to two a multiprocessor and one for more, which add up in different orders, so
        that dx may differ by roundings. So may y and dx between rows that all begin at multiples of
        16 bytes and rows that do not. Gradients of weight and bias are sums over all rows.

    Source:
        Kernels for N from 1 to 65,536 in 16 and 32 bits: csrc/kernels/norm/layer_norm.cu. Torch
        computes everything else; `thunderkittens.explain` tells.

    Example:
        >>> import torch, thunderkittens
        >>> thunderkittens.layer_norm(torch.tensor([[1.0, 3.0]]), eps=0.0)
        tensor([[-1.,  1.]])
    """
    if _foreign:
        refuse_keywords("layer_norm", _foreign)
    try:
        return _layer_norm(x, weight, bias, eps)
    except RuntimeError as error:
        refuse_types("layer_norm", error)
        raise


def rms_norm(
    x: Tensor,
    weight: Tensor | None = None,
    eps: float | None = None,
    *,
    weight_offset: float = 0.0,
    casting: Literal["llama", "gemma"] = "llama",
    **_foreign: NoReturn,
) -> Tensor:
    """Root-mean-square normalisation over the last dimension, differentiable once.

    y = x · rstd · (weight + weight_offset), with the row's rstd = 1 / sqrt(mean(x²) + eps).

    Args:
        x: [..., N], float32, float16, bfloat16 or float64, any strides. Rows that are one distance
            apart with contiguous elements are read in place; rows of up to 256 elements also where
            two distances are needed, as in the heads of a slice of a fused qkv tensor
            ([B, S, H, D]); others from a copy.
        weight: [N], x's dtype or float32; None for ones, whatever the offset.
        eps: Added to the mean square; finite and ≥ 0. None is torch's: the distance from 1 to the
            next number of the dtype that is computed in, 2⁻²³ (2⁻⁵² for float64). Models have one
            of their own, such as 1e-5 or 1e-6.
        weight_offset: Added to weight, in float32; finite. 1.0 for weights stored about zero.
        casting: Where a 16-bit result is rounded. "llama": x · rstd to x's dtype, then its product
            with weight + weight_offset to x's dtype. "gemma": once, at the end.

    Returns:
        y, [..., N], x's dtype, contiguous.

    Raises:
        ValueError: A shape, a device, eps, weight_offset or casting is not as above.
        TypeError: A dtype or an argument's Python type is not as above.
        NotImplementedError: A tensor is sparse or nested, the backward is differentiated, or
            differentiation is forward-mode.

    Numerics:
        Statistics and products in float32 (float64 for float64). Against float64: |error| ≤ 2u·|y|
        with "gemma" and 4u·|y| with "llama", u half an ulp of the dtype. The gradient is that of
        the formula: the roundings in between count as the identity. Forward and backward give the
        same bits on every run; which of them depend on how many rows there are, `layer_norm` says.
        Under autocast a weight of another dtype counts as float32.

    Source:
        Kernels for N from 1 to 65,536 in 16 and 32 bits: csrc/kernels/norm/rms_norm.cu. Torch
        computes everything else; `thunderkittens.explain` tells.

    Example:
        >>> import torch, thunderkittens
        >>> thunderkittens.rms_norm(torch.tensor([[1.0, 7.0]]), eps=0.0)
        tensor([[0.2000, 1.4000]])
    """
    if _foreign:
        refuse_keywords("rms_norm", _foreign)
    try:
        if weight_offset == 0.0 and casting == "llama":
            return _rms_norm_plain(x, weight, eps)
        return _rms_norm(x, weight, eps, weight_offset, casting)
    except RuntimeError as error:
        refuse_types("rms_norm", error)
        raise


def add_layer_norm(
    x: Tensor,
    residual: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    eps: float = 1e-5,
    dropout_p: float = 0.0,
    training: bool = True,
    seed: Tensor | None = None,
    **_foreign: NoReturn,
) -> tuple[Tensor, Tensor]:
    """Dropout, residual addition and layer normalisation in one pass, differentiable once.

    sum = dropout(x) + residual, y = (sum − mean) · rstd · weight + bias, with the mean and
    rstd = 1 / sqrt(variance + eps) of the row of sum, as it is in float32, before it is rounded.

    Args:
        x: [..., N], float32, float16, bfloat16 or float64, any strides. Rows that are one distance
            apart with contiguous elements are read in place (up to N = 256 also where two distances
            are needed), others from a copy.
        residual: The same shape, x's dtype or float32, any strides. None, for the first block of a
            model: nothing is added, and sum has x's dtype.
        weight: [N], x's dtype or float32; None for ones.
        bias: [N], x's dtype or float32; None for zeros.
        eps: Added to the variance; finite and ≥ 0.
        dropout_p: The probability that an element of x becomes zero, 0 ≤ p < 1; the others are
            multiplied by 1 / (1 − p).
        training: False: nothing is dropped.
        seed: One int64 on x's device, from which the mask follows: element i (of x contiguous)
            always meets the same number for one seed, whatever the shape or the device. None: one
            drawn from torch's generator of that device, again at each replay of a CUDA graph.

    Returns:
        y in x's dtype and sum in residual's dtype, both [..., N] and contiguous. Without residual
        and dropout, sum is x itself, no copy: what is written into one is in the other.

    Raises:
        ValueError: A shape, a device, eps, dropout_p or seed is not as above.
        TypeError: A dtype or an argument's Python type is not as above.
        NotImplementedError: A tensor is sparse or nested, the backward is differentiated, or
            differentiation is forward-mode.

    Numerics:
        All in float32 (float64 for float64); y and sum are each rounded once. The backward reads
        sum as it was returned, with the rstd of the unrounded one and the mean of either. The mask
        is never stored: the backward computes it again, by Philox 4x32 with 7 rounds. Where x is
        dropped, an infinity or a NaN gives a NaN, as in torch. Given the seed, forward and backward
        give the same bits on every run; which of them depend on how many rows there are,
        `layer_norm` says. Under autocast a residual, weight or bias of another dtype counts as
        float32; sum is float32 then.

    Source:
        Kernels for N from 1 to 65,536 in 16 and 32 bits: csrc/kernels/norm/add_layer_norm.cu. Torch
        computes everything else, with the same mask; `thunderkittens.explain` tells.

    Example:
        >>> import torch, thunderkittens
        >>> y, total = thunderkittens.add_layer_norm(torch.ones(1, 2), torch.tensor([[1.0, 3.0]]))
        >>> total
        tensor([[2., 4.]])
    """
    if _foreign:
        refuse_keywords("add_layer_norm", _foreign)
    if residual is None:
        if _adds_nothing(x, dropout_p, training, seed):
            try:
                return layer_norm(x, weight, bias, eps), x
            except _REFUSALS:
                pass  # the op below says the same under its own name
        residual = _zeros_like(x)
    try:
        if dropout_p == 0.0 and seed is None and isinstance(training, bool):
            return _add_layer_norm_plain(x, residual, weight, bias, eps)
        return _add_layer_norm(x, residual, weight, bias, eps, dropout_p, training, seed)
    except RuntimeError as error:
        refuse_types("add_layer_norm", error)
        raise


def add_rms_norm(
    x: Tensor,
    residual: Tensor | None,
    weight: Tensor | None = None,
    *,
    eps: float | None = None,
    weight_offset: float = 0.0,
    casting: Literal["llama", "gemma"] = "llama",
    dropout_p: float = 0.0,
    training: bool = True,
    seed: Tensor | None = None,
    **_foreign: NoReturn,
) -> tuple[Tensor, Tensor]:
    """Dropout, residual addition and root-mean-square normalisation in one pass.

    sum = dropout(x) + residual, y = sum · rstd · (weight + weight_offset), with the row's
    rstd = 1 / sqrt(mean(sum²) + eps), of sum as it is in float32, before it is rounded.
    Differentiable once.

    Args:
        x: As of `add_layer_norm`.
        residual: As of `add_layer_norm`.
        weight: [N], x's dtype or float32; None for ones, whatever the offset.
        eps: As of `rms_norm`.
        weight_offset: As of `rms_norm`.
        casting: As of `rms_norm`.
        dropout_p: As of `add_layer_norm`.
        training: As of `add_layer_norm`.
        seed: As of `add_layer_norm`; one seed drops the same elements in both.

    Returns:
        y in x's dtype and sum in residual's dtype, both [..., N] and contiguous. Without residual
        and dropout, sum is x itself, no copy: what is written into one is in the other.

    Raises:
        ValueError: A shape, a device, eps, weight_offset, casting, dropout_p or seed is not as
            above.
        TypeError: A dtype or an argument's Python type is not as above.
        NotImplementedError: A tensor is sparse or nested, the backward is differentiated, or
            differentiation is forward-mode.

    Numerics:
        As of `add_layer_norm`; y as of `rms_norm`.

    Source:
        Kernels for N from 1 to 65,536 in 16 and 32 bits: csrc/kernels/norm/add_rms_norm.cu. Torch
        computes everything else, with the same mask; `thunderkittens.explain` tells.

    Example:
        >>> import torch, thunderkittens
        >>> y, total = thunderkittens.add_rms_norm(
        ...     torch.tensor([[1.0, 3.0]]), torch.tensor([[0.0, 4.0]]), eps=0.0
        ... )
        >>> y
        tensor([[0.2000, 1.4000]])
    """
    if _foreign:
        refuse_keywords("add_rms_norm", _foreign)
    if residual is None:
        if _adds_nothing(x, dropout_p, training, seed):
            try:
                return rms_norm(x, weight, eps, weight_offset=weight_offset, casting=casting), x
            except _REFUSALS:
                pass  # the op below says the same under its own name
        residual = _zeros_like(x)
    try:
        if dropout_p == 0.0 and seed is None and isinstance(training, bool):
            if weight_offset == 0.0 and casting == "llama":
                return _add_rms_norm_plain(x, residual, weight, eps)
            return _add_rms_norm(x, residual, weight, eps, weight_offset, casting)
        return _add_rms_norm(
            x, residual, weight, eps, weight_offset, casting, dropout_p, training, seed
        )
    except RuntimeError as error:
        refuse_types("add_rms_norm", error)
        raise


def _adds_nothing(x: Tensor, dropout_p: float, training: bool, seed: Tensor | None) -> bool:
    """Whether a call without residual is that of a norm, and its sum is x; else the op decides."""
    if not isinstance(x, Tensor) or seed is not None or not isinstance(training, bool):
        return False
    return dropout_p == 0.0 or (not training and isinstance(dropout_p, float) and 0 < dropout_p < 1)


def _zeros_like(x: Tensor) -> Tensor | None:
    """The residual that changes nothing, of one row; None where x is none to have a like."""
    if not isinstance(x, Tensor) or x.layout is not torch.strided or x.is_nested:
        return None
    return x.new_zeros(x.shape[-1:]).expand(x.shape)
