"""Torch's AdamW, as contenders."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.optim.adamw import adamw

from benchmarks.harness import Call, Inputs

LR, WEIGHT_DECAY, BETAS, EPS, MAX_NORM = 1e-3, 0.1, (0.9, 0.999), 1e-8, 1.0
Shapes = tuple[tuple[int, ...], ...]


class Lists:
    """The tensors of a model, copies that a contender may write.

    Attributes:
        flat_weights: All float32 weights in a row.
        weights: Of it, each parameter's.
        params: The same, or where gradients are bfloat16 their roundings.
        grads, exp_avgs, exp_avg_sqs, steps: Of each parameter.
    """

    def __init__(self, i: Inputs, shapes: Shapes, number: int) -> None:
        self.flat_weights = i["weight"].clone()
        self.weights = _parts(self.flat_weights, shapes)
        self.grads = _parts(i["grad"].clone(), shapes)
        self.exp_avgs = _parts(i["exp_avg"].clone(), shapes)
        self.exp_avg_sqs = _parts(i["exp_avg_sq"].clone(), shapes)
        self.params = self.weights
        if i["grad"].dtype != torch.float32:
            self.params = [w.to(i["grad"].dtype) for w in self.weights]
        self.steps = [i["grad"].new_full((), number - 1, dtype=torch.float32) for _ in shapes]


def _parts(flat: Tensor, shapes: Shapes) -> list[Tensor]:
    sizes = [torch.Size(shape).numel() for shape in shapes]
    return [t.view(shape) for t, shape in zip(flat.split(sizes), shapes, strict=True)]


def of(shapes: Shapes, clips: bool, number: int) -> dict[str, Callable[[Inputs], Call]]:
    """The peers, by name."""
    return {
        "torch fused": partial(_torch, shapes=shapes, clips=clips, number=number, fused=True),
        "torch foreach": partial(_torch, shapes=shapes, clips=clips, number=number, fused=False),
    }


def _torch(i: Inputs, shapes: Shapes, clips: bool, number: int, fused: bool) -> Call:
    lists = Lists(i, shapes, number)
    mixed = lists.params is not lists.weights
    grads = [g.float() for g in lists.grads] if mixed else lists.grads
    holders = [torch.nn.Parameter(w, requires_grad=False) for w in lists.weights]
    for holder, grad in zip(holders, lists.grads, strict=True):
        holder.grad = grad if not mixed else None
    # Of the 16-bit gradients, before they are cast: as many bytes as in ours.
    clipped = [torch.nn.Parameter(p, requires_grad=False) for p in lists.params]
    for holder, grad in zip(clipped, lists.grads, strict=True):
        holder.grad = grad
    states = (lists.exp_avgs, lists.exp_avg_sqs, [], lists.steps)
    options = {"amsgrad": False, "lr": LR, "weight_decay": WEIGHT_DECAY, "eps": EPS}
    options |= {"beta1": BETAS[0], "beta2": BETAS[1], "maximize": False}
    by_foreach = partial(
        adamw,
        foreach=True,
        capturable=lists.flat_weights.is_cuda,
        fused=False,
        **options,
    )

    @torch.no_grad()
    def run() -> tuple[Tensor]:
        if clips:
            torch.nn.utils.clip_grad_norm_(clipped, MAX_NORM, foreach=True)
        if mixed:
            torch._foreach_copy_(grads, lists.grads)
        if fused:
            torch._foreach_add_(lists.steps, 1)
            torch._fused_adamw_(lists.weights, grads, *states, **options)
        else:
            by_foreach(lists.weights, grads, *states)
        if mixed:
            torch._foreach_copy_(lists.params, lists.weights)
        return (lists.flat_weights,)

    return run
