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
WRONG_TYPES = (  # of options
    lambda: thunderkittens.rms_norm(X, weight_offset=None),
    lambda: thunderkittens.rms_norm(X, casting=None),
    lambda: thunderkittens.add_layer_norm(X, X, training="yes"),
    lambda: thunderkittens.add_layer_norm(X, X, dropout_p=None),
    lambda: thunderkittens.add_rms_norm(X, X, training="yes"),
    lambda: thunderkittens.add_rms_norm(X, X, seed=3),
)
