"""attention's gradients by the generic kernel, lane by lane on the CPU.

Judged by what the kernel for Hopper is. Calls of the backward alone are asked of both:
test_attention_backward_simulator.py.
"""

import json
import math

import pytest

import thunderkittens
from tests.families.attention import cases, gradient_cases
from tests.families.attention import gradient_checks as checks
from tests.families.attention import gradient_lists as lists
from tests.families.attention.cases import BF16, FP16, FP32, Case
from tests.families.attention.forward_checks import launches
from thunderkittens import _loader

pytestmark = pytest.mark.skipif(
    not _loader.SIMULATOR.is_file(),
    reason="the simulator is not built (python -m build_tools simulator)",
)

# Its tiles have 128 keys, of heads above 128 32; its blocks 64 rows, or 32.
WIDE = [
    Case(n, m, causal, 2, 256 - 8 * (n == 33), dtype, value_dim=width)
    for n, m, causal, dtype, width in (
        (33, 65, True, BF16, 256),
        (64, 96, False, FP16, 136),
        (70, 31, True, BF16, 192),
    )
]
BEYOND = [
    Case(70, 130, True, 2, 128, batch=2, seqused_k=(100, 33), leftpad_k=(0, 20), sinks=FP32),
    Case(40, 70, False, 2, 256, FP16, batch=2, leftpad_k=(33, 69)),
]
NUMBERS = [
    *lists.options(70, 130),
    *WIDE,
    *BEYOND,
    *lists.random_cases(seed=23, count=20, longest=130, widest=256),
]
KINDS = [
    check
    for check in lists.every_kind(70, 130, few_of_each=True)
    if check.function is not checks.check_not_finite
]
SPOILT = [
    lists.Check(checks.check_not_finite, Case(150, 150, True, key_heads=3), where)
    for where in (("q", math.nan), ("k", math.inf), ("v", math.nan), ("dout", math.inf))
]


def generic(**options) -> thunderkittens.backend:
    return thunderkittens.backend("simulator", kernel="generic", **options)


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    """A fallback would test torch, not the kernel."""
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "1")


@pytest.mark.parametrize("check", [*lists.numbers(NUMBERS), *KINDS, *SPOILT], ids=str)
def test_in_the_simulator(check):
    before = launches("attention_backward")
    with generic():
        check("cpu")
    assert launches("attention_backward") > before


@pytest.mark.parametrize(("width", "softcap"), [(64, 5.0), (128, 0.0), (256, 5.0)])
def test_no_bank_conflicts(width, softcap, tmp_path):
    """Of copies, ldmatrix, ds and p, dk and dv on their way, and at the tensors' ends.

    A whole tile of keys and a part of one at each width: facts cost seconds. (A softcap moves
    nothing else.)
    """
    keys = 150 - (128 - 32) * (width > 128)
    case = Case(70, keys, True, head_dim=width, softcap=softcap)
    tensors, dout, dlse = checks.tensors_of(case, "cpu", with_lse=True)
    facts = tmp_path / "facts.json"
    with generic(facts=facts):
        checks.run(case, tensors, dout, dlse)
    found = {launch["kernel"]: launch["total"] for launch in _launches(facts)}
    total = found["attention_backward_generic"]
    assert total["wavefronts"] == total["passes"] > 0


def test_dq_that_is_not_needed_is_not_computed(tmp_path):
    """Four products instead of five, and no integers added up."""
    case = Case(64, 128)
    (q, k, v), dout, _ = checks.tensors_of(case, "cpu", with_lse=False)
    flops = []
    for needed in (True, False):
        facts = tmp_path / f"{needed}.json"
        leaves = [q.detach().requires_grad_(needed), k.requires_grad_(), v.requires_grad_()]
        with generic(facts=facts):
            thunderkittens.attention(*leaves).backward(dout)
        (total,) = (
            launch["total"]
            for launch in _launches(facts)
            if launch["kernel"] == "attention_backward_generic"
        )
        flops.append(total["flops"])
    assert flops == [n * 2 * 64 * 128 * 64 for n in (5, 4)]


def _launches(facts) -> list[dict]:
    return json.loads(facts.read_text())["launches"]


def test_a_case_of_budgets_runs_the_generic_kernel(tmp_path):
    """As each of them does: their kernels' names stand in budgets.json."""
    case = Case(20, 24, True, 2, generic=True)
    facts = tmp_path / "facts.json"
    inputs = gradient_cases.make(case)
    with thunderkittens.backend("simulator", facts=facts):
        gradient_cases.check_case(case, inputs, gradient_cases.run_case(case, inputs))
    names = [launch["kernel"] for launch in _launches(facts)]
    assert "attention_backward_generic" in names and "attention_backward" not in names


# ---- Which kernel --------------------------------------------------------------------------------


def test_explain_says_that_a_kernel_differentiates():
    q, k, v = cases.make(Case(9, 9))
    with generic():
        found = thunderkittens.explain("attention", q.requires_grad_(), k, v)
    assert found.reason.endswith("it is the generic kernel")
    assert found.notes == ("its backward is computed by a kernel, too",)


def test_a_backward_has_the_kernels_of_its_forward(tmp_path):
    """Also outside of the context that chose them."""
    leaves = [t.requires_grad_() for t in cases.make(Case(20, 24))]
    facts = tmp_path / "facts.json"
    with generic():
        o = thunderkittens.attention(*leaves)
    with thunderkittens.backend("simulator", facts=facts):
        o.sum().backward()
    assert "attention_backward_generic" in [launch["kernel"] for launch in _launches(facts)]
