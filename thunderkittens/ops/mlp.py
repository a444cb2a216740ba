"""mlp: two linear layers with gelu between them."""

from collections.abc import Callable
from typing import Literal, NoReturn

import torch
from torch import Tensor

from thunderkittens.ops._mistakes import refuse_keywords, refuse_types

_mlp: Callable[..., Tensor] = torch.ops.thunderkittens.mlp.default


def mlp(
    x: Tensor,
    fc1_weight: Tensor,
    fc1_bias: Tensor | None,
    fc2_weight: Tensor,
    fc2_bias: Tensor | None,
    *,
    approximate: Literal["none", "tanh"] = "none",
    **_foreign: NoReturn,
) -> Tensor:
    """Two linear layers with gelu between them: y = gelu(x W₁ᵀ + b₁) W₂ᵀ + b₂; differentiable once.

    What torch computes as linear, gelu, linear, with gelu in the epilogue of the first product, and
    in the backward gelu's slope and the sums that are b₁'s gradient in the epilogue of the one with
    W₂: hidden = x W₁ᵀ + b₁ and the gradient of gelu(hidden) are not read and written once more.

    Args:
        x: [..., K], float32, float16, bfloat16 or float64. The rows are all leading dimensions
            together.
        fc1_weight: W₁, [F, K], x's dtype, as of torch.nn.Linear. Of transformers' Conv1D, whose
            weight is [K, F], give `weight.t()`: it is read as it lies, and its gradient has its
            strides.
        fc1_bias: b₁, [F], x's dtype. None for none.
        fc2_weight: W₂, [N, F], x's dtype.
        fc2_bias: b₂, [N], x's dtype. None for none.
        approximate: "none", gelu(x) = x · Φ(x), or "tanh", its tanh form, as of torch.nn.GELU.

    Returns:
        y, [..., N], x's dtype, contiguous.

    Raises:
        ValueError: A shape, a device or a word is not as above.
        TypeError: A dtype or an argument's Python type is not as above.
        NotImplementedError: A tensor is sparse or nested, the backward is differentiated, or
            differentiation is forward-mode.
        RuntimeError: The gradient is asked of `torch.func.grad`, which is not supported (torch's
            own message).

    Backends:
        The kernels, for Hopper, take bfloat16 and float16, F a multiple of 8, and x, dy and weights
        whose rows (or columns, of a transposed weight) start at multiples of 16 bytes: K and N
        multiples of 8, if contiguous. They compute the products beside gelu; the other four are
        torch's. With fewer than 1,024 rows, or more than 2,048 terms a sum (K forward, N backward),
        torch's products around gelu are as fast, and are taken without a warning, as they are
        elsewhere with one. `thunderkittens.explain` tells.

    Memory:
        For the backward x, and hidden and gelu(hidden), [..., F] each in x's dtype: what torch
        keeps if all is trained. Where weights are frozen it keeps less, this op the same.

    Numerics:
        hidden is rounded to x's dtype from float32, gelu is computed of what was rounded, and
        rounded; likewise dhidden = (dy W₂) · gelu'(hidden), whose product is not rounded before,
        and whose rounded values b₁'s gradient adds up. Sums in float32. Same bits on every run, but
        for what torch's products do.

    Source:
        csrc/kernels/mlp/linear_gelu.cuh: TMA, wgmma, two consumers in turn. cuBLASLt calls these
        epilogues GELU_AUX_BIAS and DGELU_BGRAD.

    Example:
        >>> import torch, thunderkittens
        >>> x, w1, w2 = torch.randn(2, 3, 16), torch.randn(64, 16), torch.randn(16, 64)
        >>> thunderkittens.mlp(x, w1, torch.zeros(64), w2, None, approximate="tanh").shape
        torch.Size([2, 3, 16])
    """
    if _foreign:
        refuse_keywords("mlp", _foreign)
    try:
        return _mlp(x, fc1_weight, fc1_bias, fc2_weight, fc2_bias, approximate=approximate)
    except RuntimeError as error:
        refuse_types("mlp", error)
        raise
