"""attention's generic kernel, lane by lane on the CPU: judged by what the specialised one is."""

import dataclasses
import json

import pytest
import torch

import thunderkittens
from tests.families.attention import cases, forward_checks, layouts, logits, padded_lists, softmax
from tests.families.attention.cases import BF16, FP16, Case
from tests.families.attention.simulator_lists import ALL, OF_EACH_KIND, POLICIES, RANDOM
from thunderkittens import _loader
from thunderkittens.testing import memory

pytestmark = pytest.mark.skipif(
    not _loader.SIMULATOR.is_file(),
    reason="the simulator is not built (python -m build_tools simulator)",
)

WIDTHS = (72, 96, 128, 192, 256)  # beside 64 and 128, which ALL has: 96 and 256, and some between
# Of each kernel, whole and ragged tiles of it, and blocks that rows skip.
OF_EACH_WIDTH = [
    Case(n, n + 30, causal, 2, width, dtype, value_dim=width - 8 * (n == 70))
    for width in WIDTHS
    for n, causal, dtype in ((64, False, BF16), (70, True, FP16))
]
PADDED = [*padded_lists.padded(70, 150), *padded_lists.wide(70, 150)]
POLICY_CASES = [*OF_EACH_KIND, PADDED[2], PADDED[-1], Case(70, 130, True, 2, 96)]
FAR = [case for case in logits.FAR if case.exponent in (23, 24, 30, 127)]


def generic(**options) -> thunderkittens.backend:
    return thunderkittens.backend("simulator", kernel="generic", **options)


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    """A fallback would test torch, not the kernel."""
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "1")


@pytest.mark.parametrize("case", [*ALL, *OF_EACH_WIDTH, *PADDED], ids=str)
def test_against_float64(case):
    with generic():
        forward_checks.check_numbers(case, "cpu")


@pytest.mark.filterwarnings("ignore:attention. computed by torch")
@pytest.mark.parametrize("case", RANDOM, ids=str)
def test_random_cases(case, monkeypatch):
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "0")
    with generic():
        forward_checks.check_any(case, "cpu", gradients=False)


@pytest.mark.parametrize("case", POLICY_CASES, ids=str)
def test_policies_agree(case):
    """The order of threads, blocks and asynchronous copies changes no bit."""
    tensors = cases.make(case)
    with generic(threads=1):
        want = cases.forward(case, *tensors)
    for options in POLICIES:
        with generic(**options):
            got = cases.forward(case, *tensors)
        assert all(map(memory.bits_equal, got, want)), options


@pytest.mark.skipif(not _loader.SIMULATOR_RACE.is_file(), reason="race mode is not built")
@pytest.mark.parametrize("case", POLICY_CASES, ids=str)
def test_no_races(case):
    """Nothing is left to chance in shared memory, and the numbers are those without race mode."""
    tensors = cases.make(case)
    with generic():
        want = cases.forward(case, *tensors)
    for options in ({"policy": "lazy"}, {"policy": "random", "seed": 3}):
        with generic(race=True, **options):
            got = cases.forward(case, *tensors)
        assert all(map(memory.bits_equal, got, want)), options


@pytest.mark.parametrize("width", [64, 96, 128, 256])
def test_no_bank_conflicts(width, tmp_path):
    """Of copies, ldmatrix, the output's way through shared memory, and at the tensors' ends."""
    facts = tmp_path / "facts.json"
    with generic(facts=facts):
        cases.forward(Case(70, 100, True, 2, width), *cases.make(Case(70, 100, True, 2, width)))
    (launch,) = json.loads(facts.read_text())["launches"]
    assert launch["kernel"].startswith("attention_generic"), launch["kernel"]
    assert launch["total"]["wavefronts"] == launch["total"]["passes"] > 0


@pytest.mark.parametrize("layout", layouts.LAYOUTS)
def test_strides_change_no_bit(layout):
    with generic():
        cases.check_layout(Case(33, 33, group=2, key_heads=2, batch=2, layout=layout), "cpu")
        cases.check_layout(Case(1, 1, layout=layout), "cpu")


@pytest.mark.parametrize("case", OF_EACH_KIND[1:3], ids=str)
def test_not_finite(case):
    with generic():
        cases.check_not_finite(case, "cpu")


def test_without_lse():
    case = Case(65, 70, True)
    tensors = cases.make(case)
    with generic():
        o = thunderkittens.attention(*tensors, causal=True)
        again, _ = cases.forward(case, *tensors)
    assert memory.bits_equal(o, again)


@pytest.mark.parametrize("case", FAR, ids=str)
def test_rows_whose_logits_are_large(case):
    with generic():
        logits.check_far(case, "cpu")


@pytest.mark.parametrize("case", logits.RISING[::4], ids=str)
def test_rows_whose_large_logits_rise(case):
    with generic():
        logits.check_rising(case, "cpu")


@pytest.mark.parametrize(("cap", "dtype"), [(1e-6, BF16), (30.0, FP16), (1e4, BF16), (1e6, FP16)])
def test_softcap(cap, dtype):
    with generic():
        logits.check_softcap(cap, dtype, "cpu", 64)
        logits.check_softcap_of_many_keys(cap, dtype, "cpu", 64)


@pytest.mark.parametrize("number", range(len(softmax.FAMILIES)))
def test_errors_are_those_of_a_running_maximum(number):
    dtype = (BF16, FP16)[number % 2]
    with generic():
        family = softmax.FAMILIES[number]
        softmax.check_family(family, dtype, "cpu", rows=64, keys=400, width=128, lags=True)


@pytest.mark.parametrize("by", [9, 60, 500])
def test_rows_that_jump(by):
    with generic():
        softmax.check_jump(by, FP16, "cpu", keys=200, large=True, width=96)


@pytest.mark.parametrize("width", [40, 72, 136])
def test_what_lies_behind_a_heads_columns_is_not_read(width):
    """NaN in other columns of the tensor would make scores NaN, whatever they are multiplied by."""
    random = torch.Generator().manual_seed(width)
    full = torch.full((3, 1, 70, 2, width + 8), torch.nan, dtype=torch.bfloat16)
    q, k, v = full[..., :width]
    for x in (q, k, v):
        x.copy_(torch.randn(x.shape, generator=random))
    with generic():
        found = thunderkittens.attention(q, k, v)
        expected = thunderkittens.attention(q.contiguous(), k.contiguous(), v.contiguous())
    assert torch.equal(found, expected)


def test_sinks_alone():
    with generic():
        softmax.check_sinks_alone("cpu", rows=64, keys=300)


# ---- Which kernel --------------------------------------------------------------------------------


def test_the_specialised_kernel_is_taken_unless_the_generic_one_is_asked_for():
    tensors = cases.make(Case(9, 9))
    with thunderkittens.backend("simulator"):
        assert thunderkittens.explain("attention", *tensors).reason == (
            "backend('simulator') is active"
        )
    with generic():
        assert thunderkittens.explain("attention", *tensors).reason == (
            "backend('simulator') is active; it is the generic kernel"
        )
        # Of an op that has one kernel for all architectures, that one.
        found = thunderkittens.explain("gelu", torch.ones(2, 8))
    assert str(found) == "gelu: simulator (backend('simulator') is active)"


def test_a_case_of_budgets_runs_the_generic_kernel(tmp_path):
    case = dataclasses.replace(Case(9, 9), generic=True)
    facts = tmp_path / "facts.json"
    with thunderkittens.backend("simulator", facts=facts):
        cases.run_case(case, cases.make(case))
    (launch,) = json.loads(facts.read_text())["launches"]
    assert launch["kernel"].startswith("attention_generic")
