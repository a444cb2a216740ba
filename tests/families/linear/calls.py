"""Calls of linear, for the tests of all ops."""

import torch

import thunderkittens

CALLS = ()
NO_BACKWARD = ("linear",)  # of ours: its gradients are those of torch's ops
RECORDED = ()
X, WEIGHT = torch.ones(2, 8), torch.ones(4, 8)
WRONG_TYPES = {
    "linear: weight must be a tensor, got None": lambda: thunderkittens.linear(X, None),
    "linear: residual must be a tensor or None, got int 3": (
        lambda: thunderkittens.linear(X, WEIGHT, residual=3)
    ),
}
