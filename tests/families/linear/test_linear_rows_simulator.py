"""What linear's kernel of 17 to 64 rows promises, lane by lane on the CPU.

(Its results: test_linear_simulator.py.)
"""

import functools

import pytest
import torch

import thunderkittens
from tests.families.linear import cases
from tests.families.linear.cases import Case
from tests.tools.in_simulator import needs_race_mode, needs_simulator
from thunderkittens.testing import memory

pytestmark = needs_simulator


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    """A fallback would test torch, not the kernel."""
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "1")


@needs_race_mode
def test_race_mode_sees_a_promise_that_is_broken():
    """The weight is what the kernel in front writes."""
    x, given = (torch.randn(n, 64).bfloat16() for n in (20, 64))
    with thunderkittens.backend("simulator", race=True):
        weight = thunderkittens.linear(x, given)
        with pytest.raises(RuntimeError, match="linear: RACE: (.|\n)*linear_rows<(.|\n)*constant"):
            thunderkittens.linear(x, weight, weight_is_constant=True)
        thunderkittens.linear(x, weight)  # without it


def test_rows_do_not_depend_on_their_neighbours():
    """The bits of a row are the same in any call of 17 to 64 rows."""
    x, weight, _, _, norm_weight = cases.make(Case((57,), 520, 300, norm=1e-6))
    with thunderkittens.backend("simulator"):
        for norm in (None, (norm_weight, 1e-6)):
            linear = functools.partial(thunderkittens.linear, weight=weight, norm=norm)
            assert memory.bits_equal(linear(x[7:27]), linear(x)[7:27])


def test_without_a_kernel_for_them_rows_are_torchs_without_a_word():
    x, weight = torch.randn(cases.FEW + 1, 64).bfloat16(), torch.randn(8, 64).bfloat16()
    want = torch.nn.functional.linear(x, weight)
    with thunderkittens.backend("simulator"):
        assert thunderkittens.explain("linear", x, weight).backend == "simulator"
    with thunderkittens.backend("simulator", kernel="generic"):
        assert thunderkittens.explain("linear", x[1:], weight).backend == "simulator"
        found = thunderkittens.explain("linear", x, weight)
        assert found.backend == "torch"
        assert found.reason.startswith("17 rows are more than 16")
        assert memory.bits_equal(thunderkittens.linear(x, weight), want)  # strict: raises if not
