"""Attention of new tokens over a cache of keys and values."""

from collections.abc import Callable
from typing import NoReturn

import torch
from torch import Tensor

from thunderkittens.ops._mistakes import refuse_keywords, refuse_types
from thunderkittens.ops._window import sides_of

_decode: Callable[..., Tensor] = torch.ops.thunderkittens.attention_decode.default
_decode_out: Callable[..., None] = torch.ops.thunderkittens.attention_decode_out.default


def attention_decode(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    *,
    seqlens: Tensor,
    page_table: Tensor | None = None,
    scale: float | None = None,
    window: tuple[int | None, int | None] | None = None,
    softcap: float = 0.0,
    sinks: Tensor | None = None,
    k_scale: Tensor | None = None,
    v_scale: Tensor | None = None,
    out: Tensor | None = None,
    **_foreign: NoReturn,
) -> Tensor:
    """Softmax attention of a few new tokens over a cache whose lengths are on the device.

    Token i of sequence b stands at position seqlens[b] − Sq + i of it, and sees the keys up to its
    own: o = Σ p v, p = softmax(scale · q·k). What `attention` computes with `causal`, sequence by
    sequence. Its own key is in the cache already: `cache_append` with the same `seqlens` puts it
    there.

    Args:
        q: [B, Sq, Hq, D], float32, float16, bfloat16 or float64: the new tokens, 1 … 16 for the
            kernel.
        k_cache: [B, S, Hk, D], q's dtype or float8_e4m3fn, Hq a multiple of Hk: query head h reads
            key head h // (Hq / Hk). With `page_table` pages, [P, page, Hk, D].
        v_cache: The same.
        seqlens: [B], int32 or int64, on q's device: the keys of each sequence, the new ones among
            them.
        page_table: [B, M], int32 or int64, on q's device: key j of sequence b is row j % page of
            page page_table[b, j // page]. None for a cache without pages.
        scale: None for 1 / √D.
        window: (left, right), as of `attention`: the keys from a token's own − left. The right side
            says nothing, since a token sees none behind its own. None for no limit.
        softcap: Where above 0, scores become softcap · tanh(score / softcap).
        sinks: [Hq], q's dtype or float32: a logit of each head without a value. None for none.
        k_scale: [Hk], float32, for caches of float8_e4m3fn: of each head, what its keys are
            multiplied by. None for 1.
        v_scale: The same of values.
        out: As q: written and returned, in place of a new tensor. It shares no memory with q or
            the caches.

    Returns:
        o, [B, Sq, Hq, D], q's dtype, contiguous; or `out`. A token without a key gives 0.

    Raises:
        ValueError: A shape, a device or a number is not as above.
        TypeError: A dtype or an argument's Python type is not as above.
        NotImplementedError: An argument requires a gradient, or is sparse or nested.
        RuntimeError: `out` overlaps with itself or what is read.

    Lengths and pages:
        What the host cannot see is never trusted and never read back: a length is taken as one of 0
        … S (paged: M · page), an entry of the table as one of 0 … P − 1. Of the table, what lies
        behind a sequence's last key or before its window is not read, nor are such keys and values:
        they may be anything, NaN too. So a CUDA graph serves all lengths.

    Backends:
        The kernel takes bfloat16 and float16, D 8, 16 … 256 (multiples of 16 over caches of
        float8_e4m3fn), pages of 16 keys and more, and caches of any strides whose last is 1 and
        whose rows start at multiples of 16 bytes; torch computes the rest. One launch: the device
        cuts the contexts into equal parts, by their lengths, and who is last to write a part of
        what is split adds it up.

    Numerics:
        Scores, softmax and sums in float32 (float64 for float64); the weights are rounded to q's
        dtype before their product with v. With caches of float8_e4m3fn the kernel multiplies in
        float16, which holds them exactly: so the weights are rounded to that, to steps of 2^-24 of
        the largest at least, and elements of a bfloat16 q below 2^-14 of their row's largest to
        2^-25 of it; scales multiply scores and results. The same bits on every run; but where a
        sequence is cut depends on the lengths of the others, and so do its last bits.

    Source:
        csrc/kernels/attention_decode. Keys and values are read once for each 16 query rows (Sq · Hq
        / Hk) of a key head.

    Example:
        >>> import torch, thunderkittens
        >>> q, cache = torch.randn(2, 1, 8, 64), torch.randn(2, 100, 2, 64)
        >>> seqlens = torch.tensor([7, 100], dtype=torch.int32)
        >>> thunderkittens.attention_decode(q, cache, cache, seqlens=seqlens).shape
        torch.Size([2, 1, 8, 64])
    """
    if _foreign:
        refuse_keywords("attention_decode", _foreign)
    left = None if window is None else sides_of("attention_decode", window)[0]
    options = (page_table, scale, left, softcap, sinks, k_scale, v_scale)
    try:
        if out is None or torch.compiler.is_compiling():
            o = _decode(q, k_cache, v_cache, seqlens, *options)
            if out is None:
                return o
            # Inductor loses where a view that an op writes begins, if sizes are dynamic
            # (pytorch/pytorch#198068). It knows what copy_ writes.
            return out.copy_(o)
        _decode_out(q, k_cache, v_cache, seqlens, out, *options)
    except RuntimeError as error:
        refuse_types("attention_decode", error)
        raise
    return out
