"""One token of linear attention."""

from collections.abc import Callable
from typing import NoReturn

import torch
from torch import Tensor

from thunderkittens.ops._mistakes import refuse_keywords, refuse_types
from thunderkittens.ops._views import writes_views

_ops = torch.ops.thunderkittens
_linear_attention_step: Callable[..., Tensor] = _ops.linear_attention_step.default
_functional: Callable[..., tuple[Tensor, Tensor]] = _ops.linear_attention_step_functional.default


def linear_attention_step(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    state: Tensor,
    *,
    log_decay: Tensor | None = None,
    scale: float | None = None,
    state_indices: Tensor | None = None,
    **_foreign: NoReturn,
) -> Tensor:
    """One token of `linear_attention`, for decoding: updates the states in place.

    S ← exp(g) S + k vᵀ, o = scale · Sᵀ q, for each head: o is of the updated state. It is what
    `linear_attention` gives for one token, with the state for its initial one.

    Args:
        q: [B, Hk, K], float32, float16, bfloat16 or float64, any strides.
        k: [B, Hk, K], q's dtype.
        v: [B, H, V], q's dtype, H a multiple of Hk: head h reads head h // (H / Hk) of q and k.
        state: S, [N, H, K, V], float32 (float64 for float64), written in place: the last stride is
            1, and no two elements lie in the same memory. N is B without `state_indices`.
        log_decay: g, the logarithm of the decays: [H], or [B, H], for each token; float32 (float64
            for float64), at most 0. None for no decay.
        scale: Of o; None for 1 / sqrt(K).
        state_indices: [B], int32 or int64, on q's device, which is never read back to the host: the
            state of batch b is state[state_indices[b]]. A number that is of no state, negative or N
            and above, is a padding slot's: its o is 0, and nothing is written. Other numbers must
            not repeat: what the states hold that two of a batch write is not defined.

    Returns:
        o, [B, H, V], q's dtype, contiguous.

    Raises:
        ValueError: A shape, a device or the state's last stride is not as above.
        TypeError: A dtype or an argument's Python type is not as above.
        NotImplementedError: A tensor is sparse or nested, or requires a gradient outside
            `torch.no_grad()`: a step is not differentiable, `linear_attention` is.
        RuntimeError: Elements of the state lie in the same memory.

    Backends:
        The kernel (any GPU) takes bfloat16, float16 and float32, K to 256 and any V; torch computes
        the rest. Nothing is copied, whatever the strides. A block updates 32 columns of a head's
        state, 16 bytes at a time where address, strides and V are multiples of 16 bytes, else
        4 bytes: the state is read once and written once, which is all the time that a large batch
        takes. Captured in a CUDA graph, it takes the indices of each replay. Under `torch.compile`
        a state that is a view, as one layer's of a tensor of all layers', is updated through copies
        of all of it: give each layer a tensor of its own there.

    Numerics:
        Computed in float32 (float64 for float64); o is rounded once, to q's dtype. Under autocast
        q, k and v take its dtype. The same bits on every run, and for a batch whatever the others
        are.

    Source:
        csrc/kernels/linear_attention/linear_attention_step.cuh.

    Example:
        >>> import torch, thunderkittens
        >>> q, k, v = torch.randn(3, 2, 5, 4, 16).unbind()
        >>> o = thunderkittens.linear_attention(q, k, v)
        >>> state = torch.zeros(2, 4, 16, 16)
        >>> for t in range(5):
        ...     last = thunderkittens.linear_attention_step(q[:, t], k[:, t], v[:, t], state)
        >>> torch.allclose(last, o[:, -1], atol=1e-5)
        True
    """
    if _foreign:
        refuse_keywords("linear_attention_step", _foreign)
    try:
        if isinstance(log_decay, Tensor) and log_decay.dim() == 1:
            log_decay = log_decay.expand(v.shape[0], -1)
        options = (log_decay, scale, state_indices)
        if writes_views(state):
            o, updated = _functional(q, k, v, state, *options)
            state.copy_(updated)
            return o
        return _linear_attention_step(q, k, v, state, *options)
    except RuntimeError as error:
        refuse_types("linear_attention_step", error)
        raise
