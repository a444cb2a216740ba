"""The kernels of cross_entropy, lane by lane on the CPU: test_cross_entropy.py's list in small."""

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

PARTS = ("forward", "count", "total")


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    """A fallback would test torch, not the kernels."""
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "1")


@pytest.mark.parametrize("case", ALL, ids=str)
def test_against_float64(case):
    """Right, within its tensors, and the same bits with other neighbours."""
    inputs = cases.make(case)
    before = _C.launch_counts()["cross_entropy_forward"]
    with thunderkittens.backend("simulator"):
        results = check_memory(lambda *t: cases.run(case, *t), *inputs)
    assert _C.launch_counts()["cross_entropy_forward"] == before + 4  # two runs, with and without
    cases.check(case, inputs, results)


@pytest.mark.parametrize("case", linear_cases.every()[::2], ids=str)
def test_linear_against_float64(case):
    inputs = linear_cases.make(case)
    with thunderkittens.backend("simulator"):
        results = check_memory(lambda *t: linear_cases.run(case, *t), *inputs)
    linear_cases.check(case, inputs, results)


@pytest.mark.parametrize(
    ("width", "at_once"),
    [(1, 14), (300, 14), (300, 2), (1100, 14), (1100, 1), (9000, 14), (9000, 2)],
)
def test_far_logits(width, at_once):
    """Beyond 1e9, where neighbours differ in probability by e⁶⁴: all forms but the ring."""
    with thunderkittens.backend("simulator"):
        far.check_all("cpu", width, at_once=at_once)


@pytest.mark.parametrize("case", FAR, ids=str)
def test_far_logits_in_the_ring(case):
    inputs = far.make(case)
    with thunderkittens.backend("simulator"):
        results = check_memory(lambda *t: far.run(case, *t), *inputs)
    far.check(case, inputs, results)


@pytest.mark.parametrize("width", [300, 1100, 9000, 33000])
def test_numbers_at_the_edge(width, monkeypatch):
    monkeypatch.delenv("THUNDERKITTENS_STRICT")  # which makes an error of bad targets
    with thunderkittens.backend("simulator"):
        cases.check_rows_that_are_undefined("cpu", width)
        cases.check_rows_that_are_undefined("cpu", width, at_once=1)
        cases.check_targets_without_probability("cpu", width)
        cases.check_no_targets("cpu")
        cases.check_gradients_of_loss_that_are_not_finite("cpu", width)
        linear_cases.check_gradients_of_loss_that_are_not_finite("cpu")


@pytest.mark.parametrize("width", [300, 1100, 8200, 9000, 33000])
def test_targets_outside_are_told(width):
    with thunderkittens.backend("simulator"):
        cases.check_targets_outside_are_told("cpu", width, wait=lambda: None)


def test_targets_outside_are_not_told(monkeypatch):
    """What was met without THUNDERKITTENS_STRICT=1 stays NaN alone."""
    monkeypatch.delenv("THUNDERKITTENS_STRICT")
    x, targets = torch.randn(3, 40), torch.tensor([1, 40, -3])
    with thunderkittens.backend("simulator"):
        for _ in range(2):
            loss = thunderkittens.cross_entropy(x, targets, reduction="none")
            assert loss.isnan().tolist() == [False, True, True]
        monkeypatch.setenv("THUNDERKITTENS_STRICT", "1")
        thunderkittens.cross_entropy(x, targets[:1].expand(3))


@pytest.mark.parametrize("case", ORDERS, ids=str)
def test_policies_agree(case):
    """The order of threads, blocks and asynchronous work changes no bit; nor does a repetition."""
    inputs = cases.make(case)
    with thunderkittens.backend("simulator", threads=1):
        want = cases.run(case, *inputs)
    for options in POLICIES:
        with thunderkittens.backend("simulator", **options):
            for got, first in zip(cases.run(case, *inputs), want, strict=True):
                assert memory.bits_equal(got, first), options


@pytest.mark.parametrize(
    ("width", "dtype", "calls"),
    [
        (1000, BF16, [(1, 2, 4, 5, 8, 9, 40)]),  # rows of a warp
        (512, FP32, [(1, 2, 4, 5, 8, 9, 40)]),
        (5000, FP32, [(1, 2, 4, 5, 8), (9, 12)]),  # few, in clusters of any size, and many
        (9000, BF16, [(1, 2, 4), (5, 9)]),
    ],
)
def test_bits_of_a_row(width, dtype, calls):
    """They are the same in calls of how many rows soever, as far as the docstring says so."""
    row, target = cases.make(Case(width, (1,), dtype, ignored=0))
    for rows_of_calls in calls:
        found = []
        for rows in rows_of_calls:
            x = torch.randn(rows, width).to(dtype)
            x[-1] = row[0]
            with thunderkittens.backend("simulator"):
                loss, gradient = cases.losses(x, target.expand(rows))
            found.append((loss[-1], gradient[-1]))
        for got in found[1:]:
            assert all(memory.bits_equal(a, b) for a, b in zip(got, found[0], strict=True))


