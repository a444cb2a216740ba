"""hedgehog_attention's backward, lane by lane on the CPU: both kernels of it against float64."""

import json

import pytest
import torch

import thunderkittens
from tests.families.hedgehog_attention import cases, gradient_cases
from tests.families.hedgehog_attention.cases import BF16, Case
from tests.tools.in_simulator import (
    check_no_races,
    check_policies_agree,
    needs_race_mode,
    needs_simulator,
)
from thunderkittens import _C, HedgehogState
from thunderkittens.testing import check_memory

pytestmark = needs_simulator

SOME = [
    Case(length=200, heads=1, states=False),
    Case(2, 330, 1, states=False),
    Case(length=330, heads=1, head_dim=64, value_dim=40, states=False),
]


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    """A fallback would test torch, not the kernels."""
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "1")


@pytest.fixture(params=[None, "generic"], ids=["specialised", "generic"])
def kernel(request) -> str | None:
    return request.param


def launches() -> int:
    return _C.launch_counts()["hedgehog_attention_backward"]


@pytest.mark.parametrize("case", gradient_cases.ALL, ids=str)
def test_against_float64(case, kernel):
    """Right, within its tensors, and the same bits with other neighbours; by our kernels."""
    inputs = gradient_cases.make(case)
    before = launches()
    with thunderkittens.backend("simulator", kernel=kernel):
        results = check_memory(lambda *t: gradient_cases.run_case(case, t), *inputs)
    assert launches() >= before + 2
    gradient_cases.check_case(case, inputs, results)


@pytest.mark.parametrize("case", SOME, ids=str)
def test_policies_agree(case, kernel):
    inputs = gradient_cases.make(case)
    check_policies_agree(lambda: gradient_cases.run_case(case, inputs), kernel=kernel)


@needs_race_mode
@pytest.mark.parametrize("case", SOME, ids=str)
def test_no_races(case, kernel):
    inputs = gradient_cases.make(case)
    check_no_races(lambda: gradient_cases.run_case(case, inputs), kernel=kernel)


@pytest.mark.parametrize("which", range(7))
def test_gradient_of_one_input_alone(which, kernel):
    """What is not needed is not written, and what is is the same."""
    case = Case(1, 200, 2, states=False)
    *tensors, dy = gradient_cases.make(case)
    with thunderkittens.backend("simulator", kernel=kernel):
        want = gradient_cases.run_case(case, [*tensors, dy])[which]
        *given, alpha, beta = (t.detach().requires_grad_(i == which) for i, t in enumerate(tensors))
        y = thunderkittens.hedgehog_attention(*given, alpha=alpha, beta=beta)
        (got,) = torch.autograd.grad(y, [*given, alpha, beta][which], dy)
    assert torch.equal(got, want)


def test_keys_that_are_equal_share_the_gradient_of_the_maximum(kernel):
    """Scores are equal bit by bit in both passes, also of keys in both blocks of a window."""
    case = Case(1, 140, 1, states=False)
    q, k, *rest = gradient_cases.make(case)
    k = k[:, :3].repeat(1, 47, 1, 1)[:, :140].contiguous()
    with thunderkittens.backend("simulator", kernel=kernel):
        results = gradient_cases.run_case(case, [q, k, *rest])
    gradient_cases.check_case(case, [q, k, *rest], results)


def test_not_finite_stays_in_its_head(kernel):
    """A NaN of dy spoils gradients of its head alone, and of no later queries."""
    case = Case(length=300, states=False)
    inputs = gradient_cases.make(case)
    inputs[-1][0, 200, 1, 3] = float("nan")
    with thunderkittens.backend("simulator", kernel=kernel):
        dq, dk, dv, dq_map, dk_map, dalpha, dbeta = gradient_cases.run_case(case, inputs)
    for of_tokens in (dq, dk, dv):
        assert of_tokens[:, :, 0].isfinite().all()
    for of_heads in (dq_map, dk_map, dalpha, dbeta):
        assert of_heads[0].isfinite().all()
        assert of_heads[1].isnan().any()
    assert dq[0, 201:, 1].isfinite().all()
    assert dq[0, 200, 1].isnan().all()


def test_explain_says_who_differentiates(monkeypatch):
    monkeypatch.delenv("THUNDERKITTENS_STRICT")
    case = Case(length=5)
    q, k, v, *maps, alpha, beta = cases.make(case)[:7]
    state = HedgehogState(*cases.make(case)[7:])

    def explain(**options):
        with thunderkittens.backend("simulator"):
            return thunderkittens.explain(
                "hedgehog_attention", q, k, v, *maps, alpha=alpha, beta=beta, **options
            )

    assert explain().notes == ()
    q.requires_grad_()
    assert explain().notes == ("its backward is computed by a kernel, too",)
    (note,) = explain(initial_state=state).notes
    assert note == (
        "its backward is computed by torch: gradients of a sequence with a window before it are "
        "computed by torch"
    )


def test_gradients_through_the_final_state_are_torchs(monkeypatch):
    """Where the state is asked for and not used, they are the kernels'."""
    case = Case(1, 140, 1, states=False)
    *tensors, dy = gradient_cases.make(case)
    given = [t.detach().requires_grad_() for t in tensors]
    *five, alpha, beta = given

    def call():
        return thunderkittens.hedgehog_attention(
            *five, alpha=alpha, beta=beta, output_final_state=True
        )

    with thunderkittens.backend("simulator"):
        y, _ = call()
        before = launches()
        results = torch.autograd.grad(y, given, dy)
        assert launches() == before + 1
        alone = gradient_cases.run_case(case, [*tensors, dy])
        for got, want in zip(results, alone, strict=True):
            assert torch.equal(got, want)
        y, state = call()
        with pytest.raises(RuntimeError, match="through the final state are computed by torch"):
            torch.autograd.grad([y, state.kv_state], given, [dy, torch.ones_like(state.kv_state)])
        monkeypatch.delenv("THUNDERKITTENS_STRICT")
        with pytest.warns(UserWarning, match="through the final state are computed by torch"):
            torch.autograd.grad(
                call()[1].kv_state, given, torch.ones_like(state.kv_state), allow_unused=True
            )


def test_the_gradient_of_a_sum(kernel):
    """dy of one element, broadcast, is copied first."""
    case = Case(1, 70, 1, states=False)
    *tensors, _ = gradient_cases.make(case)
    with thunderkittens.backend("simulator", kernel=kernel):
        expanded = torch.ones((), dtype=BF16).expand(1, 70, 1, 128)
        got = gradient_cases.run_case(case, [*tensors, expanded])
        want = gradient_cases.run_case(case, [*tensors, expanded.contiguous()])
    for one, other in zip(got, want, strict=True):
        assert torch.equal(one, other)


def test_no_bank_conflicts(tmp_path):
    """Of the generic kernel: copies, products, and what leaves, of all passes."""
    case = Case(1, 330, 1, states=False)
    facts = tmp_path / "facts.json"
    with thunderkittens.backend("simulator", kernel="generic", facts=facts):
        gradient_cases.run_case(case, gradient_cases.make(case))
    launches = json.loads(facts.read_text())["launches"]
    found = [x for x in launches if x["kernel"] == "hedgehog_attention_generic_gradient"]
    assert len(found) == 3
    for each in found:
        assert each["total"]["wavefronts"] == each["total"]["passes"] > 0
