"""linear_attention_step's kernel, lane by lane on the CPU: the list of its other tests."""

import pytest
import torch

import thunderkittens
from tests.families.linear_attention import step_cases as cases
from tests.families.linear_attention.step_cases import BF16, FP16, FP32, Case
from tests.tools.in_simulator import (
    check_no_races,
    check_policies_agree,
    needs_race_mode,
    needs_simulator,
)
from thunderkittens import _C
from thunderkittens.testing import check_memory

pytestmark = needs_simulator

ALL = [*cases.widths(), *cases.options(), *cases.indexed(), *cases.layouts()]
SOME = [
    Case(),
    Case(3, 2, 1, 130, 40, indices="int64", padding=1),
    Case(2, 2, 1, 33, 7, dtype=FP16, state_layout="offset"),
]


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    """A fallback would test torch, not the kernel."""
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "1")


def launches() -> int:
    return _C.launch_counts()["linear_attention_step"]


@pytest.mark.parametrize("case", ALL, ids=str)
def test_against_float64(case):
    """Right, within its tensors, and the same bits with other neighbours; by our kernel."""
    inputs = cases.make(case)
    before = launches()
    with thunderkittens.backend("simulator"):
        results = check_memory(lambda *t: cases.run_case(case, t), *inputs)
    assert launches() == before + (2 if results[0].numel() else 0)
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
    case = Case(3, 2, 1, 64, 40)
    q, k, v, state, decay, _ = cases.make(case)
    with thunderkittens.backend("simulator"):
        o, after = cases.run_case(case, (q, k, v, state, decay, None))
        for b in range(3):
            alone = [t[b : b + 1] for t in (q, k, v, state, decay)]
            one, state_of_one = cases.run_case(case, (*alone, None))
            assert torch.equal(one[0], o[b])
            assert torch.equal(state_of_one[0], after[b])


def test_not_finite_stays_in_its_head():
    q, k, v, state, *_ = cases.make(Case(1, 2, 2, 16, 40, FP32))
    k[0, 1, 3] = float("nan")
    with thunderkittens.backend("simulator"):
        o = thunderkittens.linear_attention_step(q, k, v, state)
    assert o[0, 0].isfinite().all()
    assert o[0, 1].isnan().all()
    assert state[0, 1].isnan().any(-1).nonzero().flatten().tolist() == [3]


def test_infinite_values_and_keys_that_are_not_there():
    """Rows past the last key add nothing: 0 times infinity would be a NaN."""
    q, k, v, state, *_ = cases.make(Case(1, 1, 1, 5, 8, BF16))
    v[0, 0, 2] = float("inf")
    k.abs_().add_(1), q.abs_().add_(1)
    with thunderkittens.backend("simulator"):
        o = thunderkittens.linear_attention_step(q, k, v, state)
    assert o[0, 0, 2] == float("inf")
    assert o[0, 0, [0, 1, 3]].isfinite().all()


def test_explain(monkeypatch):
    monkeypatch.delenv("THUNDERKITTENS_STRICT")
    q, state = torch.randn(2, 1, 300), torch.zeros(2, 1, 300, 300)
    with thunderkittens.backend("simulator"):
        found = thunderkittens.explain(
            "linear_attention_step", q[..., :8], q[..., :8], q, state[:, :, :8]
        )
        wide = thunderkittens.explain("linear_attention_step", q, q, q, state)
    assert (found.backend, found.notes) == ("simulator", ())
    assert wide.backend == "torch"
    assert "head dimension 300 is not one of 1 … 256" in str(wide)
    assert not state.any()
