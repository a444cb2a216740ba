"""The norms' backward of long rows, lane by lane on the CPU, and which kernel takes which rows."""

import json

import pytest

import thunderkittens
from tests.kernels import norm_long as cases
from tests.kernels.norm_cases import BF16, FP32
from tests.kernels.norm_rms_add_cases import Case, make, run_case
from thunderkittens import _loader
from thunderkittens.testing import check_memory, memory

pytestmark = pytest.mark.skipif(
    not _loader.SIMULATOR.is_file(),
    reason="the simulator is not built (python -m build_tools simulator)",
)

MULTIPROCESSORS = 4  # of the simulator
CASES = [cases.with_rows(case, MULTIPROCESSORS) for case in cases.CASES]
POLICIES = ({"policy": "lazy"}, {"policy": "random", "seed": 1}, {"policy": "random", "seed": 2})


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    """A fallback would test torch, not the kernels."""
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "1")


@pytest.mark.parametrize(
    ("width", "dtype", "residual", "rows", "pipelined"),
    [
        (2048, BF16, BF16, 9, False),
        (2056, BF16, BF16, 9, True),
        (2056, BF16, BF16, 8, False),  # a row a block
        (2060, BF16, BF16, 9, False),  # elements one by one
        (8192, BF16, BF16, 5, True),
        (8192, BF16, BF16, 4, False),
        (8200, BF16, BF16, 5, False),
        # Slots of 18 KB a warp, of which a multiprocessor's blocks may have 10.
        (2056, FP32, FP32, 9, True),
        (2564, FP32, FP32, 9, False),
        (4096, FP32, FP32, 9, False),
        (4100, FP32, FP32, 5, True),
        (4100, FP32, FP32, 4, False),
        (5120, FP32, FP32, 5, True),
        (5124, FP32, FP32, 5, False),
        # Of 15 KB: 12.
        (3072, BF16, FP32, 9, True),
        (3080, BF16, FP32, 9, False),
        (6144, BF16, FP32, 5, True),
        (6152, BF16, FP32, 5, False),
    ],
)
def test_kernel(tmp_path, width, dtype, residual, rows, pipelined):
    case = Case("add_rms_norm", width, (rows,), dtype, dtype, residual)
    facts = tmp_path / "facts.json"
    with thunderkittens.backend("simulator", facts=facts):
        run_case(case, make(case))
    names = [launch["kernel"] for launch in json.loads(facts.read_text())["launches"]]
    assert any("norm_backward_pipelined" in name for name in names) == pipelined, names


@pytest.mark.parametrize("case", CASES, ids=str)
def test_against_float64(case):
    """Right, within its tensors, and the same bits with other neighbours."""
    module = cases.module_of(case)
    inputs = module.make(case)
    with thunderkittens.backend("simulator"):
        results = check_memory(lambda *t: module.run_case(case, t), *inputs)
    module.check_case(case, inputs, results)


@pytest.mark.parametrize("case", cases.CASES, ids=str)
def test_both_kernels_give_the_same_bits(case):
    with thunderkittens.backend("simulator"):
        cases.check_same_bits(case, MULTIPROCESSORS, "cpu")


@pytest.mark.parametrize("case", CASES, ids=str)
def test_policies_agree(case):
    """The order of threads, blocks and asynchronous work changes no bit; nor does a repetition."""
    module = cases.module_of(case)
    inputs = module.make(case)
    with thunderkittens.backend("simulator", threads=1):
        want = module.run_case(case, inputs)
    for options in POLICIES:
        with thunderkittens.backend("simulator", **options):
            for got, first in zip(module.run_case(case, inputs), want, strict=True):
                assert got is first is None or memory.bits_equal(got, first), options


@pytest.mark.skipif(not _loader.SIMULATOR_RACE.is_file(), reason="race mode is not built")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_no_races(case):
    """Nothing is left to chance in shared memory, and the numbers are those without race mode."""
    module = cases.module_of(case)
    inputs = module.make(case)
    with thunderkittens.backend("simulator"):
        want = module.run_case(case, inputs)
    with thunderkittens.backend("simulator", policy="random", seed=3, race=True):
        for got, first in zip(module.run_case(case, inputs), want, strict=True):
            assert got is first is None or memory.bits_equal(got, first)
