"""Calls of cross_entropy's ops, for the tests of all ops."""

import torch
from torch import Tensor

import thunderkittens
from tests.tools.calls import Call, Recorded


def _targets(like: Tensor) -> Tensor:
    return torch.arange(12, device=like.device) % 40


CALLS = (
    *(
        Call(
            "cross_entropy",
            ((12, 40),),
            lambda x, reduction=reduction: thunderkittens.cross_entropy(
                x, _targets(x), reduction=reduction, label_smoothing=0.1, z_loss=0.01
            ),
            reduction,
        )
        for reduction in ("mean", "none")
    ),
    *(
        Call(
            "linear_cross_entropy",
            ((12, 96), (40, 96), (40,)),
            lambda x, w, b, reduction=reduction: thunderkittens.linear_cross_entropy(
                x, w, _targets(x), bias=b, reduction=reduction
            ),
            reduction,
        )
        for reduction in ("mean", "none")
    ),
)
FEW = torch.tensor([2, -100, 7])
RECORDED = (
    Recorded(
        "cross_entropy",
        ((3, 8),),
        lambda x: thunderkittens.cross_entropy(x, FEW),
        below="cross_entropy_forward",
    ),
    Recorded(
        "linear_cross_entropy",
        ((3, 4), (8, 4), (8,)),
        lambda x, w, b: thunderkittens.linear_cross_entropy(x, w, FEW, bias=b),
        below="linear_cross_entropy_forward",
        refuses="cross_entropy",
    ),
    Recorded(
        "linear_cross_entropy",
        ((3, 4), (8, 4), (8,)),
        lambda x, w, b: thunderkittens.linear_cross_entropy(x, w, FEW, bias=b, reduction="none"),
        "of rows",
        saved_inputs=(0, 1),  # the bias for its shape, which is no promise
    ),
)
SHORT_FORMS = {
    torch.ops.thunderkittens.cross_entropy: lambda x: (x(3, 8), torch.tensor([5, -100, 7])),
}
X, TARGETS = torch.ones(2, 8), torch.ones(2, dtype=torch.int64)
WRONG_TYPES = {
    "cross_entropy: ignore_index must be an integer, got None": (
        lambda: thunderkittens.cross_entropy(X, TARGETS, ignore_index=None)
    ),
    "cross_entropy: ignore_index must be an integer of 64 bits, got int 1180591620717411303424": (
        lambda: thunderkittens.cross_entropy(X, TARGETS, ignore_index=2**70)
    ),
    'cross_entropy: reduction must be "mean", "sum" or "none", got None': (
        lambda: thunderkittens.cross_entropy(X, TARGETS, reduction=None)
    ),
    "cross_entropy: targets must be a tensor, got list [1, 2]": (
        lambda: thunderkittens.cross_entropy(X, [1, 2], inplace=True)
    ),
    "linear_cross_entropy: weight must be a tensor, got tuple (4, 8)": (
        lambda: thunderkittens.linear_cross_entropy(X, (4, 8), TARGETS)
    ),
}
