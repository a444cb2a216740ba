"""Others' attention of one token over a cache that it fills, as contenders."""

from __future__ import annotations

import contextlib
import importlib

import torch
import torch.nn.attention

from benchmarks.harness import Call, Inputs, MissingPeer


def sdpa(i: Inputs, backend: str = "") -> Call:
    """`scaled_dot_product_attention`, held to one of its backends or as it chooses; no pages.

    Caches of e4m3 it takes converted: each call writes all keys and values in q's dtype first.
    """
    if "page_table" in i:
        raise MissingPeer("scaled_dot_product_attention has no pages")
    if "k_scale" in i and backend:
        raise MissingPeer("it has no caches of e4m3")
    q = i["q"].transpose(1, 2)

    def cache(name: str) -> torch.Tensor:
        held, scales = i[name], i.get(f"{name}_scale")
        if scales is not None:
            held = held.to(i["q"].dtype) * scales.to(i["q"].dtype)[:, None]
        return held.transpose(1, 2)

    def held() -> contextlib.AbstractContextManager[object]:
        if not backend:
            return contextlib.nullcontext()
        return torch.nn.attention.sdpa_kernel(getattr(torch.nn.attention.SDPBackend, backend))

    def call() -> tuple[torch.Tensor]:
        with held():
            o = torch.nn.functional.scaled_dot_product_attention(
                q, cache("k"), cache("v"), enable_gqa=True
            )
        return (o.transpose(1, 2),)

    try:
        call()
    except RuntimeError as error:
        raise MissingPeer(str(error).splitlines()[0]) from error
    return call


def flash_attention(i: Inputs) -> Call:
    """`flash_attn_with_kvcache`, of the package flash_attn."""
    try:
        with_cache = importlib.import_module("flash_attn").flash_attn_with_kvcache
    except (ImportError, AttributeError) as error:
        raise MissingPeer(f"flash_attn cannot be imported: {error}") from error
    if "k_scale" in i:
        raise MissingPeer("flash_attn has no caches of e4m3")
    given = {"cache_seqlens": i["seqlens"], "block_table": i.get("page_table")}
    if "page_table" in i and i["k"].shape[1] % 256 != 0:
        raise MissingPeer("flash_attn takes pages of 256 keys")
    return lambda: (with_cache(i["q"], i["k"], i["v"], causal=True, **given),)
