"""The bound of attention_decode's fuzz: sums of equal terms, as products of matrices make them."""

import pytest
import torch

from tests.families.attention_decode import fuzz
from tests.fuzz import judge

ROWS = 1040  # of a cache


def given(value: float) -> dict[str, torch.Tensor]:
    cache = torch.full((1, ROWS, 1, 8), value)
    return {
        "q": torch.ones(1, 1, 1, 8),
        "k_cache": torch.zeros_like(cache),
        "v_cache": cache,
        "seqlens": torch.tensor([ROWS]),
    }


def in_a_row(term: torch.Tensor, count: int) -> torch.Tensor:
    """`count` equal terms, one after another, in the dtype of the term."""
    total = torch.zeros_like(term)
    for _ in range(count):
        total = total + term
    return total


@pytest.mark.parametrize("value", [-0.9888, 0.9487])
def test_values_that_are_equal_are_added_up_in_a_row(value):
    inputs = given(value)
    got = (in_a_row(inputs["v_cache"][0, 0, 0], ROWS) / ROWS).expand(1, 1, 1, 8)
    each, if_unrelated = (
        fuzz.attended(inputs, {}, False, (True, equal)) for equal in (True, False)
    )
    assert judge.right(got, each).all() and not judge.right(got, if_unrelated).any()
    for wrong in (got * (1 - 1 / ROWS), got * (1 + 2.0**-12)):  # without a key; of fewer bits
        assert not judge.right(wrong, each).any()


def test_which_terms_are_equal():
    assert fuzz.equal_terms("constant") == (True, True)
    assert fuzz.equal_terms("constant rows") == (True, False)
    assert fuzz.equal_terms("one-hot") == (False, True)
    assert fuzz.equal_terms("normal") == (False, False)
