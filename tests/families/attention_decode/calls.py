"""Calls of attention_decode and cache_append, for the tests of all ops."""

import torch

import thunderkittens

CALLS = ()
NO_BACKWARD = ("attention_decode", "cache_append")
RECORDED = ()
X, CACHE, ENDS = torch.ones(1, 1, 2, 8), torch.ones(1, 4, 1, 8), torch.ones(1, dtype=torch.int32)
WRONG_TYPES = {
    "attention_decode: seqlens must be a tensor, got list [3]": (
        lambda: thunderkittens.attention_decode(X, CACHE, CACHE, seqlens=[3])
    ),
    "attention_decode: softcap must be a number, got str 'yes'": (
        lambda: thunderkittens.attention_decode(X, CACHE, CACHE, seqlens=ENDS, softcap="yes")
    ),
    "cache_append: k_cache must be a tensor, got None": (
        lambda: thunderkittens.cache_append(X, X, None, CACHE, ENDS)
    ),
}