@pytest.mark.parametrize(
    "case",
    [
        Case(40, (8,), BF16),
        Case(5000, (8,), FP32, reduction="sum"),
        Case(9001, (2,), BF16, label_smoothing=0.1),
        Case(cases.STREAMED[0], (4,), BF16),
    ],
    ids=str,
)
def test_blocks_that_others_wait_for_begin_last(case, last_first):
    """Few rows' total is reached in whatever order their blocks begin, to the same bits."""
    inputs = cases.make(case)
    with thunderkittens.backend("simulator"):
        results = cases.run(case, *inputs)
    with thunderkittens.backend("simulator", policy="eager"):
        want = cases.run(case, *inputs)
    cases.check(case, inputs, results)
    for got, first in zip(results, want, strict=True):
        assert memory.bits_equal(got, first)


@pytest.mark.skipif(not _loader.SIMULATOR_RACE.is_file(), reason="race mode is not built")
@pytest.mark.parametrize("case", ORDERS, ids=str)
def test_no_races(case):
    """Nothing is left to chance in shared memory, and the numbers are those without race mode."""
    inputs = cases.make(case)
    with thunderkittens.backend("simulator"):
        want = cases.run(case, *inputs)
    with thunderkittens.backend("simulator", policy="random", seed=3, race=True):
        for got, first in zip(cases.run(case, *inputs), want, strict=True):
            assert memory.bits_equal(got, first)


@pytest.mark.parametrize(
    ("rows", "width", "grid"),
    [
        (1, 1024, [1, 1, 1]),  # rows of a warp
        (1, 4096, [1, 1, 1]),
        (1, 4097, [2, 1, 1]),
        (1, 8193, [4, 1, 1]),
        (2, 9000, [2, 2, 1]),
        (3, 9000, [1, 3, 1]),
        (8, 8192, [1, 8, 1]),
        (4, 16384, [1, 4, 1]),
        (4, 16385, [4, 1, 1]),  # the ring
        (1, 65536, [4, 1, 1]),
        (1, 65537, [1, 1, 1]),  # the ring
    ],
)
def test_blocks_of_few_rows(rows, width, grid, tmp_path):
    """More where one would have over 4096 columns, up to a multiprocessor each, if they hold it."""
    x, targets = cases.make(Case(width, (rows,), BF16))
    facts = tmp_path / "facts.json"
    with thunderkittens.backend("simulator", facts=facts):
        thunderkittens.cross_entropy(x, targets)
    (launch,) = json.loads(facts.read_text())["launches"]
    assert launch["grid"] == grid


@pytest.mark.parametrize(("width", "few"), [(300, 8), (8192, 8), (8193, 4), (cases.STREAMED[0], 4)])
def test_few_rows_are_one_launch(width, few):
    """Two of each of the four multiprocessors, one if long; of more, others count and add up."""
    for rows, others in ((few, 0), (few + 1, 1)):
        x, targets = cases.make(Case(width, (rows,), BF16))
        x.requires_grad_()
        before = _C.launch_counts()
        with thunderkittens.backend("simulator"):
            thunderkittens.cross_entropy(x, targets)
        after = _C.launch_counts()
        launched = {
            name: after[f"cross_entropy_{name}"] - before[f"cross_entropy_{name}"] for name in PARTS
        }
        assert launched == {"forward": 1, "count": others, "total": others}


def test_a_gradient_times_1_is_not_touched():
    """In place, a row whose factor is 1 is not even read: its NaN would become another."""
    gradient = torch.full((3, 40), float("nan"))
    gradient.view(torch.int32).fill_(0x7FC01234)
    dloss = torch.tensor([1.0, 2.0, 1.0])
    with thunderkittens.backend("simulator"):
        torch.ops.thunderkittens.cross_entropy_backward_(gradient, dloss)
    assert (gradient[::2].view(torch.int32) == 0x7FC01234).all()
    assert gradient.isnan().all()


@pytest.mark.parametrize("shape", [(0, 8), (3, 0)], ids=str)
def test_empty_launches_nothing(shape):
    x = torch.randn(shape, requires_grad=True)
    targets = torch.full(shape[:1], -100)
    before = _C.launch_counts()
    with thunderkittens.backend("simulator"):
        thunderkittens.cross_entropy(x, targets).backward()
    assert x.grad.shape == shape
    assert _C.launch_counts() == before


def test_backward_outside_of_the_context():
    """The graph remembers who computed the forward."""
    x, targets = cases.make(Case(40))
    x.requires_grad_()
    with thunderkittens.backend("simulator"):
        loss = thunderkittens.cross_entropy(x, targets)
    before = _C.launch_counts()["cross_entropy_backward"]
    loss.backward()
    assert _C.launch_counts()["cross_entropy_backward"] == before + 1


def test_explain():
    x, targets = torch.randn(4, 6, 8), torch.zeros(4, 6, dtype=torch.int64)
    with thunderkittens.backend("simulator"):
        found = thunderkittens.explain("cross_entropy", x, targets)
        copied = thunderkittens.explain("cross_entropy", x.transpose(0, 1), targets.T)
        linear = thunderkittens.explain("linear_cross_entropy", x, torch.ones(5, 8), targets)
    assert (found.backend, found.notes) == (linear.backend, ()) == ("simulator", ())
    assert "logits is copied first: its strides [8, 48, 1]" in str(copied)
