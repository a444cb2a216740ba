"""Calls of mamba2, for the tests of all ops."""

import torch

import thunderkittens
from tests.tools.calls import Call, Recorded

mamba2 = thunderkittens.mamba2
SCAN = ((1, 70, 4, 24), (1, 70, 4), (4,), (1, 70, 2, 16), (1, 70, 2, 16))
OF_HEADS = ((4,), (4,), (1, 4, 24, 16))


def _plain(x, dt, A, B, C):
    return mamba2(x, dt, -A.float().abs(), B, C, dt_softplus=True)


def _with_states(x, dt, A, B, C, D, bias, state, z):
    return mamba2(
        x,
        dt,
        -A.float().abs(),
        B,
        C,
        D=D,
        z=z,
        dt_bias=bias,
        dt_softplus=True,
        initial_state=state.float(),
        return_final_state=True,
    )


CALLS = (
    Call("mamba2", SCAN, _plain),
    Call("mamba2", (*SCAN, *OF_HEADS, SCAN[0]), _with_states, "states and gate"),
)


def _with_bias(x, dt, bias, state):
    A, B = -torch.ones(4), torch.linspace(-1, 1, 80).view(1, 5, 2, 8)
    return mamba2(x, dt, A, B, B, dt_bias=bias, dt_softplus=True, initial_state=state)


X5, DT5, B5 = (1, 5, 4, 8), (1, 5, 4), (1, 5, 2, 8)
RECORDED = (
    Recorded("mamba2", (X5, DT5, (4,), B5, B5), mamba2, below="mamba2_forward"),
    Recorded(
        "mamba2",
        (X5, DT5, (4,), (1, 4, 8, 8)),
        _with_bias,
        "bias and state",
        below="mamba2_forward",
        saved_inputs=(0, 1, 2, 3),
    ),
)
X, DT, A = torch.ones(1, 2, 1, 8), torch.ones(1, 2, 1), -torch.ones(1)
WRONG_TYPES = {  # of options
    "mamba2: dt_softplus must be True or False, got str 'yes'": (
        lambda: mamba2(X, DT, A, X, X, dt_softplus="yes")
    ),
    "mamba2: B must be a tensor, got None": lambda: mamba2(X, DT, A, None, X),
}
