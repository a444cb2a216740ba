"""based_attention's kernels, the one for Hopper and the generic one, lane by lane on the CPU."""

import json

import pytest
import torch

import thunderkittens
from tests.families.based_attention import cases
from tests.families.based_attention.cases import BF16, FP16, Case
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
    # Segments: fewer blocks than fit, and chunks for several.
    Case(length=1030, heads=1),
    Case(length=1090, dtype=FP16, normalize=False),
]
SOME = [
    Case(length=200),
    Case(length=100, value_width=24, key_width=8),
    Case(length=1030, heads=1, value_width=16),
]


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    """A fallback would test torch, not the kernels."""
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "1")


@pytest.fixture(params=[None, "generic"], ids=["specialised", "generic"])
def kernel(request) -> str | None:
    return request.param


def launches() -> int:
    return _C.launch_counts()["based_attention"]


@pytest.mark.parametrize("case", ALL, ids=str)
def test_against_float64(case, kernel):
    """Right, within its tensors, and the same bits with other neighbours; by our kernel."""
    inputs = cases.make(case)
    before = launches()
    with thunderkittens.backend("simulator", kernel=kernel):
        results = check_memory(lambda *t: cases.run_case(case, t), *inputs)
    assert launches() >= before + 2 * 3
    cases.check_case(case, inputs, results)


@pytest.mark.parametrize("case", cases.wide(), ids=str)
def test_wide_values(case, kernel):
    inputs = cases.make(case)
    with thunderkittens.backend("simulator", kernel=kernel):
        results = check_memory(lambda *t: cases.call(case, *t), *inputs[:5])
    cases.check_case(case, inputs, results)


@pytest.mark.parametrize("which", range(5))
def test_gradient_of_one_input_alone(which, kernel):
    """The passes that are not needed are not run, and what the others give is the same."""
    case = Case(1, 70, 2)
    inputs = cases.make(case)
    with thunderkittens.backend("simulator", kernel=kernel):
        want = cases.run_case(case, inputs)[3 + which]
        given = [t.clone().requires_grad_(i == which) for i, t in enumerate(inputs[:5])]
        outputs = cases.call(case, *given)
        (got,) = torch.autograd.grad(outputs, given[which], inputs[5:])
    assert torch.equal(got, want)


@pytest.mark.parametrize("case", SOME, ids=str)
def test_policies_agree(case, kernel):
    inputs = cases.make(case)
    check_policies_agree(lambda: cases.run_case(case, inputs), kernel=kernel)


@needs_race_mode
@pytest.mark.parametrize("case", SOME, ids=str)
def test_no_races(case, kernel):
    inputs = cases.make(case)
    check_no_races(lambda: cases.run_case(case, inputs), kernel=kernel)


@pytest.mark.parametrize("width", [24, 64])
def test_no_bank_conflicts(width, kernel, tmp_path):
    """Of copies, products, states and results, and at the tensors' ends; of all passes."""
    case = Case(length=1030, heads=1, value_width=width)
    facts = tmp_path / "facts.json"
    with thunderkittens.backend("simulator", kernel=kernel, facts=facts):
        cases.run_case(case, cases.make(case))
    launches = json.loads(facts.read_text())["launches"]
    assert len(launches) == 6
    assert {each["kernel"] for each in launches} == {
        "based_attention_generic" if kernel else "based_attention"
    }
    for each in launches:
        assert each["total"]["wavefronts"] == each["total"]["passes"] > 0


def test_a_sequence_resumes_from_its_state(kernel):
    """What one call leaves is what the next takes: states, and sums, in the documented order."""
    case = Case(1, 200, 2)
    q, k, v, state, sums, *_ = cases.make(case)
    with thunderkittens.backend("simulator", kernel=kernel):
        whole, *last = cases.call(case, q, k, v, state, sums)
        first, *states = cases.call(case, *(t[:, :128] for t in (q, k, v)), state, sums)
        second, *resumed = cases.call(case, *(t[:, 128:] for t in (q, k, v)), *states)
    torch.testing.assert_close(torch.cat([first, second], 1), whole)
    torch.testing.assert_close(resumed, last)


def test_scores_that_the_weights_forget(kernel):
    """Weights are at least ½: where q and k are opposite, the denominator is not 0."""
    case = Case(1, 130, 1, states=False)
    _, _, v, *_ = cases.make(case)
    q = torch.full((1, 130, 1, 16), 0.5, dtype=BF16)
    k = -q  # s = −1
    with thunderkittens.backend("simulator", kernel=kernel):
        o = thunderkittens.based_attention(q, k, v)
    want = v.double().cumsum(1) / torch.arange(1, 131).view(-1, 1, 1)
    torch.testing.assert_close(o.double(), want, rtol=0.01, atol=0.02)


def test_not_finite_stays_in_its_head_and_comes_no_earlier(kernel):
    """A NaN spoils its head from its token on: not what came before, not other heads."""
    case = Case(1, 200, 2, states=False)
    q, k, v, *_ = cases.make(case)
    k[0, 100, 1, 3] = float("nan")
    with thunderkittens.backend("simulator", kernel=kernel):
        o = thunderkittens.based_attention(q, k, v)
    assert o[0, :, 0].isfinite().all()
    assert o[0, 100:, 1].isnan().all()
    assert o[0, :64, 1].isfinite().all()


def test_explain(monkeypatch):
    monkeypatch.delenv("THUNDERKITTENS_STRICT")
    q = torch.randn(1, 5, 2, 16).to(BF16)
    stepped = cases.lay_out(q, "stepped")
    with thunderkittens.backend("simulator"):
        found = thunderkittens.explain("based_attention", q, q, q)
        copied = thunderkittens.explain("based_attention", q, stepped, q)
        wide = thunderkittens.explain("based_attention", *[torch.randn(1, 5, 1, 32).to(BF16)] * 3)
    assert (found.backend, found.notes) == ("simulator", ())
    assert "k is copied first: the elements of a row are not neighbours" in str(copied)
    assert wide.backend == "torch"
    assert "feature dimension 32 is not 8 or 16" in str(wide)


def test_explain_says_which_kernel():
    q = torch.randn(1, 5, 2, 16).to(BF16)
    with thunderkittens.backend("simulator"):
        specialised = thunderkittens.explain("based_attention", q, q, q)
    with thunderkittens.backend("simulator", kernel="generic"):
        generic = thunderkittens.explain("based_attention", q, q, q)
    assert specialised.reason == "backend('simulator') is active"
    assert generic.reason == "backend('simulator') is active; it is the generic kernel"
