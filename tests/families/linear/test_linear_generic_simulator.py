"""linear's generic kernel in the simulator: judged by what the one for Hopper is."""

import json

import pytest

import thunderkittens
from tests.families.linear import cases
from tests.families.linear.cases import FP16, Case
from tests.tools.in_simulator import (
    check_no_races,
    check_policies_agree,
    needs_race_mode,
    needs_simulator,
)
from thunderkittens import _C
from thunderkittens.testing import check_memory, memory

pytestmark = needs_simulator

SOME = [
    Case((3,), 1000, 600, residual=True),
    Case((11,), 328, 88, FP16, bias=True, activation="swiglu"),
    Case((5,), 1000, 72, norm=1e-6),
    Case((9,), 203, 40, weight_layout="wide", x_layout="wide"),
]


def generic(**options: object) -> thunderkittens.backend:
    return thunderkittens.backend("simulator", kernel="generic", **options)


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    """A fallback would test torch, not the kernel."""
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "1")


@pytest.mark.parametrize("case", cases.every(), ids=str)
def test_against_float64(case):
    """Right, within its tensors, and the same bits with other neighbours; by our kernel."""
    inputs = cases.make(case)
    before = _C.launch_counts()["linear"]
    with generic():
        results = check_memory(lambda *t: cases.run_case(case, t), *inputs)
    assert _C.launch_counts()["linear"] == before + 2
    cases.check_case(case, inputs, results)


@pytest.mark.parametrize("case", SOME, ids=str)
def test_policies_agree(case):
    inputs = cases.make(case)
    check_policies_agree(lambda: cases.run_case(case, inputs), kernel="generic")


@needs_race_mode
@pytest.mark.parametrize("case", SOME, ids=str)
def test_no_races(case):
    inputs = cases.make(case)
    check_no_races(lambda: cases.run_case(case, inputs), kernel="generic")


def test_rows_and_columns_do_not_depend_on_their_neighbours():
    """The bits of a row are those of it alone, and those of a column of a shorter weight."""
    x, weight, *_ = cases.make(Case((11,), 520, 300))
    with generic():
        y = thunderkittens.linear(x, weight)
        assert memory.bits_equal(thunderkittens.linear(x[2:3], weight), y[2:3])
        some = thunderkittens.linear(x, weight[33:90])
    assert memory.bits_equal(some, y[:, 33:90].contiguous())


@pytest.mark.parametrize(("rows", "columns"), [(1, 512), (16, 512), (7, 2048)])
def test_weights_are_read_once_without_bank_conflicts(rows, columns, tmp_path):
    """x once for 16 or 32 columns, and but for the sums no access to shared memory waits."""
    case = Case((rows,), 1024, columns)
    inputs = cases.make(case)
    facts = tmp_path / "facts.json"
    with generic(facts=facts):
        cases.run_case(case, inputs)
    (launch,) = json.loads(facts.read_text())["launches"]
    assert launch["kernel"] == "linear_generic"
    (blocks, _, _), total = launch["grid"], launch["total"]
    passes = blocks * -(-columns // (32 * blocks))
    weight, x, y = (2 * n for n in (1024 * columns, 1024 * rows * passes, rows * columns))
    assert total["global_bytes"] == weight + x + y
    # A sum's two halves of 8 columns are stored by rows of 64 bytes: of 8 rows, twice 4 meet.
    assert total["wavefronts"] - total["passes"] <= passes * 4 * 4 * 8


def test_explain_says_that_it_is_the_generic_kernel():
    x, weight, *_ = cases.make(Case())
    with generic():
        found = thunderkittens.explain("linear", x, weight)
    assert found.reason == "backend('simulator') is active; it is the generic kernel"
