"""One token of Based's linear attention."""

from collections.abc import Callable
from typing import NoReturn, TypeAlias

import torch
from torch import Tensor

from thunderkittens.ops._mistakes import refuse_keywords, refuse_types
from thunderkittens.ops._views import writes_views
from thunderkittens.ops.based_attention import parts_of

_State: TypeAlias = Tensor | tuple[Tensor, Tensor]
_ops = torch.ops.thunderkittens
_based_attention_step: Callable[..., Tensor] = _ops.based_attention_step.default
_functional: Callable[..., tuple[Tensor, ...]] = _ops.based_attention_step_functional.default


def based_attention_step(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    state: _State,
    *,
    scale: float | None = None,
    normalize: bool = True,
    eps: float = 1e-12,
    **_foreign: NoReturn,
) -> Tensor:
    """One more token of `based_attention`: adds it to the state in place, and attends to all.

        S ← S + φ(k) vᵀ,   z ← z + φ(k),   o = φ(q)ᵀ S / (φ(q) · z + eps)

    for each head, with φ as `based_features` gives it; without `normalize` o = φ(q)ᵀ S.

    Args:
        q: [B, H, D], float32, float16, bfloat16 or float64, any strides.
        k: [B, H, D], q's dtype.
        v: [B, H, V], q's dtype.
        state: (S, z), [B, H, F, V] and [B, H, F], float32 (float64 for float64), as
            `based_attention` returns it, updated in place; without `normalize` S alone.
            F = 1 + D + D (D + 1) / 2.
        scale: Of the scores, above 0; None for 1 / sqrt(D).
        normalize: Divide by the sum of the weights.
        eps: Added to the sum of the weights; at least 0.

    Returns:
        o, [B, H, V], q's dtype, contiguous.

    Raises:
        ValueError: A shape, a device or a number is not as above.
        TypeError: A dtype or an argument's Python type is not as above, or the state is no pair
            where there is `normalize`, no tensor where there is none.
        NotImplementedError: A tensor is sparse or nested, or requires a gradient outside
            `torch.no_grad()`: a step is not differentiable, `based_attention` is.
        RuntimeError: Elements of the state lie in the same memory.

    Backends:
        The kernel (any GPU) takes bfloat16, float16 and float32, D up to 16 and any V; torch
        computes the rest, and states whose last stride is not 1. A block has a head, of which it
        reads the state once and writes it once, 16 bytes at a time where address, strides and V are
        multiples of 16 bytes, else 4 bytes. Under `torch.compile` a state that is a view, as one
        layer's of a tensor of all layers', is updated through copies of it.

    Numerics:
        Computed in float32 (float64 for float64); o is rounded once, to q's dtype. Under autocast
        q, k and v take its dtype. The same bits on every run, and for a batch whatever the others
        are.

    Source:
        csrc/kernels/based_attention/based_attention_step.cuh. Arora et al., Simple linear attention
        language models balance the recall-throughput tradeoff (2024).

    Example:
        >>> import torch, thunderkittens
        >>> q, k, v = torch.randn(3, 1, 5, 2, 16).unbind()
        >>> o, state = thunderkittens.based_attention(q, k, v, output_final_state=True)
        >>> next_q, next_k, next_v = torch.randn(3, 1, 2, 16).unbind()
        >>> thunderkittens.based_attention_step(next_q, next_k, next_v, state).shape
        torch.Size([1, 2, 16])
    """
    if _foreign:
        refuse_keywords("based_attention_step", _foreign)
    if not isinstance(normalize, bool):
        raise TypeError(f"based_attention_step: normalize must be True or False, got {normalize!r}")
    s, z = parts_of("based_attention_step", "state", state, normalize)
    if s is None or (normalize and z is None):
        what = "a pair (S, z) with" if normalize else "a tensor without"
        raise TypeError(f"based_attention_step: state must be {what} normalize, got None")
    given = (q, k, v, s, z, eps, scale)
    written = (s,) if z is None else (s, z)
    try:
        if writes_views(*written):
            o, *updated = _functional(*given)
            for tensor, new in zip(written, updated, strict=False):
                tensor.copy_(new)
            return o
        return _based_attention_step(*given)
    except RuntimeError as error:
        refuse_types("based_attention_step", error)
        raise
