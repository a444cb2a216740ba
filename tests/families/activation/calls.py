"""Calls of the activations, for the tests of all ops."""

import torch

import thunderkittens
from tests.tools.calls import Call

ROWS = (12, 96)
CALLS = (
    Call("swiglu", (ROWS, ROWS), thunderkittens.swiglu),
    Call("geglu", (ROWS, ROWS), thunderkittens.geglu),
    Call("gelu", (ROWS,), thunderkittens.gelu),
)
X = torch.ones(2, 8)
WRONG_TYPES = (  # of options
    lambda: thunderkittens.geglu(X, X, approximate=None),
)
