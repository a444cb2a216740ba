"""Attention forward: compute-bound, so every figure is FLOPs / time, beside the matrix product's.

FLOPs: 4 · batch · heads · seq² · head_dim, half of it when causal. Each point has 16384 tokens and
heads · head_dim = 2048.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial

import torch

from benchmarks import harness
from benchmarks import peers_attention as peers
from benchmarks.harness import GENERIC, OURS, Call, Case, Expected, Headline, HostCalls, Inputs
from thunderkittens.testing import tolerance

TOKENS, MODEL_WIDTH = 16384, 2048
SEQUENCES = (512, 1024, 2048, 4096, 8192, 16384)
POINTS = [(d, causal, seq) for d in (64, 128) for causal in (False, True) for seq in SEQUENCES]
QUICK = [(128, False, 4096), (128, True, 4096)]
HEADLINES = (
    Headline(
        "forward: head dimension 128, causal, 4096 keys",
        "attention",
        "head_dim 128, causal, seq 4096",
    ),
)


def make_inputs(head_dim: int, seq: int, seed: int) -> Inputs:
    """q, k, v [batch, seq, heads, head_dim] in bf16, normally distributed."""
    random = torch.Generator(harness.DEVICE).manual_seed(seed)
    shape = (TOKENS // seq, seq, MODEL_WIDTH // head_dim, head_dim)
    return {
        n: torch.randn(*shape, device=harness.DEVICE, generator=random).bfloat16() for n in "qkv"
    }


def expected(i: Inputs, causal: bool) -> Expected:
    """o in float64 and its bound, one head at a time: a head's scores alone are seq² numbers."""
    o = torch.empty(i["v"].shape, dtype=torch.float64, device=harness.DEVICE)
    bound = torch.empty_like(o)
    batch, seq, heads, head_dim = i["q"].shape
    hidden = torch.ones(seq, seq, dtype=torch.bool, device=harness.DEVICE).triu(1)
    for b, h in itertools.product(range(batch), range(heads)):
        q, k, v = (i[name][b, :, h].double() for name in "qkv")
        scores = q @ k.t() * head_dim**-0.5
        weights = (scores.masked_fill(hidden, -torch.inf) if causal else scores).softmax(-1)
        largest = float((q.abs() @ k.abs().t()).max()) * head_dim**-0.5
        o[b, :, h] = weights @ v
        bound[b, :, h] = tolerance.attention(
            o[b, :, h], weights @ v.abs(), i["q"].dtype, seq, largest
        )
    return [(o, bound)]


def ours(i: Inputs, causal: bool) -> Call:
    """`attention` without gradients."""
    import thunderkittens

    return lambda: (thunderkittens.attention(i["q"], i["k"], i["v"], causal=causal),)


def generic(i: Inputs, causal: bool) -> Call:
    """The same by the generic kernel, which has FlashAttention-2's instructions."""
    import thunderkittens

    return thunderkittens.backend("auto", kernel="generic")(ours(i, causal))


def cases(quick: bool = False) -> Iterator[Case]:
    """Forward at head_dim 64 and 128, full and causal; `quick` takes two points."""
    for head_dim, causal, seq in QUICK if quick else POINTS:
        flops = 4 * TOKENS * seq * MODEL_WIDTH // (2 if causal else 1)
        yield Case(
            op="attention",
            shape=f"head_dim {head_dim}, {'causal' if causal else 'full'}, seq {seq}",
            dtype="bf16",
            work=flops,
            unit="TFLOP/s",
            inputs=partial(make_inputs, head_dim, seq),
            expected=partial(expected, causal=causal),
            contenders={
                OURS: partial(ours, causal=causal),
                GENERIC: partial(generic, causal=causal),
                "cuDNN": partial(peers.sdpa, backend="CUDNN_ATTENTION", causal=causal),
                "FlashAttention-2": partial(peers.sdpa, backend="FLASH_ATTENTION", causal=causal),
            },
            resident=8 * TOKENS * MODEL_WIDTH,
        )


def host_calls(gradient: bool) -> HostCalls:
    """For bench_host: op -> contender -> call."""
    import thunderkittens

    q, k, v = harness.host_tensors(3, (1, 128, 2, 64), gradient)
    qt, kt, vt = (t.detach().transpose(1, 2).requires_grad_(gradient) for t in (q, k, v))
    (qkv,) = harness.host_tensors(1, (1, 128, 3, 2, 64), gradient)
    sdpa = torch.nn.functional.scaled_dot_product_attention
    return {
        "attention": {
            OURS: lambda: thunderkittens.attention(q, k, v, causal=True),
            "torch": lambda: sdpa(qt, kt, vt, is_causal=True),
        },
        "attention_qkvpacked": {
            OURS: lambda: thunderkittens.attention_qkvpacked(qkv, causal=True),
            "torch": lambda: sdpa(*qkv.transpose(1, 3).unbind(2), is_causal=True),
        },
    }
