"""Calls of the norms, for the tests of all ops."""

import torch

import thunderkittens
from tests.tools.calls import Call, Recorded

ops = torch.ops.thunderkittens
ROWS, VECTOR = (12, 96), (96,)
CALLS = (
    Call("layer_norm", (ROWS, VECTOR, VECTOR), thunderkittens.layer_norm),
    Call("rms_norm", (ROWS, VECTOR), thunderkittens.rms_norm),
    Call(
        "rms_norm",
        (ROWS, VECTOR),
        lambda *t: thunderkittens.rms_norm(*t, weight_offset=1.0, casting="gemma"),
        "gemma",
    ),
    Call("add_layer_norm", (ROWS, ROWS, VECTOR, VECTOR), thunderkittens.add_layer_norm),
    Call("add_rms_norm", (ROWS, ROWS, VECTOR), thunderkittens.add_rms_norm),
)
RECORDED = (
    Recorded(
        "layer_norm",
        ((3, 8), (8,), (8,)),
        thunderkittens.layer_norm,
        below="layer_norm_forward",
        saved_inputs=(0,),
    ),
    Recorded(
        "rms_norm",
        ((3, 8), (8,)),
        thunderkittens.rms_norm,
        below="rms_norm_forward",
        saved_inputs=(0,),
    ),
    Recorded(
        "add_layer_norm",
        ((3, 8), (3, 8), (8,), (8,)),
        thunderkittens.add_layer_norm,
        below="add_layer_norm_forward",
        saved_outputs=(1,),
        alone={1: (0, 1)},
    ),
    Recorded(
        "add_rms_norm",
        ((3, 8), (3, 8), (8,)),
        thunderkittens.add_rms_norm,
        below="add_rms_norm_forward",
        saved_outputs=(1,),
        alone={1: (0, 1)},
    ),
)
SHORT_FORMS = {
    ops.rms_norm: lambda x: (x(3, 8), x(8), 1e-3),
    ops.add_rms_norm: lambda x: (x(3, 8), x(3, 8), x(8), 1e-3),
    ops.add_layer_norm: lambda x: (x(3, 8), x(3, 8), x(8), x(8), 1e-3),
}
X = torch.ones(2, 8)
LAST = "the shape to normalise over is not given, it is the last dimension of x"
WRONG_TYPES = {
    "layer_norm: x must be a tensor, got str 'text'": lambda: thunderkittens.layer_norm("text"),
    "layer_norm: x must be a tensor, got ndarray: torch.from_numpy makes a tensor of it": (
        lambda: thunderkittens.layer_norm(X.numpy())
    ),
    "layer_norm: eps must be a number, got str '1e-5'": (
        lambda: thunderkittens.layer_norm(X, eps="1e-5")
    ),
    f"layer_norm: weight must be a tensor or None, got tuple (8,): {LAST}": (
        lambda: thunderkittens.layer_norm(X, (8,), X[0], X[0])
    ),
    "rms_norm: eps must be a number or None, got str '1e-5'": (
        lambda: thunderkittens.rms_norm(X, eps="1e-5")
    ),
    "rms_norm: weight must be a tensor or None, got float 1e-05": (
        lambda: thunderkittens.rms_norm(X, 1e-5)
    ),
    "rms_norm: weight_offset must be a number, got None": (
        lambda: thunderkittens.rms_norm(X, weight_offset=None)
    ),
    'rms_norm: casting must be "llama" or "gemma", got None': (
        lambda: thunderkittens.rms_norm(X, casting=None)
    ),
    "add_layer_norm: training must be True or False, got str 'yes'": (
        lambda: thunderkittens.add_layer_norm(X, X, training="yes")
    ),
    "add_layer_norm: dropout_p must be a number, got None": (
        lambda: thunderkittens.add_layer_norm(X, X, dropout_p=None)
    ),
    "add_rms_norm: training must be True or False, got str 'no'": (
        lambda: thunderkittens.add_rms_norm(X, None, training="no")
    ),
    "add_rms_norm: seed must be a tensor or None, got int 3": (
        lambda: thunderkittens.add_rms_norm(X, X, seed=3)
    ),
    "add_rms_norm: residual must be a tensor or None, got float 1.0": (
        lambda: thunderkittens.add_rms_norm(X, 1.0)
    ),
}
