"""Calls of linear_attention, for the tests of all ops."""

import torch

import thunderkittens
from tests.tools.calls import Call, Recorded

linear_attention, step = thunderkittens.linear_attention, thunderkittens.linear_attention_step
QKV = ((1, 70, 2, 16), (1, 70, 2, 16), (1, 70, 4, 24))
STATE = (1, 4, 16, 24)


def _with_states(q, k, v, decay, state):
    return linear_attention(
        q,
        k,
        v,
        log_decay=-decay.float().abs(),
        initial_state=state.float(),
        output_final_state=True,
    )


CALLS = (
    Call("linear_attention", QKV, linear_attention),
    Call("linear_attention", (*QKV, (1, 70, 4), STATE), _with_states, "states"),
    Call("linear_attention", (*QKV, (4,), STATE), _with_states, "constant decay"),
)
RECORDED = (
    Recorded(
        "linear_attention",
        QKV,
        linear_attention,
        below="linear_attention_forward",
        saved_inputs=(0, 1, 2),
    ),
    Recorded(
        "linear_attention",
        (*QKV, (1, 70, 4), STATE),
        lambda q, k, v, g, s: linear_attention(
            q, k, v, log_decay=g, initial_state=s, output_final_state=True
        ),
        "states",
        below="linear_attention_forward",
        saved_inputs=(0, 1, 2, 3, 4),
    ),
)
X = torch.ones(1, 2, 1, 8)
WRONG_TYPES = {
    "linear_attention: scale must be a number or None, got str": lambda: linear_attention(
        X, X, X, scale="1"
    ),
    "linear_attention_step: state_indices must be a tensor or None, got list": lambda: step(
        X[0], X[0], X[0], torch.zeros(2, 1, 8, 8), state_indices=[0, 1]
    ),
}
