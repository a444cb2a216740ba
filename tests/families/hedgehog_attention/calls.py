"""Calls of hedgehog_attention, for the tests of all ops."""

import torch

import thunderkittens
from tests.tools.calls import Call, Recorded
from thunderkittens import HedgehogState

QKV = ((1, 140, 2, 8), (1, 140, 2, 8), (1, 140, 2, 6), (2, 8, 4), (2, 8, 4), (2,), (2,))
STATE = ((1, 2, 8, 6), (1, 2, 8), (1, 64, 2, 8), (1, 64, 2, 6))


def _attention(q, k, v, q_map, k_map, alpha, beta):
    weights = {"alpha": alpha.float().abs(), "beta": beta.float().abs()}
    return thunderkittens.hedgehog_attention(q, k, v, q_map, k_map, **weights)


def _with_states(q, k, v, q_map, k_map, alpha, beta, kv_state, k_state, k_cache, v_cache):
    length = torch.full((q.shape[0],), 70, device=q.device)
    y, state = thunderkittens.hedgehog_attention(
        q,
        k,
        v,
        q_map,
        k_map,
        alpha=alpha.float().abs(),
        beta=beta.float().abs(),
        initial_state=HedgehogState(
            kv_state.float(), k_state.float().abs(), k_cache, v_cache, length
        ),
        output_final_state=True,
    )
    return (y, *state[:2])


CALLS = (
    Call("hedgehog_attention", QKV, _attention),
    Call("hedgehog_attention", (*QKV, *STATE), _with_states, "states"),
)
RECORDED = (
    Recorded(
        "hedgehog_attention",
        QKV,
        lambda *t: thunderkittens.hedgehog_attention(*t[:5], alpha=t[5], beta=t[6]),
        below="hedgehog_attention_forward",
        saved_inputs=(0, 1, 2, 3, 4, 5, 6),
    ),
)
X, W = torch.ones(1, 2, 1, 8), torch.ones(1, 8, 4)
NO_TOKENS = [torch.zeros(2, 0, 4, width) for width in (8, 8, 4)]
WEIGHTS = {"alpha": torch.ones(4), "beta": torch.ones(4)}
MORE_ARGUMENTS = {  # in the sizes that tests/ops/test_arguments.py gives the others
    "hedgehog_attention_step": {
        "state": thunderkittens.hedgehog_attention(
            *NO_TOKENS, *(torch.zeros(4, 8, 4),) * 2, **WEIGHTS, output_final_state=True
        )[1]
    }
}
WRONG_TYPES = {
    "hedgehog_attention: alpha must be a tensor, got float 0.5": (
        lambda: thunderkittens.hedgehog_attention(X, X, X, W, W, alpha=0.5, beta=torch.ones(1))
    ),
    "hedgehog_attention: initial_state must be a HedgehogState or None, got list": (
        lambda: thunderkittens.hedgehog_attention(
            X, X, X, W, W, alpha=torch.ones(1), beta=torch.ones(1), initial_state=[X]
        )
    ),
}
