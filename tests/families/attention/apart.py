"""Packed sequences of attention are apart, by the backend in force."""

from collections.abc import Callable

import torch
from torch import Tensor

import thunderkittens
from tests.tools import packed_apart

# Of a token, of none, and of one block or several; none of which begins where a block does.
ENDS = (0, 70, 71, 71, 201, 400)
SPOILED = (0, 3, 4)
INPUTS = ("q", "k", "v", "do", "dlse")


def packing(device: str | torch.device) -> dict:
    """What a call is told of the sequences."""
    ends = torch.tensor(ENDS, dtype=torch.int32, device=device)
    return {f"cu_seqlens_{x}": ends for x in "qk"} | {f"max_seqlen_{x}": 199 for x in "qk"}


def run(given: packed_apart.Tensors, causal: bool) -> dict[str, Tensor]:
    """o, lse and the gradients, [T, …]."""
    q, k, v = leaves = [given[name].detach().requires_grad_() for name in "qkv"]
    options = {"causal": causal, "return_lse": True, **packing(q.device)}
    o, lse = thunderkittens.attention(q, k, v, **options)
    gradients = torch.autograd.grad((o, lse), leaves, (given["do"], given["dlse"].T))
    return dict(zip(("o", "lse", "dq", "dk", "dv"), (o, lse.T, *gradients), strict=True))


def check(
    width: int,
    dtype: torch.dtype,
    which: int,
    change: Callable[[Tensor], Tensor | float],
    only: tuple = INPUTS,
    device: str = "cpu",
) -> None:
    """With `change` of `only` these inputs in one sequence the others have the same bits."""

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, device=device)

    inputs = {name: normal(ENDS[-1], 2, width).to(dtype) for name in INPUTS[:4]}
    inputs["dlse"] = normal(ENDS[-1], 2)
    some = {name: inputs[name] for name in only}
    changed = {**inputs, **packed_apart.spoil(some, ENDS, which, change)}
    results = ("dq", "dk") if only != INPUTS else ("o", "lse", "dq", "dk", "dv")

    def judged(given) -> dict[str, Tensor]:
        found = run(given, causal=which == 3)
        return {name: found[name] for name in results}

    packed_apart.check_apart(judged, inputs, changed, ENDS, which)
