"""The bounds of linear_attention's fuzz near zero: what the kernel loses there, they allow."""

import pytest
import torch

import thunderkittens
from tests.families.linear_attention import cases, fuzz
from tests.fuzz import judge

ONE = cases.Case(
    length=128, heads=1, key_heads=1, key_width=8, value_width=8, scale=1.0, states=False
)


def judged(to_chunk: float) -> judge.Judged:
    """o where only the first token has a value, which decays by e^to_chunk up to the second chunk;
    that one decays by 2^-30 in all, by 2^-0.1 at its first token."""
    inputs = problem(to_chunk)
    return fuzz.references(ONE, (*inputs, None, torch.zeros_like(inputs[2]), None))["o"]


def problem(to_chunk: float) -> list[torch.Tensor]:
    q = torch.ones(1, 128, 1, 8, dtype=torch.bfloat16)
    v, decay = torch.zeros_like(q), torch.zeros(1, 128, 1)
    v[:, 0], decay[:, 63], decay[:, 64], decay[:, 100] = 1, to_chunk, -0.07, -21.0
    return [q, q, v, decay]


def test_what_is_lost_before_rows_are_brought_back(monkeypatch):
    """The state, times 2^-30, is no number of bf16: the kernel gives 0 for 8 · e^-73.07."""
    q, k, v, decay = problem(-73.0)
    with thunderkittens.backend("simulator"):
        got = thunderkittens.linear_attention(q, k, v, log_decay=decay, scale=1.0)
    assert got[0, 64].eq(0).all() and judged(-73.0).want[0, 64].gt(1e-31).all()
    assert judge.right(got, judged(-73.0)).all()
    monkeypatch.setattr(fuzz, "brought_back", lambda dtype: 1.0)
    assert not judge.right(got, judged(-73.0))[0, 64].any()


@pytest.mark.parametrize("to_chunk", [-55.0, -1.0])
def test_what_no_factor_loses_is_missed(to_chunk):
    each = judged(to_chunk)
    got = each.want.bfloat16()
    assert judge.right(got, each).all()
    got[0, 64] = 0
    assert not judge.right(got, each)[0, 64].any()
