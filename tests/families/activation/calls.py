"""Calls of the activations, for the tests of all ops."""

import torch

import thunderkittens
from tests.tools.calls import Call, Recorded

ROWS = (12, 96)
CALLS = (
    Call("swiglu", (ROWS, ROWS), thunderkittens.swiglu),
    Call("geglu", (ROWS, ROWS), thunderkittens.geglu),
    Call("gelu", (ROWS,), thunderkittens.gelu),
)
RECORDED = (
    Recorded("gelu", ((3, 8),), thunderkittens.gelu, saved_inputs=(0,)),
    Recorded("geglu", ((3, 8),) * 2, thunderkittens.geglu, saved_inputs=(0, 1)),
    Recorded("swiglu", ((3, 8),) * 2, thunderkittens.swiglu, saved_inputs=(0, 1)),
)
X = torch.ones(2, 8)
WRONG_TYPES = {
    'geglu: approximate must be "none" or "tanh", got None': lambda: thunderkittens.geglu(
        X, X, approximate=None
    ),
    'gelu: approximate must be "none" or "tanh", got bool True': lambda: thunderkittens.gelu(
        X, approximate=True
    ),
    "swiglu: up must be a tensor, got list": lambda: thunderkittens.swiglu(X, [X, X]),
}
