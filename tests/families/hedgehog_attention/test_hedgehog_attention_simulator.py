"""hedgehog_attention's kernels, the one for Hopper and the generic one, lane by lane on the CPU."""

import json

import pytest
import torch

import thunderkittens
from tests.families.hedgehog_attention import cases
from tests.families.hedgehog_attention.cases import FP16, Case
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
    *cases.lengths(Case()),
    *cases.options(Case()),
    *cases.layouts(Case()),
    *cases.widths(Case()),
    *cases.layouts(Case(heads=1, head_dim=72, value_dim=48)),
    Case(dtype=FP16),
    # Segments: fewer heads than multiprocessors, and blocks for several.
    Case(length=1030, heads=1),
    Case(length=1090, heads=2, dtype=FP16, states=False),
    Case(length=1030, heads=1, head_dim=64, value_dim=64),
]
SOME = [
    Case(length=200, heads=1),
    Case(length=1030, heads=1),
    Case(length=200, heads=1, head_dim=64, value_dim=40),
]


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    """A fallback would test torch, not the kernels."""
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "1")


@pytest.fixture(params=[None, "generic"], ids=["specialised", "generic"])
def kernel(request) -> str | None:
    return request.param


def launches() -> int:
    return _C.launch_counts()["hedgehog_attention"]


@pytest.mark.parametrize("case", ALL, ids=str)
def test_against_float64(case, kernel):
    """Right, within its tensors, and the same bits with other neighbours; by our kernel."""
    inputs = cases.make(case)
    before = launches()
    with thunderkittens.backend("simulator", kernel=kernel):
        results = check_memory(
            lambda *t: cases.run_case(case, t), *[t for t in inputs if t is not None]
        )
    assert launches() >= before + 2
    cases.check_case(case, inputs, results)


@pytest.mark.parametrize("case", SOME, ids=str)
def test_policies_agree(case, kernel):
    inputs = cases.make(case)
    check_policies_agree(lambda: cases.run_case(case, inputs), kernel=kernel)


@needs_race_mode
@pytest.mark.parametrize("case", SOME, ids=str)
def test_no_races(case, kernel):
    inputs = cases.make(case)
    check_no_races(lambda: cases.run_case(case, inputs), kernel=kernel)


@pytest.mark.parametrize("at", [64, 128])
def test_a_sequence_resumes_from_its_state(at, kernel):
    """As the whole, but for where Hopper's kernel rounds the state: before each pair of blocks."""
    case = Case(length=260, heads=1, states=False)
    q, k, v, q_map, k_map, alpha, beta, *_ = inputs = cases.make(case)
    options = {"alpha": alpha, "beta": beta, "output_final_state": True}
    with thunderkittens.backend("simulator", kernel=kernel):
        pieces, state = [], None
        for part in (slice(0, at), slice(at, None)):
            y, state = thunderkittens.hedgehog_attention(
                *(t[:, part] for t in (q, k, v)), q_map, k_map, initial_state=state, **options
            )
            pieces.append(y)
        whole, final = thunderkittens.hedgehog_attention(q, k, v, q_map, k_map, **options)
    cases.check_case(case, inputs, [torch.cat(pieces, 1)])
    if kernel == "generic":  # which adds up features in parts, and the state's in another order
        torch.testing.assert_close(torch.cat(pieces, 1), whole, rtol=2**-7, atol=2**-9)
    elif at == 128:
        assert torch.equal(torch.cat(pieces, 1), whole)
    for got, want in zip(state, final, strict=True):
        torch.testing.assert_close(got, want)


def test_not_finite_stays_in_its_head_and_comes_no_earlier(kernel):
    """A NaN spoils its head from its token on: not what came before, not other heads."""
    case = Case(length=300, states=False)
    q, k, v, *fixed, alpha, beta = cases.make(case)[:7]
    k[0, 100, 1, 3] = float("nan")
    with thunderkittens.backend("simulator", kernel=kernel):
        y = thunderkittens.hedgehog_attention(q, k, v, *fixed, alpha=alpha, beta=beta)
    assert y[0, :, 0].isfinite().all()
    assert y[0, 100:, 1].isnan().all()
    assert y[0, :100, 1].isfinite().all()


def test_explain(monkeypatch):
    monkeypatch.delenv("THUNDERKITTENS_STRICT")
    case = Case(length=5, states=False)
    q, k, v, *fixed, alpha, beta = cases.make(case)[:7]

    def explain(*tensors):
        with thunderkittens.backend("simulator"):
            return thunderkittens.explain("hedgehog_attention", *tensors, alpha=alpha, beta=beta)

    found = explain(q, k, v, *fixed)
    assert (found.backend, found.notes) == ("simulator", ())
    copied = explain(q, cases.lay_out(k, "stepped"), v, *fixed)
    assert "k is copied first: the elements of a row are not neighbours" in str(copied)
    assert explain(q, k, v[..., :64].contiguous(), *fixed).backend == "simulator"
    odd = explain(q, k, v[..., :60], *fixed)
    assert odd.backend == "torch"
    assert "head dimension 60 is not one of 8, 16 … 128" in str(odd)
    wide = explain(q, k, torch.cat([v, v[..., :8]], -1), *fixed)
    assert "head dimension 136 is not one of 8, 16 … 128" in str(wide)
    assert "maps to 32 columns are not to 64" in str(
        explain(q, k, v, *(m[..., :32] for m in fixed))
    )


def test_explain_says_which_kernel():
    q, k, v, *fixed, alpha, beta = cases.make(Case(length=5, states=False))[:7]
    reasons = []
    for kind in (None, "generic"):
        with thunderkittens.backend("simulator", kernel=kind):
            found = thunderkittens.explain(
                "hedgehog_attention", q, k, v, *fixed, alpha=alpha, beta=beta
            )
        reasons.append(found.reason)
    assert reasons == [
        "backend('simulator') is active",
        "backend('simulator') is active; it is the generic kernel",
    ]


def test_no_bank_conflicts(tmp_path):
    """Of the generic kernel: copies, products, features, states and results, of both launches."""
    case = Case(length=1030, heads=1)
    facts = tmp_path / "facts.json"
    with thunderkittens.backend("simulator", kernel="generic", facts=facts):
        cases.run_case(case, cases.make(case))
    launches = json.loads(facts.read_text())["launches"]
    assert [each["kernel"] for each in launches] == ["hedgehog_attention_generic"] * 2
    for each in launches:
        assert each["total"]["wavefronts"] == each["total"]["passes"] > 0
