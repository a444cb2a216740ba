"""Linear attention."""

from collections.abc import Callable
from typing import Literal, NoReturn, overload

import torch
from torch import Tensor

from thunderkittens.ops._mistakes import refuse_keywords, refuse_types

_Op = Callable[..., Tensor | tuple[Tensor, Tensor]]
_linear_attention: _Op = torch.ops.thunderkittens.linear_attention.default
_linear_attention_forward: _Op = torch.ops.thunderkittens.linear_attention_forward.default


# S; or with the normaliser (S, z).
_State = Tensor | tuple[Tensor, Tensor]


@overload
def linear_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    log_decay: Tensor | None = ...,
    scale: float | None = ...,
    initial_state: Tensor | None = ...,
    output_final_state: Literal[False] = ...,
    cu_seqlens: Tensor | None = ...,
    normalize: Literal[False] = ...,
    eps: float = ...,
) -> Tensor: ...
@overload
def linear_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    log_decay: Tensor | None = ...,
    scale: float | None = ...,
    initial_state: Tensor | None = ...,
    output_final_state: Literal[True],
    cu_seqlens: Tensor | None = ...,
    normalize: Literal[False] = ...,
    eps: float = ...,
) -> tuple[Tensor, Tensor]: ...
@overload
def linear_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    log_decay: Tensor | None = ...,
    scale: float | None = ...,
    initial_state: tuple[Tensor, Tensor] | None = ...,
    output_final_state: Literal[False] = ...,
    cu_seqlens: Tensor | None = ...,
    normalize: Literal[True],
    eps: float = ...,
) -> Tensor: ...
@overload
def linear_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    log_decay: Tensor | None = ...,
    scale: float | None = ...,
    initial_state: tuple[Tensor, Tensor] | None = ...,
    output_final_state: Literal[True],
    cu_seqlens: Tensor | None = ...,
    normalize: Literal[True],
    eps: float = ...,
) -> tuple[Tensor, tuple[Tensor, Tensor]]: ...
@overload
def linear_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    log_decay: Tensor | None = ...,
    scale: float | None = ...,
    initial_state: _State | None = ...,
    output_final_state: bool,
    cu_seqlens: Tensor | None = ...,
    normalize: bool = ...,
    eps: float = ...,
) -> Tensor | tuple[Tensor, _State]: ...
def linear_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    log_decay: Tensor | None = None,
    scale: float | None = None,
    initial_state: _State | None = None,
    output_final_state: bool = False,
    cu_seqlens: Tensor | None = None,
    normalize: bool = False,
    eps: float = 1e-10,
    **_foreign: NoReturn,
) -> Tensor | tuple[Tensor, _State]:
    """Causal linear attention with decay: retention, lightning attention, Mamba-2's recurrence.

    S(t) = exp(g(t)) S(t − 1) + k(t) v(t)ᵀ, o(t) = scale · S(t)ᵀ q(t), for each head: softmax
    attention without the softmax, whose time is linear in the length. In parallel form,
    o(i) = scale · Σ(j ≤ i) exp(g(j + 1) + … + g(i)) (q(i) · k(j)) v(j).

    Args:
        q: [B, S, Hk, K], float32, float16, bfloat16 or float64, any strides.
        k: [B, S, Hk, K], q's dtype.
        v: [B, S, H, V], q's dtype, H a multiple of Hk: head h reads head h // (H / Hk) of q and k.
        log_decay: g, the logarithm of the decays: [H], a constant for each head, or [B, S, H], for
            each token; float32 (float64 for float64), at most 0. None for no decay.
        scale: Of o; None for 1 / sqrt(K).
        initial_state: S before the first token, [B, H, K, V], float32 (float64 for float64); it is
            decayed before that token is added. With `normalize` (S, z), z [B, H, K]. None for
            zeros.
        output_final_state: Also return the state after the last token.
        cu_seqlens: [N + 1], int32 or int64, where N sequences packed one behind the other start and
            the last one ends, from 0 to T: q, k [T, Hk, K], v [T, H, V], log_decay [H] or [T, H],
            states [N, …]. It stays on the device.
        normalize: Divide o by what the same weights add up to: o(t) = scale · S(t)ᵀ q(t) /
            (scale · z(t)ᵀ q(t) + eps), z(t) = exp(g(t)) z(t − 1) + k(t). Of feature maps, which
            are positive.
        eps: With `normalize`.

    Returns:
        o, [B, S, H, V], q's dtype, contiguous; with `output_final_state` (o, state), state
        [B, H, K, V], float32 (float64 for float64), or with `normalize` (S, z). All are
        differentiable, in q, k, v, log_decay and initial_state, once.

    Raises:
        ValueError: A shape or a device is not as above.
        TypeError: A dtype or an argument's Python type is not as above.
        NotImplementedError: A tensor is sparse or nested, the backward is differentiated, or
            differentiation is forward-mode.

    Backends:
        The kernel (sm_90a) takes bfloat16 and float16, K and V of 8, 16 … 128 and any S; torch
        computes the rest, by the same chunks. q, k and v are read where they lie if the last stride
        is 1 and address and other strides are multiples of 16 bytes, none of them 0; otherwise they
        are copied, and `explain` says so. A block has one head; where heads are fewer than the
        GPU's multiprocessors, sequences are cut into segments, whose states are found first: q is
        then read once, k and v twice. The backward saves the inputs alone, and is three calls of
        the same kernel. The normaliser is a second call with ones for v. Torch, where it computes
        packed sequences, fills each up to whole chunks, and does not read cu_seqlens back either:
        such calls, too, can be captured in a CUDA graph.

    Numerics:
        Chunks of 64 tokens. Products take operands in q's dtype and accumulate in float32: the
        weights within a chunk, the decayed values, and the state before each chunk are rounded to
        q's dtype; the state itself stays in float32. Of float16 they must stay below 65504. Decays
        are differences of sums over one chunk: none overflows where no g is above 0, however strong
        the decay. Torch computes in float32 (float64 for float64). Under autocast q, k and v take
        its dtype. The same bits on every run. The gradient of g is found anew every 256 tokens, and
        in between by sums over q · dq − k · dk: its error does not grow with the length. In bf16,
        of random numbers on an H100, it is 0.1 to 0.8 % of its norm, over sequences of 4,096 and of
        65,536 tokens. Its backward takes memory for states in bf16, K V numbers (each rounded up to
        64 or 128) of a head's 256 tokens. Packed sequences are apart: what one holds, a NaN or an
        infinity too, changes no bit of another's results and gradients; log_decay of [H] has the
        sum of all.

    Source:
        csrc/kernels/linear_attention. Sun et al., Retentive Network (2023), section 2.3; Yang et
        al., Gated Linear Attention (2023), section 4; Dao and Gu, Transformers are SSMs (2024).

    Example:
        >>> import torch, thunderkittens
        >>> q, k, v = torch.randn(3, 2, 5, 4, 16).unbind()
        >>> o, state = thunderkittens.linear_attention(q, k, v, output_final_state=True)
        >>> o.shape, state.shape
        (torch.Size([2, 5, 4, 16]), torch.Size([2, 4, 16, 16]))
    """
    if _foreign:
        refuse_keywords("linear_attention", _foreign)
    # (Looked at under torch.compile, it would be a constant of the graph, and compiled twice.)
    if not torch.compiler.is_compiling() and not isinstance(eps, float | int):
        raise TypeError(f"linear_attention: eps must be a number, got {type(eps).__name__}")
    op = _linear_attention_forward if output_final_state else _linear_attention
    try:
        if isinstance(log_decay, Tensor) and log_decay.dim() == 1:
            log_decay = log_decay.expand(*v.shape[:-2], -1)
        if not normalize:
            return op(q, k, v, log_decay, scale, initial_state, cu_seqlens)
        state, z = (None, None) if initial_state is None else initial_state
        if z is not None:
            z = z.unsqueeze(-1).expand(*z.shape, _ONES)
        ones = v.new_ones((*v.shape[:-1], _ONES))
        results = op(q, k, v, log_decay, scale, state, cu_seqlens)
        sums = op(q, k, ones, log_decay, scale, z, cu_seqlens)
    except RuntimeError as error:
        refuse_types("linear_attention", error)
        raise
    if isinstance(results, Tensor) and isinstance(sums, Tensor):
        return _divided(results, sums, eps)
    return _divided(results[0], sums[0], eps), (results[1], sums[1][..., 0])


_ONES = 8  # columns of ones: a row of them is 16 bytes, as the kernel reads it


def _divided(o: Tensor, sums: Tensor, eps: float) -> Tensor:
    """o / (the first column of `sums` + eps), in float32 at least, in o's dtype."""
    exact = torch.promote_types(o.dtype, torch.float32)
    return (o.to(exact) / (sums[..., :1].to(exact) + eps)).to(o.dtype)
