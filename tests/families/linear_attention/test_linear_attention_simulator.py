"""linear_attention's kernel, lane by lane on the CPU: the list of test_linear_attention.py."""

import pytest
import torch

import thunderkittens
from tests.families.linear_attention import cases
from tests.families.linear_attention.cases import BF16, FP16, Case
from tests.tools.in_simulator import (
    check_no_races,
    check_policies_agree,
    needs_race_mode,
    needs_simulator,
)
from thunderkittens import _C
from thunderkittens.testing import check_memory

pytestmark = needs_simulator

ALL = [
    *cases.lengths(),
    *cases.widths(),
    *cases.options(),
    *cases.layouts(),
    *cases.packed(),
    # Segments: fewer heads than multiprocessors, and chunks for several.
    Case(length=1030, heads=1, key_heads=1),
    Case(length=1200, heads=1, key_heads=1, ends=(0, 100, 1000, 1200)),
    Case(length=1090, heads=2, key_heads=1, key_width=128, value_width=128, dtype=FP16),
]
SOME = [
    Case(length=200),
    Case(length=100, key_width=128, value_width=128),
    Case(length=1030, heads=1, key_heads=1, key_width=16, value_width=16),
]


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    """A fallback would test torch, not the kernels."""
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "1")


def launches() -> int:
    return _C.launch_counts()["linear_attention"]


@pytest.mark.parametrize("case", ALL, ids=str)
def test_against_float64(case):
    """Right, within its tensors, and the same bits with other neighbours; by our kernel."""
    inputs = cases.make(case)
    before = launches()
    with thunderkittens.backend("simulator"):
        results = check_memory(lambda *t: cases.run_case(case, t), *inputs)
    assert launches() >= before + 2 * 4
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


@pytest.mark.parametrize("which", range(5))
def test_gradient_of_one_input_alone(which):
    """What is not needed is not launched, and what the others give is the same.

    The decays need dq and dk; the state's gradient comes with dv, or with dk, rounded elsewhere.
    """
    case = Case(1, 70, 2, 1, 16, 24)
    inputs = cases.make(case)
    with thunderkittens.backend("simulator"):
        want = cases.run_case(case, inputs)[2 + which]
        given = [t.clone().requires_grad_(i == which) for i, t in enumerate(inputs[:5])]
        q, k, v, decay, initial = given
        outputs = thunderkittens.linear_attention(
            q, k, v, log_decay=decay, initial_state=initial, output_final_state=True
        )
        before = launches()
        (got,) = torch.autograd.grad(outputs, given[which], inputs[5:])
    assert launches() == before + (2 if which == 3 else 1)
    if which == 4:
        torch.testing.assert_close(got, want, rtol=0.02, atol=0.02 * want.abs().max().item())
    else:
        assert torch.equal(got, want)


def test_not_finite_stays_in_its_head_and_comes_no_earlier():
    """A NaN spoils its head from its token on: not what came before, not other heads."""
    case = Case(1, 200, 2, 2, 16, 16, BF16, states=False)
    q, k, v, decay, *_ = cases.make(case)
    k[0, 100, 1, 3] = float("nan")
    with thunderkittens.backend("simulator"):
        o = thunderkittens.linear_attention(q, k, v, log_decay=decay)
    assert o[0, :, 0].isfinite().all()
    assert o[0, 100:, 1].isnan().all()
    assert o[0, :64, 1].isfinite().all()


def test_one_packed_token_of_any_stride():
    """TMA takes the token's stride for that of rows, though there is one row."""
    q = torch.randn(4, 67).to(BF16).as_strided((1, 2, 16), (67, 16, 1))
    decay, ends = torch.zeros(2), torch.tensor([0, 1])
    with thunderkittens.backend("simulator"):
        results = []
        for given in (q, q.contiguous()):
            leaf = given.detach().requires_grad_()
            o = thunderkittens.linear_attention(leaf, leaf, leaf, log_decay=decay, cu_seqlens=ends)
            results.append((o, *torch.autograd.grad(o, leaf, torch.ones_like(o))))
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][1], results[1][1])


def test_more_sequences_than_a_grid_has_blocks(monkeypatch):
    """Of packed sequences it is their number that counts: here all but one have no token."""
    monkeypatch.delenv("THUNDERKITTENS_STRICT")
    q = torch.randn(1, 64, 16).to(BF16)
    ends = torch.zeros(1, dtype=torch.int32).expand(2**26)
    with thunderkittens.backend("simulator"):
        found = thunderkittens.explain("linear_attention", q, q, q, cu_seqlens=ends)
    assert found.backend == "torch"
    assert "67108863 sequences of 64 heads of 1 tokens are too many" in str(found)


def test_explain(monkeypatch):
    monkeypatch.delenv("THUNDERKITTENS_STRICT")
    q = torch.randn(1, 5, 2, 16).to(BF16)
    stepped = cases.lay_out(q, "stepped")
    with thunderkittens.backend("simulator"):
        found = thunderkittens.explain("linear_attention", q, q, q)
        copied = thunderkittens.explain("linear_attention", q, stepped, q)
        wide = thunderkittens.explain("linear_attention", *[torch.randn(1, 5, 1, 136).to(BF16)] * 3)
    assert (found.backend, found.notes) == ("simulator", ())
    assert "k is copied first: the elements of a row are not neighbours" in str(copied)
    assert wide.backend == "torch"
    assert "head dimension 136 is not one of 8, 16 … 128" in str(wide)
