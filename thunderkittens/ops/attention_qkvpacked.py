"""Softmax attention of q, k and v that are parts of one tensor."""

from collections.abc import Callable
from typing import Literal, NoReturn, overload

import torch
from torch import Tensor

from thunderkittens.ops._mistakes import refuse_bool, refuse_keywords, refuse_types
from thunderkittens.ops._window import sides_of

_Op = Callable[..., Tensor | tuple[Tensor, Tensor]]
_attention: _Op = torch.ops.thunderkittens.attention_qkvpacked.default
_attention_forward: _Op = torch.ops.thunderkittens.attention_qkvpacked_forward.default
_attention_plain: _Op = torch.ops.thunderkittens.attention_qkvpacked.plain
_attention_forward_plain: _Op = torch.ops.thunderkittens.attention_qkvpacked_forward.plain


@overload
def attention_qkvpacked(
    qkv: Tensor,
    *,
    causal: bool = ...,
    scale: float | None = ...,
    window: tuple[int | None, int | None] | None = ...,
    softcap: float = ...,
    sinks: Tensor | None = ...,
    cu_seqlens: Tensor | None = ...,
    max_seqlen: int | None = ...,
    seqused_k: Tensor | None = ...,
    leftpad_k: Tensor | None = ...,
    return_lse: Literal[False] = ...,
) -> Tensor: ...
@overload
def attention_qkvpacked(
    qkv: Tensor,
    *,
    causal: bool = ...,
    scale: float | None = ...,
    window: tuple[int | None, int | None] | None = ...,
    softcap: float = ...,
    sinks: Tensor | None = ...,
    cu_seqlens: Tensor | None = ...,
    max_seqlen: int | None = ...,
    seqused_k: Tensor | None = ...,
    leftpad_k: Tensor | None = ...,
    return_lse: Literal[True],
) -> tuple[Tensor, Tensor]: ...
@overload
def attention_qkvpacked(
    qkv: Tensor,
    *,
    causal: bool = ...,
    scale: float | None = ...,
    window: tuple[int | None, int | None] | None = ...,
    softcap: float = ...,
    sinks: Tensor | None = ...,
    cu_seqlens: Tensor | None = ...,
    max_seqlen: int | None = ...,
    seqused_k: Tensor | None = ...,
    leftpad_k: Tensor | None = ...,
    return_lse: bool,
) -> Tensor | tuple[Tensor, Tensor]: ...
def attention_qkvpacked(
    qkv: Tensor,
    *,
    causal: bool = False,
    scale: float | None = None,
    window: tuple[int | None, int | None] | None = None,
    softcap: float = 0.0,
    sinks: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    max_seqlen: int | None = None,
    seqused_k: Tensor | None = None,
    leftpad_k: Tensor | None = None,
    return_lse: bool = False,
    **_foreign: NoReturn,
) -> Tensor | tuple[Tensor, Tensor]:
    """`attention` of q, k and v that lie in one tensor, whose gradient is one tensor, too.

    q, k, v = qkv.unbind(-3), and o = softmax(scale · q kᵀ, masked) v: to the bit what `attention`
    gives for these three. But its kernels write the gradients of q, k and v where dqkv has them;
    those of three views are three tensors, which autograd copies into one. flash-attn's layout of
    qkvpacked functions.

    Args:
        qkv: [B, S, 3, H, D], float32, float16, bfloat16 or float64, any strides: a fused
            projection [B, S, 3 · H · D] viewed so, for one. Packed: [T, 3, H, D].
        causal: Row i sees no key after its own.
        scale: Of the products; None for 1 / sqrt(D).
        window: (left, right): row i sees the keys from i − left to i + right, both ≥ 0, None for
            no limit. `causal` makes right 0.
        softcap: ≥ 0; 0 for none.
        sinks: [H], qkv's dtype or float32: one more logit per row, which takes part in the softmax
            and has no value. Not scaled, not capped.
        cu_seqlens: [sequences + 1], int32 or int64, on qkv's device: sequence i of a packed qkv is
            rows cu_seqlens[i] to cu_seqlens[i + 1]. Out of range is clamped; a row of no sequence
            sees no key.
        max_seqlen: At least the longest sequence; required with cu_seqlens, which is never read
            back from the device.
        seqused_k: [B], int32 or int64, on qkv's device: behind the last key of each sequence, as of
            padding to the right; None for S. As `attention` has it, and not with cu_seqlens: the
            diagonal of row i is i + seqused_k[b] − S, which `causal` and `window` mean.
        leftpad_k: The same of its first key, as of padding to the left; None for 0.
        return_lse: Also return the log-sum-exp of each row.

    Returns:
        o, [B, S, H, D] (packed [T, H, D]), qkv's dtype, contiguous; with `return_lse` (o, lse), lse
        [B, H, S] (packed [H, T]), natural logarithm, float32 (float64 for float64). Both are
        differentiable, also in sinks. A row with no key has o = 0 and lse = its sink, −inf without.

    Raises:
        ValueError: A shape, a device or a number is not as above.
        TypeError: A dtype or an argument's Python type is not as above.
        NotImplementedError: A tensor is sparse or nested.

    Backends:
        `attention`'s kernels and, for what they do not take, torch's ops, as there. The kernels
        read q, k and v where qkv has them, on the conditions that `attention` has for its own:
        D a multiple of 8, qkv contiguous and at a multiple of 16 bytes is enough; parts that they
        cannot read are copied, and `explain` says so. For the backward of a call that the kernel
        takes, qkv, o and lse are saved, first order only; dqkv is contiguous, and beside it, which
        the kernels write into, they need what `attention` says of its backward.

    Numerics:
        As `attention`: the same bits, forward and backward, also in autocast, which casts qkv as
        one tensor.

    Source:
        csrc/kernels/attention: torch/attention_qkvpacked.cpp is the op; kernels, and what torch
        computes, are those of `attention`.

    Example:
        >>> import torch, thunderkittens
        >>> x, projection = torch.randn(2, 5, 64), torch.nn.Linear(64, 3 * 64)
        >>> qkv = projection(x).view(2, 5, 3, 4, 16)
        >>> o = thunderkittens.attention_qkvpacked(qkv, causal=True)
        >>> torch.equal(o, thunderkittens.attention(*qkv.unbind(-3), causal=True))
        True
        >>> (dqkv,) = torch.autograd.grad(o.sum(), qkv)
        >>> dqkv.shape
        torch.Size([2, 5, 3, 4, 16])
    """
    if _foreign:
        refuse_keywords("attention_qkvpacked", _foreign)
    packed = cu_seqlens is not None or max_seqlen is not None
    placed = packed or seqused_k is not None or leftpad_k is not None
    try:
        if window is None and sinks is None and softcap == 0.0 and not placed:
            plain = _attention_forward_plain if return_lse else _attention_plain
            return plain(qkv, causal, scale)
        left, right = (None, None) if window is None else sides_of("attention_qkvpacked", window)
        if packed:
            refuse_bool("attention_qkvpacked", "max_seqlen", max_seqlen)
        op = _attention_forward if return_lse else _attention
        return op(
            qkv,
            causal,
            scale,
            window_left=left,
            window_right=right,
            softcap=softcap,
            sinks=sinks,
            cu_seqlens=cu_seqlens,
            max_seqlen=max_seqlen,
            seqused_k=seqused_k,
            leftpad_k=leftpad_k,
        )
    except RuntimeError as error:
        refuse_types("attention_qkvpacked", error)
        raise
