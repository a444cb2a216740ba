"""New keys and values of a cache."""

from collections.abc import Callable
from typing import NoReturn

import torch
from torch import Tensor

from thunderkittens.ops._mistakes import refuse_keywords, refuse_types

_append: Callable[..., None] = torch.ops.thunderkittens.cache_append.default
_append_traced: Callable[..., None] = torch.ops.thunderkittens.cache_append.traced


def cache_append(
    k: Tensor,
    v: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    seqlens: Tensor,
    page_table: Tensor | None = None,
    *,
    cos: Tensor | None = None,
    sin: Tensor | None = None,
    k_scale: Tensor | None = None,
    v_scale: Tensor | None = None,
    **_foreign: NoReturn,
) -> None:
    """Writes the keys and values of new tokens into a cache, keys turned first if asked.

    k_cache[b, p] = k[b, i] and v_cache[b, p] = v[b, i] at position p = seqlens[b] − N + i:
    `seqlens` counts the new tokens too, as that of `attention_decode` does, which comes next.

    Args:
        k: [B, N, Hk, D], float32, float16, bfloat16 or float64.
        v: The same.
        k_cache: [B, S, Hk, D], k's dtype or float8_e4m3fn, updated in place. With `page_table`
            pages, [P, page, Hk, D].
        v_cache: The same.
        seqlens: [B], int32 or int64, on k's device: the keys of each sequence, the new ones among
            them.
        page_table: [B, M], int32 or int64, on k's device: position p of sequence b is row p % page
            of page page_table[b, p // page]. Sequences must not share the pages of their new
            tokens. None for a cache without pages.
        cos: [T, R/2], R ≤ D, k's dtype or float32: as of `rotary`, row p for position p, pairs i
            and i + R/2. [T, D] is taken as two equal halves. None: k is not turned.
        sin: The same of the sines, cos's dtype.
        k_scale: [Hk], float32, for caches of float8_e4m3fn: of each head, what keys are divided by
            before they are rounded to the cache's dtype; beyond 448 they become 448. None for 1.
        v_scale: The same of values.

    Returns:
        None: the caches are what is written.

    Raises:
        ValueError: A shape or a device is not as above.
        TypeError: A dtype or an argument's Python type is not as above.
        NotImplementedError: An argument requires a gradient, or is sparse or nested.
        RuntimeError: A cache overlaps with itself, the other, k or v.

    Lengths and pages:
        What the host cannot see is never trusted and never read back: a token whose position is
        not one of the cache's (0 … S − 1, paged M · page − 1), or whose page is none of 0 … P − 1,
        is not written. A position past the table of cosines takes its last row.

    Backends:
        The kernel, one launch, takes bfloat16, float16 and float32, any D, and any strides whose
        last is 1 (of k and v, otherwise there is a copy); torch computes the rest. It moves 16
        bytes at a time where addresses, strides, D and R/2 are multiples of 16 bytes, else single
        elements.

        Under `torch.compile` a cache that is a view, and begins inside of its tensor's memory, as
        one layer's of all layers', is written by torch's ops: of views that other ops write,
        Inductor loses where they begin (pytorch/pytorch#198068). Of a view made in the compiled
        function it may copy the whole; caches that are tensors of their own are the kernel's.

    Numerics:
        Turned in float32 (float64 for float64), rounded once; what is not turned keeps its bits. In
        a cache of float8_e4m3fn stands what one of k's dtype would hold, divided by the scale in
        float32, and rounded.

    Source:
        csrc/kernels/attention_decode/cache_append.cuh.

    Example:
        >>> import torch, thunderkittens
        >>> k_cache, v_cache = torch.zeros(2, 3, 8, 1, 2)
        >>> k, v = torch.ones(2, 3, 1, 1, 2)
        >>> seqlens = torch.tensor([1, 8, 9])
        >>> thunderkittens.cache_append(k, v, k_cache, v_cache, seqlens)
        >>> k_cache[..., 0, 0].nonzero().tolist()
        [[0, 0], [1, 7]]
    """
    if _foreign:
        refuse_keywords("cache_append", _foreign)
    try:
        append = _append_traced if torch.compiler.is_compiling() else _append
        append(k, v, k_cache, v_cache, seqlens, page_table, cos, sin, k_scale, v_scale)
    except RuntimeError as error:
        refuse_types("cache_append", error)
        raise
