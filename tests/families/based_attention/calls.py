"""Calls of based_attention, for the tests of all ops."""

import torch

import thunderkittens
from tests.tools.calls import Call, Recorded

based_attention, step = thunderkittens.based_attention, thunderkittens.based_attention_step
QKV = ((1, 70, 2, 8), (1, 70, 2, 8), (1, 70, 2, 24))
STATES = ((1, 2, 45, 24), (1, 2, 45))


def _with_states(q, k, v, state, sums):
    # Sums of weights that can be: above 0, whatever q is.
    sums = torch.nn.functional.pad(100 * sums.float()[..., :1].abs(), (0, sums.shape[-1] - 1))
    o, final = based_attention(
        q, k, v, initial_state=(state.float(), sums), output_final_state=True
    )
    return o, *final


CALLS = (
    Call("based_attention", QKV, based_attention),
    Call("based_attention", (*QKV, *STATES), _with_states, "states"),
    Call(
        "based_attention",
        QKV,
        lambda q, k, v: based_attention(q, k, v, normalize=False),
        "not normalised",
    ),
)
RECORDED = (
    Recorded(
        "based_attention",
        QKV,
        based_attention,
        below="based_attention_forward",
        saved_inputs=(0, 1, 2),
    ),
)
OF_TORCH = ("based_features",)
MORE_ARGUMENTS = {"based_attention_step": {"normalize": False}}
X, S, Z = torch.ones(1, 2, 1, 8), torch.zeros(2, 1, 45, 8), torch.zeros(2, 1, 45)
WRONG_TYPES = {
    "based_attention: scale must be a number or None, got str '1'": (
        lambda: based_attention(X, X, X, scale="1")
    ),
    "based_attention: eps must be a number, got str '1'": lambda: based_attention(X, X, X, eps="1"),
    "based_attention_step: eps must be a number, got str '1'": (
        lambda: step(X[0], X[0], X[0], (S, Z), eps="1")
    ),
    "based_attention: initial_state must be a pair (S, z) with normalize, got Tensor": (
        lambda: based_attention(X, X, X, initial_state=X)
    ),
}
