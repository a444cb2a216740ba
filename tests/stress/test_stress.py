"""The stress itself, on a CPU: it counts what differs, and says what is wrong."""

import itertools

import pytest
import torch

from tests.stress.cases import CASES
from tests.stress.repeat import count_differing, differs, nothing, stress


class Flaky:
    """Results of which one in `every` has another bit, and which may be wrong."""

    def __init__(self, every: int = 0, wrong: str = "") -> None:
        self.every, self.wrong, self.runs = every, wrong, 0

    def __str__(self) -> str:
        return "flaky"

    def make(self, device: str) -> list[torch.Tensor]:
        return [torch.randn(3, 5, device=device)]

    def run(self, inputs: list[torch.Tensor]) -> list[torch.Tensor | None]:
        self.runs += 1
        result = inputs[0].clone()
        if self.every and self.runs % self.every == 0:
            result.view(torch.int32)[2, 4] ^= 1
        return [None, torch.zeros(2), result]

    def check(self, inputs: list[torch.Tensor], results: list[torch.Tensor | None]) -> None:
        assert not self.wrong, self.wrong


def test_what_differs_is_counted():
    outcome = stress(Flaky(), 40, 5.0, "cpu")
    assert outcome.good
    assert (outcome.alone, outcome.alone_differ, outcome.beside) == (40, 0, 0)
    problem = Flaky(every=10)
    outcome = stress(problem, 40, 5.0, "cpu")
    assert problem.runs == 43  # the first, and two that are not counted
    assert (outcome.good, outcome.alone, outcome.alone_differ) == (False, 40, 4)
    assert "40 repeats alone, 4 differ" in str(outcome)


def test_what_is_wrong_is_said():
    outcome = stress(Flaky(wrong="y: 3 elements are off\nand more"), 20, 5.0, "cpu")
    assert not outcome.good
    assert "values wrong (y: 3 elements are off)" in str(outcome)


def test_slow_problems_are_repeated_less():
    assert stress(Flaky(), 10**9, 0.5, "cpu").alone < 10**9
    assert stress(Flaky(), 100, 0.0, "cpu", least=7).alone == 7


def test_every_bit_counts():
    first = [
        None,
        torch.tensor([0.0, 1.0, torch.nan]),
        torch.ones(2, 4, dtype=torch.bfloat16)[:, 1:],
    ]
    same = [None if t is None else t.clone() for t in first]
    assert not differs(same, first)
    same[1][0] = -0.0
    assert differs(same, first)
    calls = itertools.count()
    found = count_differing(lambda: [torch.tensor(next(calls) // 3)], [torch.tensor(0)], 9, nothing)
    assert found == 6


def test_names_are_distinct():
    names = [str(each) for each in CASES]
    assert len({*names}) == len(names)
    assert all(name.startswith(each.kernel) for name, each in zip(names, CASES, strict=True))


@pytest.mark.parametrize("problem", CASES, ids=str)
def test_problems_are_calls_of_the_public_functions(problem):
    """Each with few rows, by torch."""
    outcome = stress(problem.small(), repeats=1, seconds=0.0, device="cpu")
    assert outcome.good, str(outcome)
