"""Calls of adamw, for the tests of all ops: it writes parameters, so none is recorded."""

import torch

import thunderkittens

CALLS = ()
NO_BACKWARD = ("adamw",)
X, P, M, V = torch.ones(4, 2, 8)
WRONG_TYPES = {
    "adamw: param must be a tensor, got list": lambda: thunderkittens.adamw(X, [P], M, V, step=1),
    "adamw: step must be an integer, got float 1.0": lambda: thunderkittens.adamw(
        X, P, M, V, step=1.0
    ),
    "adamw: step must be an integer, got True": lambda: thunderkittens.adamw(X, P, M, V, step=True),
    "adamw: max_norm must be a number or None, got str '1'": lambda: thunderkittens.adamw(
        X, P, M, V, step=1, max_norm="1"
    ),
}
