"""The stress of cross_entropy, on a CPU: it says what is wrong, and its control is there."""

import pytest
import torch

from tests.families.cross_entropy import cases, stress, stress_control


def test_the_control_spoils_what_is_there():
    assert stress_control.MISTAKE.applied() != ""
    assert any(each.kernel == "cross_entropy_stream" for each in stress.CASES)


def test_values_are_checked_some_rows_at_a_time(monkeypatch):
    monkeypatch.setattr(stress, "ELEMENTS_AT_ONCE", 700)  # three rows, and a rest
    case = cases.Case(200, (8,), torch.bfloat16, "offset", dloss=0.3)
    problem = stress.Problem("cross_entropy_stream", case, cases)
    inputs = problem.make("cpu")
    loss, gradient = problem.run(inputs)
    problem.check(inputs, (loss, gradient))
    problem.check(inputs, (loss,))
    with pytest.raises(AssertionError, match="loss: off by"):
        problem.check(inputs, (loss * 1.001, gradient))
    gradient[[2, 7], [199, 0]] += 0.01
    with pytest.raises(AssertionError, match="gradient: 2 of 1600 elements are off"):
        problem.check(inputs, (loss, gradient))
    gradient[5] = torch.nan
    with pytest.raises(AssertionError, match="gradient: 202 of 1600"):
        problem.check(inputs, (loss, gradient))
