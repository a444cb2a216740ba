"""Attention backward: compute-bound, so every figure is FLOPs / time, beside the matrix product's.

FLOPs: 10 · batch · heads · seq² · head_dim, half of it when causal. Each point has 16384 tokens and
heads · head_dim = 2048; all of dq, dk and dv. The points of `attention`, and head_dim 256.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial

import torch

from benchmarks import bench_attention as forward
from benchmarks import harness
from benchmarks import peers_attention as peers
from benchmarks.harness import GENERIC, OURS, Call, Case, Expected, Headline, Inputs
from thunderkittens.testing import tolerance

WIDE = [(256, causal, seq) for causal in (False, True) for seq in (1024, 4096, 16384)]
HEADLINES = (
    Headline("backward: the same", "attention_backward", "head_dim 128, causal, seq 4096"),
)


def points(quick: bool) -> list[tuple[int, bool, int]]:
    """(head_dim, causal, seq)."""
    return forward.QUICK if quick else [*forward.POINTS, *WIDE]


def make_inputs(head_dim: int, seq: int, seed: int) -> Inputs:
    """q, k, v and do [batch, seq, heads, head_dim] in bf16, normally distributed."""
    inputs = forward.make_inputs(head_dim, seq, seed)
    inputs["do"] = forward.make_inputs(head_dim, seq, seed + 1)["q"]
    return inputs


def expected(i: Inputs, causal: bool) -> Expected:
    """dq, dk and dv in float64 and their bounds, one head at a time.

    What rounds to 16 bits on the way: o (in Σ do ∘ o), the weights and ds; and the result. So two
    units each of the sums over absolute values.
    """
    want = [torch.empty_like(i[name], dtype=torch.float64) for name in "qkv"]
    bounds = [torch.empty_like(t) for t in want]
    batch, seq, heads, head_dim = i["q"].shape
    scale, unit = head_dim**-0.5, tolerance.unit(i["q"].dtype)
    slack = 6 * unit + tolerance.accumulation(seq)
    hidden = torch.ones(seq, seq, dtype=torch.bool, device=harness.DEVICE).triu(1)
    for b, h in itertools.product(range(batch), range(heads)):
        q, k, v, do = (i[name][b, :, h].double() for name in ("q", "k", "v", "do"))
        scores = q @ k.t() * scale
        weights = (scores.masked_fill(hidden, -torch.inf) if causal else scores).softmax(-1)
        delta = (do * (weights @ v)).sum(-1, keepdim=True)
        sizes = do.abs() @ v.abs().t() + (do.abs() * (weights @ v.abs())).sum(-1, keepdim=True)
        ds = weights * (do @ v.t() - delta) * scale
        ds_sizes = weights * sizes * scale
        sums = ((ds @ k, ds_sizes @ k.abs()), (ds.t() @ q, ds_sizes.t() @ q.abs()))
        sums += ((weights.t() @ do, weights.t() @ do.abs()),)
        for gradient, bound, (of_head, size) in zip(want, bounds, sums, strict=True):
            gradient[b, :, h] = of_head
            bound[b, :, h] = slack * size + 2 * unit * of_head.abs()
    return list(zip(want, bounds, strict=True))


def gradients(o: torch.Tensor, inputs: tuple[torch.Tensor, ...], do: torch.Tensor) -> Call:
    """The backward alone, of an output that was computed before."""
    return lambda: torch.autograd.grad(o, inputs, do, retain_graph=True)


def ours(i: Inputs, causal: bool) -> Call:
    """`attention`'s backward."""
    import thunderkittens

    q, k, v = (i[name].detach().requires_grad_() for name in "qkv")
    return gradients(thunderkittens.attention(q, k, v, causal=causal), (q, k, v), i["do"])


def generic(i: Inputs, causal: bool) -> Call:
    """The same by the generic kernels: a backward runs on the backend of its forward."""
    import thunderkittens

    with thunderkittens.backend("auto", kernel="generic"):
        return ours(i, causal)


def sdpa(i: Inputs, backend: str, causal: bool) -> Call:
    """That of `scaled_dot_product_attention`, held to one of its backends."""
    leaves = {name: i[name].detach().requires_grad_() for name in "qkv"}
    (o,) = peers.sdpa(leaves, backend, causal)()
    return gradients(o, tuple(leaves.values()), i["do"])


def cases(quick: bool = False) -> Iterator[Case]:
    """Backward at head_dim 64, 128 and 256, full and causal; `quick` takes two points."""
    for head_dim, causal, seq in points(quick):
        flops = 10 * forward.TOKENS * seq * forward.MODEL_WIDTH // (2 if causal else 1)
        yield Case(
            op="attention_backward",
            shape=f"head_dim {head_dim}, {'causal' if causal else 'full'}, seq {seq}",
            dtype="bf16",
            work=flops,
            unit="TFLOP/s",
            inputs=partial(make_inputs, head_dim, seq),
            expected=partial(expected, causal=causal),
            contenders={
                OURS: partial(ours, causal=causal),
                GENERIC: partial(generic, causal=causal),
                "cuDNN": partial(sdpa, backend="CUDNN_ATTENTION", causal=causal),
                "FlashAttention-2": partial(sdpa, backend="FLASH_ATTENTION", causal=causal),
            },
            resident=18 * forward.TOKENS * forward.MODEL_WIDTH,
        )
