"""Norms over the last dimension."""

import torch
from torch import Tensor

_layer_norm = torch.ops.thunderkittens.layer_norm.default


def layer_norm(
    x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
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
        TypeError: A dtype is not as above.
        NotImplementedError: A tensor is sparse or nested, the backward is differentiated, or
            differentiation is forward-mode.
        RuntimeError: An argument has the wrong Python type, or the gradient is asked of
            `torch.func.grad`, which is not supported (torch's own messages).

    Numerics:
        Statistics and products in float32 (float64 for float64), rounded once to x's dtype. Against
        float64: |error| ≤ 2u·|y| + 2u·|weight|, u half an ulp of the dtype. Forward and backward
        give the same bits on every run. A row of equal values gives the bias (eps > 0).

    Source:
        Kernels for N from 1 to 65,536 in 16 and 32 bits: csrc/kernels/norm/layer_norm.cu. Torch
        computes everything else; `thunderkittens.explain` tells.

    Example:
        >>> import torch, thunderkittens
        >>> thunderkittens.layer_norm(torch.tensor([[1.0, 3.0]]), eps=0.0)
        tensor([[-1.,  1.]])
    """
    return _layer_norm(x, weight, bias, eps)
