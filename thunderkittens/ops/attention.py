"""Softmax attention."""

from collections.abc import Callable
from typing import Literal, NoReturn, overload

import torch
from torch import Tensor

from thunderkittens.ops._mistakes import refuse_bool, refuse_keywords, refuse_types
from thunderkittens.ops._window import sides_of

_Op = Callable[..., Tensor | tuple[Tensor, Tensor]]
_attention: _Op = torch.ops.thunderkittens.attention.default
_attention_forward: _Op = torch.ops.thunderkittens.attention_forward.default
_attention_plain: _Op = torch.ops.thunderkittens.attention.plain
_attention_forward_plain: _Op = torch.ops.thunderkittens.attention_forward.plain


@overload
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = ...,
    scale: float | None = ...,
    window: tuple[int | None, int | None] | None = ...,
    softcap: float = ...,
    sinks: Tensor | None = ...,
    cu_seqlens_q: Tensor | None = ...,
    cu_seqlens_k: Tensor | None = ...,
    max_seqlen_q: int | None = ...,
    max_seqlen_k: int | None = ...,
    seqused_k: Tensor | None = ...,
    leftpad_k: Tensor | None = ...,
    return_lse: Literal[False] = ...,
) -> Tensor: ...
@overload
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = ...,
    scale: float | None = ...,
    window: tuple[int | None, int | None] | None = ...,
    softcap: float = ...,
    sinks: Tensor | None = ...,
    cu_seqlens_q: Tensor | None = ...,
    cu_seqlens_k: Tensor | None = ...,
    max_seqlen_q: int | None = ...,
    max_seqlen_k: int | None = ...,
    seqused_k: Tensor | None = ...,
    leftpad_k: Tensor | None = ...,
    return_lse: Literal[True],
) -> tuple[Tensor, Tensor]: ...
@overload
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = ...,
    scale: float | None = ...,
    window: tuple[int | None, int | None] | None = ...,
    softcap: float = ...,
    sinks: Tensor | None = ...,
    cu_seqlens_q: Tensor | None = ...,
    cu_seqlens_k: Tensor | None = ...,
    max_seqlen_q: int | None = ...,
    max_seqlen_k: int | None = ...,
    seqused_k: Tensor | None = ...,
    leftpad_k: Tensor | None = ...,
    return_lse: bool,
) -> Tensor | tuple[Tensor, Tensor]: ...
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = False,
    scale: float | None = None,
    window: tuple[int | None, int | None] | None = None,
    softcap: float = 0.0,
    sinks: Tensor | None = None,
    cu_seqlens_q: Tensor | None = None,
    cu_seqlens_k: Tensor | None = None,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
    seqused_k: Tensor | None = None,
    leftpad_k: Tensor | None = None,
    return_lse: bool = False,
    **_foreign: NoReturn,
) -> Tensor | tuple[Tensor, Tensor]:
    """Softmax attention with grouped query heads, windows, sinks, padded and packed sequences.

    s = scale · q kᵀ, then softcap · tanh(s / softcap) when softcap > 0, then the mask;
    o = softmax(s) v. The diagonal of row i is i + Sk − Sq: masks are aligned to the bottom right.
    Of padded sequences it is i + seqused_k[b] − Sq, and the keys from leftpad_k[b] to seqused_k[b]
    alone exist.

    Args:
        q: [B, Sq, Hq, D], float32, float16, bfloat16 or float64, any strides. Packed: [Tq, Hq, D].
        k: [B, Sk, Hk, D], q's dtype, Hq a multiple of Hk: query head h reads key head
            h // (Hq / Hk). Packed: [Tk, Hk, D].
        v: [B, Sk, Hk, Dv], q's dtype. Packed: [Tk, Hk, Dv].
        causal: Row i sees no key right of its diagonal.
        scale: Of the products; None for 1 / sqrt(D).
        window: (left, right): row i sees the keys from diagonal − left to diagonal + right, both
            ≥ 0, None for no limit. `causal` makes right 0.
        softcap: ≥ 0; 0 for none.
        sinks: [Hq], q's dtype or float32: one more logit per row, which takes part in the softmax
            and has no value. Not scaled, not capped.
        cu_seqlens_q: [sequences + 1], int32 or int64, on q's device: sequence i of a packed q is
            rows cu_seqlens_q[i] to cu_seqlens_q[i + 1]. Out of range is clamped; a row of no
            sequence sees no key.
        cu_seqlens_k: The same of k and v; given together with cu_seqlens_q.
        max_seqlen_q: At least the longest sequence of q; required with cu_seqlens, which is never
            read back from the device.
        max_seqlen_k: At least the longest sequence of k.
        seqused_k: [B], int32 or int64, on q's device: behind the last key of each sequence, as of a
            cache with room for more, or of padding to the right; None for Sk. Never read back from
            the device; outside of 0 … Sk it is clamped. Not with cu_seqlens: packed sequences say
            by those where they end.
        leftpad_k: The same of its first key, as of padding to the left; None for 0. Clamped to
            0 … seqused_k. What lies outside, NaN too, changes nothing, and its gradients are 0.
        return_lse: Also return the log-sum-exp of each row.

    Returns:
        o, [B, Sq, Hq, Dv] (packed [Tq, Hq, Dv]), q's dtype, contiguous; with `return_lse` (o, lse),
        lse [B, Hq, Sq] (packed [Hq, Tq]), natural logarithm, float32 (float64 for float64). Both
        are differentiable, also in sinks. A row with no key has o = 0 and lse = its sink, −inf
        without.

    Raises:
        ValueError: A shape, a device or a number is not as above.
        TypeError: A dtype or an argument's Python type is not as above.
        NotImplementedError: A tensor is sparse or nested.

    Backends:
        The kernel (sm_90a) takes bfloat16 and float16, D and Dv of 8, 16 … 256, scale > 0 and all
        that the arguments offer; torch computes the rest. It computes other widths as the next one
        of 64, 80, 96, 128, 192 and 256, and D from 136 to 192 beside Dv up to 128 as 192 and 128
        (with a softcap, D and Dv as one of 64, 96, 128, 192 and 256, and their gradients as one of
        64, 128 and 256). q, k and v are read where they lie if the last stride is 1 and address and
        other strides are multiples of 16 bytes, none of them 0, and, with seqused_k or leftpad_k,
        if the stride of k's and v's batches is a multiple of that of rows; otherwise they are
        copied, and `explain` says so; torch's fused attention on a GPU gets them, and the gradient
        of o, alike. For the backward of a call that the kernel takes, its tensors, o and lse are
        saved, never the weights; first order only. Kernels compute it for all that they compute
        forward, dk and dv also where only dq is needed. For a while it takes 4 bytes for each
        element of q, whose heads count as 64, 128 or 256 wide, and 12 for each row of a head; on
        Hopper, of heads above 128, the 8 of a row's lse and delta alone. Torch computes the other
        gradients, with the same bits on every run. But on a GPU, for D of q and v alike and no
        window, softcap, sinks, packing, padding and gradient of lse, it is torch's FlashAttention,
        whose dq is the same only under torch.use_deterministic_algorithms(True). On other GPUs
        since Ampere that they are built for, and under `backend(…, kernel="generic")`, generic
        kernels take the same calls. Widths are 64, 96, 128 and 256 there, and 64, 128 and 256 of
        gradients.

    Numerics:
        Scores and softmax in float32 (float64 for float64), o rounded once to q's dtype; the kernel
        rounds the softmax's weights to q's dtype before they meet v, and for Dv up to 128 and D up
        to 128, or 192 without a softcap, divides o by the sum of the rounded ones (the generic one
        does not); lse takes them unrounded. Exponents may be above 0, but a row that overflows, or
        has a logit from 1e7 on, is computed again with its maximum, whatever the rows beside it:
        right for every logit and every q·k that float32 holds. Under autocast q, k and v take its
        dtype; the backward computes in that of the forward, also where it is called inside
        autocast. The kernel's o and lse are the same bits on every run, and so are its gradients; o
        may differ in its last bits where lse is returned too. For gradients the weights, and ds,
        are rounded to q's dtype; dq is added up in integers (on Hopper where rows see more than 384
        keys in the mean, of heads above 64 columns 640, fewer where heads share keys, and with a
        softcap; else, and above 128 columns, a block has all of a row's sum), in units of 2⁻²⁹ of
        what bounds its row, max |v| max |k| |do| of a head and, of packed ones, a sequence: v with
        rows 1000 times larger than the others may cost dq more than those roundings, from 4096 keys
        on. A NaN or an infinity in v spoils the rows that see it, and, as in torch's own attention,
        may spoil rows that the mask keeps from it: their weight for it is 0, and 0 · NaN is NaN.
        (On a CPU one in k, too, where causal rows are fewer than keys.) So may one in q, do or k
        spoil dk and dv of keys that the mask keeps from it; dq of other rows it never does. By the
        kernels, what a packed sequence holds changes no bit of another's (how many keys there are
        in the mean may); torch's ops on a GPU compute all of them under one mask.

    Source:
        csrc/kernels/attention: attention_forward.cuh and attention_backward.cuh are the kernels,
        attention_reference.cpp and attention_gradients.cpp what torch computes.

    Example:
        >>> import torch, thunderkittens
        >>> q, k = torch.randn(2, 3, 8, 64), torch.randn(2, 5, 2, 64)
        >>> thunderkittens.attention(q, k, k, causal=True).shape
        torch.Size([2, 3, 8, 64])

        Of two sequences, with one key to the left and two to the right that do not exist:

        >>> first, end = torch.tensor([1, 0]), torch.tensor([5, 3])
        >>> o = thunderkittens.attention(q, k, k, causal=True, seqused_k=end, leftpad_k=first)
        >>> alone = thunderkittens.attention(q[1:], k[1:, :3], k[1:, :3], causal=True)
        >>> torch.allclose(o[1:], alone, atol=1e-5)
        True
    """
    if _foreign:
        refuse_keywords("attention", _foreign)
    packed = cu_seqlens_q is not None or cu_seqlens_k is not None
    packed = packed or max_seqlen_q is not None or max_seqlen_k is not None
    placed = packed or seqused_k is not None or leftpad_k is not None
    try:
        if window is None and sinks is None and softcap == 0.0 and not placed:
            plain = _attention_forward_plain if return_lse else _attention_plain
            return plain(q, k, v, causal, scale)
        left, right = (None, None) if window is None else sides_of("attention", window)
        if packed:
            refuse_bool("attention", "max_seqlen_q", max_seqlen_q)
            refuse_bool("attention", "max_seqlen_k", max_seqlen_k)
        op = _attention_forward if return_lse else _attention
        return op(
            q,
            k,
            v,
            causal,
            scale,
            window_left=left,
            window_right=right,
            softcap=softcap,
            sinks=sinks,
            cu_seqlens_q=cu_seqlens_q,
            cu_seqlens_k=cu_seqlens_k,
            max_seqlen_q=max_seqlen_q,
            max_seqlen_k=max_seqlen_k,
            seqused_k=seqused_k,
            leftpad_k=leftpad_k,
        )
    except RuntimeError as error:
        refuse_types("attention", error)
        raise


def note_of_layout(q: Tensor, k: Tensor, **options: object) -> str | None:
    """What `explain` says of a call whose tensors look like torch's [B, H, S, D]; else None.

    One row of q alone is that of decoding.
    """
    if q.dim() != 4 or q.shape[1] == 1 or q.shape[2] <= q.shape[1] or k.shape[2] <= k.shape[1]:
        return None
    return (
        f"q has {q.shape[2]} heads of {q.shape[1]} rows each: is it [B, H, S, D]? Heads come after "
        "rows here; thunderkittens.scaled_dot_product_attention takes them before"
    )
