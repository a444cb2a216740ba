"""Calls of mlp, for the tests of all ops."""

import torch

import thunderkittens
from tests.tools.calls import Call, Recorded

SHAPES = ((3, 8), (16, 8), (16,), (8, 16), (8,))  # of x and both layers
CALLS = (Call("mlp", SHAPES, thunderkittens.mlp),)
RECORDED = (
    Recorded("mlp", SHAPES, thunderkittens.mlp, below="mlp_forward", saved_inputs=(0, 1, 3)),
)
X, WEIGHT = torch.ones(2, 8), torch.ones(8, 8)
WRONG_TYPES = {
    "mlp: fc2_weight must be a tensor, got None": (
        lambda: thunderkittens.mlp(X, WEIGHT, None, None, None)
    ),
    "mlp: fc1_bias must be a tensor or None, got int 3": (
        lambda: thunderkittens.mlp(X, WEIGHT, 3, WEIGHT, None)
    ),
}
