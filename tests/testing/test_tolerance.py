"""The judge is judged: it passes what rounding does and catches one wrong element or row."""

import math

import pytest
import torch

from thunderkittens.testing import assert_close, tolerance


@pytest.mark.parametrize(
    ("dtype", "bits"), [(torch.bfloat16, 9), (torch.float16, 12), (torch.float32, 25)]
)
def test_unit_is_what_rounding_loses(dtype, bits):
    assert tolerance.unit(dtype) == 2.0**-bits
    x = torch.rand(10000, dtype=torch.float64) + 0.5
    error = (x.to(dtype).double() - x).abs()
    assert bool((error <= 2 * tolerance.unit(dtype) * x).all())
    assert not bool((error <= tolerance.unit(dtype) * x / 2).all())


@pytest.mark.parametrize("length", [10, 1000, 100000])
def test_accumulation_covers_a_sum_in_order(length):
    x = torch.rand(length)
    total = torch.zeros(())
    for chunk in x.split(1000):
        total = torch.cumsum(torch.cat([total.view(1), chunk]), 0)[-1]
    error = abs(float(total) - float(x.double().sum()))
    assert error <= tolerance.accumulation(length) * float(x.double().sum())


def test_passes_within_the_bound():
    want = torch.randn(4, 64, dtype=torch.float64)
    assert_close(want.bfloat16(), want, 2 * tolerance.unit(torch.bfloat16) * want.abs() + 1e-9)


def test_names_the_worst_element():
    want = torch.zeros(3, 5, dtype=torch.float64)
    got = want.clone()
    got[1, 2], got[2, 4] = 0.5, 2.0
    with pytest.raises(AssertionError, match=r"y\[2, 4\] = 2, want 0: error 2, allowed 0.1 \(2 of"):
        assert_close(got, want, 0.1, "y")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_special_values_stand_at_the_same_places(value):
    want = torch.zeros(4, dtype=torch.float64)
    want[1] = value
    assert_close(want.clone(), want, 1e9)
    with pytest.raises(AssertionError, match=r"NaN|Inf"):
        assert_close(torch.zeros(4), want, 1e9)
    with pytest.raises(AssertionError, match=r"NaN|Inf"):
        assert_close(want, torch.zeros(4, dtype=torch.float64), 1e9)
    if not math.isnan(value):
        with pytest.raises(AssertionError, match="sign"):
            assert_close(-want, want, 1e9)


def test_one_wrong_row_is_seen():
    """Every element within its bound, one row at its very edge."""
    want = torch.zeros(8, 64, dtype=torch.float64)
    got = 0.5 * torch.rand_like(want)
    assert_close(got, want, 1.0)
    got[3] = 0.9
    with pytest.raises(AssertionError, match="row 3 has root mean square error"):
        assert_close(got, want, 1.0)


def test_a_row_of_which_few_elements_count():
    """One large element may use its whole bound; many of one size may not all do so."""
    bound = torch.full((3, 64), 1e-3, dtype=torch.float64)
    bound[1, 7] = 1.0
    got = torch.zeros_like(bound)
    got[1, 7] = 0.99
    assert_close(got, torch.zeros_like(bound), bound)
    got[2] = 0.9e-3
    with pytest.raises(AssertionError, match="row 2 has root mean square error"):
        assert_close(got, torch.zeros_like(bound), bound)


def test_an_error_that_a_row_shares():
    """A whole row may be off by the part of the bound that is shared, and not by more."""
    want = torch.ones(3, 100, dtype=torch.float64)
    got = want.clone()
    got[1] += 0.9
    tolerance.assert_close(got, want, 1.0, shared=0.9)
    with pytest.raises(AssertionError, match="row 1 has root mean square error 0.9"):
        tolerance.assert_close(got, want, 1.0, shared=0.5)


def test_shapes_must_agree():
    with pytest.raises(AssertionError, match="shape"):
        assert_close(torch.zeros(3), torch.zeros(3, 1, dtype=torch.float64), 1.0)
