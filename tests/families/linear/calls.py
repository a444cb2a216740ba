"""Calls of linear, for the tests of all ops."""

import torch

import thunderkittens
from tests.tools.calls import Call

CALLS = (
    Call("linear", ((3, 8), (10, 8), (10,)), thunderkittens.linear),
    Call(
        "linear",
        ((2, 3, 8), (10, 8), (2, 3, 5)),
        lambda x, w, r: thunderkittens.linear(x, w, residual=r, activation="swiglu"),
        "swiglu",
    ),
)
RECORDED = ()
X, WEIGHT = torch.ones(2, 8), torch.ones(4, 8)
WRONG_TYPES = {
    "linear: weight must be a tensor, got None": lambda: thunderkittens.linear(X, None),
    "linear: residual must be a tensor or None, got int 3": (
        lambda: thunderkittens.linear(X, WEIGHT, residual=3)
    ),
}
