"""cross_entropy's generic kernels in the simulator: judged by what those for Hopper are."""

import json

import pytest
import torch

import thunderkittens
from tests.families.cross_entropy import cases, linear_cases
from tests.families.cross_entropy import far_cases as far
from tests.families.cross_entropy.cases import BF16, FP32, Case
from tests.families.cross_entropy.simulator_lists import ALL, FAR, ORDERS, POLICIES
from thunderkittens import _C, _loader
from thunderkittens.testing import check_memory, memory

pytestmark = pytest.mark.skipif(
    not _loader.SIMULATOR.is_file(),
    reason="the simulator is not built (python -m build_tools simulator)",
)

LONG = 65537 + 40  # of 16 bits: a row that a multiprocessor has alone


def generic(**options) -> thunderkittens.backend:
    return thunderkittens.backend("simulator", kernel="generic", **options)


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    """A fallback would test torch, not the kernels."""
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "1")


@pytest.mark.parametrize("case", [*ALL, Case(LONG, (2,), BF16, layout="offset")], ids=str)
def test_against_float64(case):
    """Right, within its tensors, and the same bits with other neighbours."""
    inputs = cases.make(case)
    with generic():
        results = check_memory(lambda *t: cases.run(case, *t), *inputs)
    cases.check(case, inputs, results)


@pytest.mark.parametrize("case", linear_cases.every()[1::4], ids=str)
def test_linear_against_float64(case):
    inputs = linear_cases.make(case)
    with generic():
        results = linear_cases.run(case, *inputs)
    linear_cases.check(case, inputs, results)


@pytest.mark.parametrize(("width", "at_once"), [(300, 2), (1100, 14), (1100, 1), (9000, 2)])
def test_far_logits(width, at_once):
    with generic():
        far.check_all("cpu", width, at_once=at_once)


@pytest.mark.parametrize("case", FAR, ids=str)
def test_far_logits_in_two_passes(case):
    inputs = far.make(case)
    with generic():
        results = check_memory(lambda *t: far.run(case, *t), *inputs)
    far.check(case, inputs, results)


@pytest.mark.parametrize("width", [1100, 9000, 33000])
def test_numbers_at_the_edge(width, monkeypatch):
    monkeypatch.delenv("THUNDERKITTENS_STRICT")  # which makes an error of bad targets
    with generic():
        cases.check_rows_that_are_undefined("cpu", width)
        cases.check_rows_that_are_undefined("cpu", width, at_once=1)
        cases.check_targets_without_probability("cpu", width)
        cases.check_no_targets("cpu")
        cases.check_gradients_of_loss_that_are_not_finite("cpu", width)


@pytest.mark.parametrize("width", [1100, 33000])
def test_targets_outside_are_told(width):
    with generic():
        cases.check_targets_outside_are_told("cpu", width, wait=lambda: None)


@pytest.mark.parametrize("case", ORDERS, ids=str)
def test_policies_agree(case):
    """The order of threads and blocks changes no bit; nor does a repetition."""
    inputs = cases.make(case)
    with generic(threads=1):
        want = cases.run(case, *inputs)
    for options in POLICIES:
        with generic(**options):
            for got, first in zip(cases.run(case, *inputs), want, strict=True):
                assert memory.bits_equal(got, first), options


@pytest.mark.parametrize(
    "case",
    [
        Case(5000, (8,), FP32, reduction="sum"),
        Case(9001, (2,), BF16, label_smoothing=0.1),
        Case(cases.STREAMED[0], (4,), BF16),
    ],
    ids=str,
)
def test_blocks_that_others_wait_for_begin_last(case, last_first):
    """Few rows' total is reached in whatever order their blocks begin, to the same bits."""
    inputs = cases.make(case)
    with generic():
        results = cases.run(case, *inputs)
    with generic(policy="eager"):
        want = cases.run(case, *inputs)
    cases.check(case, inputs, results)
    for got, first in zip(results, want, strict=True):
        assert memory.bits_equal(got, first)


@pytest.mark.skipif(not _loader.SIMULATOR_RACE.is_file(), reason="race mode is not built")
@pytest.mark.parametrize("case", ORDERS, ids=str)
def test_no_races(case):
    """Nothing is left to chance in shared memory, and the numbers are those without race mode."""
    inputs = cases.make(case)
    with generic():
        want = cases.run(case, *inputs)
    with generic(policy="random", seed=3, race=True):
        for got, first in zip(cases.run(case, *inputs), want, strict=True):
            assert memory.bits_equal(got, first)


# ---- Which kernel --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "width", "kernel"),
    [
        (9, 1024, "cross_entropy_rows"),
        (9, 32768, "cross_entropy_rows"),
        (9, 32769, "cross_entropy_two_pass"),
        (9, LONG, "cross_entropy_two_pass"),
        (8, 1024, "cross_entropy_rows"),  # few rows
        (8, 1025, "cross_entropy_two_pass"),
        (4, 8193, "cross_entropy_two_pass"),
    ],
)
def test_kernels_of_rows(rows, width, kernel, tmp_path):
    """None is for Hopper: where those take few rows, and wide ones, these go over them twice."""
    x, targets = cases.make(Case(width, (rows,), BF16))
    facts = tmp_path / "facts.json"
    with generic(facts=facts):
        thunderkittens.cross_entropy(x.requires_grad_(), targets)
    launches = json.loads(facts.read_text())["launches"]
    (forward,) = (each for each in launches if each["kernel"] == kernel)
    assert forward["grid"] == [rows, 1, 1]
    others = {"cross_entropy_count", "cross_entropy_total"} if len(launches) > 1 else set()
    assert {each["kernel"] for each in launches} == {kernel, *others}


def test_losses_alone_are_one_pass(tmp_path):
    case = Case(16385, (9,), BF16)
    facts = tmp_path / "facts.json"
    with generic(facts=facts):
        thunderkittens.cross_entropy(*cases.make(case))
    launches = json.loads(facts.read_text())["launches"]
    assert "cross_entropy_loss" in [each["kernel"] for each in launches]


def test_a_row_is_read_twice_and_written_once(tmp_path):
    """By 16-byte accesses, in whole sectors of 32 bytes: three times the row."""
    rows, width = 9, 40960
    x = torch.randn(rows, width).to(BF16).requires_grad_()
    facts = tmp_path / "facts.json"
    with generic(facts=facts):
        thunderkittens.cross_entropy(x, torch.zeros(rows, dtype=torch.int64), reduction="sum")
    (forward,) = (
        each
        for each in json.loads(facts.read_text())["launches"]
        if each["kernel"] == "cross_entropy_two_pass"
    )
    # Beside them: a row's target, 8 bytes for each of 1024 threads; its logit; and the loss.
    total, of_rows = forward["total"], 3 * rows * width * 2
    assert 0 < total["global_bytes"] - of_rows - rows * 1024 * 8 < rows * 100
    assert of_rows // 32 < total["sectors"] < of_rows // 32 * 1.02


def test_explain_and_the_backward_of_a_generic_forward():
    """The graph remembers who computed the forward; both kinds share the backward's kernel."""
    x, targets = cases.make(Case(40))
    x.requires_grad_()
    with generic():
        found = thunderkittens.explain("cross_entropy", x, targets)
        linear = thunderkittens.explain("linear_cross_entropy", x, torch.ones(5, 40), targets)
        loss = thunderkittens.cross_entropy(x, targets)
    for each in (found, linear):
        assert each.reason == "backend('simulator') is active; it is the generic kernel"
    before = _C.launch_counts()["cross_entropy_backward"]
    loss.backward()
    assert _C.launch_counts()["cross_entropy_backward"] == before + 1
