"""based_attention_step's kernel, lane by lane on the CPU: the list of its other tests."""

import pytest
import torch

import thunderkittens
from tests.families.based_attention import step_cases as cases
from tests.families.based_attention.step_cases import FP16, FP32, Case
from tests.tools.in_simulator import (
    check_no_races,
    check_policies_agree,
    needs_race_mode,
    needs_simulator,
)
from thunderkittens import _C
from thunderkittens.testing import check_memory

pytestmark = needs_simulator

ALL = [*cases.widths(), *cases.options(), *cases.layouts()]
SOME = [
    Case(1, 2),
    Case(2, 1, 7, 33, FP16),
    Case(1, 2, 16, 130, FP32, normalize=False, state_layout="offset"),
]


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    """A fallback would test torch, not the kernel."""
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "1")


@pytest.mark.parametrize("case", ALL, ids=str)
def test_against_float64(case):
    """Right, within its tensors, and the same bits with other neighbours; by our kernel."""
    inputs = cases.make(case)
    before = _C.launch_counts()["based_attention_step"]
    with thunderkittens.backend("simulator"):
        results = check_memory(lambda *t: cases.run_case(case, t), *inputs)
    launches = _C.launch_counts()["based_attention_step"] - before
    assert launches == (2 if case.batch * case.heads else 0)
    cases.check_case(case, inputs, results)


@pytest.mark.parametrize("case", SOME, ids=str)
def test_policies_agree(case):
    inputs = cases.make(case)
    check_policies_agree(lambda: cases.run_case(case, inputs))


@needs_race_mode
@pytest.mark.parametrize("case", SOME, ids=str)
def test_no_races(case):
    inputs = cases.make(case)
    check_no_races(lambda: cases.run_case(case, inputs))


def test_a_batch_does_not_change_its_members():
    """A token's bits are the same alone and among others."""
    case = Case(3, 2, 16, 40)
    inputs = cases.make(case)
    with thunderkittens.backend("simulator"):
        together = cases.run_case(case, inputs)
        for b in range(3):
            alone = cases.run_case(case, [t[b : b + 1] for t in inputs])
            for one, all_of_them in zip(alone, together, strict=True):
                assert torch.equal(one[0], all_of_them[b])


def test_infinite_values_and_features_that_are_not_there():
    """Rows past the last feature add nothing: 0 times infinity would be a NaN."""
    case = Case(1, 1, 5, 8)
    q, k, v, state, sums = cases.make(case)
    v[0, 0, 2] = float("inf")
    k.abs_().add_(1), q.abs_().add_(1)
    with thunderkittens.backend("simulator"):
        o = cases.call(case, q, k, v, state, sums)
    assert o[0, 0, 2] == float("inf")
    assert o[0, 0, [0, 1, 3]].isfinite().all()


def test_explain(monkeypatch):
    monkeypatch.delenv("THUNDERKITTENS_STRICT")
    explain = thunderkittens.explain
    with thunderkittens.backend("simulator"):
        q, k, v, state, sums = cases.make(Case())
        before = state.clone()
        assert explain("based_attention_step", q, k, v, (state, sums)).backend == "simulator"
        columns = state.mT.contiguous().mT
        found = explain("based_attention_step", q, k, v, (columns, sums))
        assert "a state whose last stride is not 1 is updated by torch" in str(found)
        q, k, v, *wide = cases.make(Case(key_width=17))
        found = explain("based_attention_step", q, k, v, tuple(wide))
        assert "feature dimension 17 is not one of 1 … 16" in str(found)
    assert torch.equal(state, before)
