"""The norms' backward of long rows, lane by lane on the CPU, and which kernel takes which rows."""

import json

import pytest

import thunderkittens
from tests.families.norm import long_rows as cases
from tests.families.norm.cases import BF16, FP16, FP32
from tests.families.norm.rms_add_cases import Case, make, run_case
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
    ("width", "dtype", "residual", "rows", "kernel"),
    [
        (256, BF16, BF16, 9, "norm_backward_narrow"),
        (256, BF16, BF16, 8, "norm_backward_few"),
        (257, BF16, BF16, 8, "norm_backward_few"),
        (264, BF16, BF16, 9, "norm_backward"),
        (512, BF16, BF16, 9, "norm_backward"),
        # Many medium rows: 16 for each of 32 groups, of which wider rows have 16.
        (504, BF16, BF16, 512, "norm_backward"),
        (520, BF16, BF16, 511, "norm_backward"),
        (520, BF16, BF16, 512, "norm_backward_medium"),
        (520, FP16, FP16, 512, "norm_backward_medium"),
        (520, BF16, FP32, 512, "norm_backward"),
        (516, BF16, BF16, 512, "norm_backward"),
        (1024, BF16, BF16, 512, "norm_backward"),
        (2040, BF16, BF16, 256, "norm_backward_medium"),
        (2048, BF16, BF16, 9, "norm_backward"),
        (2056, BF16, BF16, 9, "norm_backward_pipelined"),
        (2056, BF16, BF16, 8, "norm_backward_few"),
        (8192, BF16, BF16, 9, "norm_backward_pipelined"),
        (8192, BF16, BF16, 8, "norm_backward_few"),
        (8200, BF16, BF16, 8, "norm_backward_long_dx"),
        (2048, FP16, FP16, 9, "norm_backward"),
        (8192, FP16, FP16, 9, "norm_backward_pipelined"),
        # Slots of 18 KB a warp, of which a multiprocessor's blocks may have 10.
        (2056, FP32, FP32, 9, "norm_backward_pipelined"),
        (2564, FP32, FP32, 9, "norm_backward"),
        (4096, FP32, FP32, 9, "norm_backward"),
        (4100, FP32, FP32, 9, "norm_backward_pipelined"),
        (5120, FP32, FP32, 9, "norm_backward_pipelined"),
        (5124, FP32, FP32, 9, "norm_backward"),
        # Of 15 KB: 12.
        (3072, BF16, FP32, 9, "norm_backward_pipelined"),
        (3080, BF16, FP32, 9, "norm_backward"),
        (6144, BF16, FP32, 9, "norm_backward_pipelined"),
        (6152, BF16, FP32, 9, "norm_backward"),
        # Of any element, at any address.
        (2060, BF16, BF16, 9, "norm_backward"),
        (3071, BF16, FP32, 8, "norm_backward_few"),
        (8200, BF16, FP32, 8, "norm_backward_long_dx"),
    ],
)
def test_kernel(tmp_path, width, dtype, residual, rows, kernel):
    case = Case("add_rms_norm", width, (rows,), dtype, dtype, residual)
    facts = tmp_path / "facts.json"
    with thunderkittens.backend("simulator", facts=facts):
        run_case(case, make(case))
    names = [launch["kernel"] for launch in json.loads(facts.read_text())["launches"]]
    backward = [name for name in names if name.startswith("norm_backward")]
    assert backward[0] == kernel, names
    assert (len(backward) == 1) == (kernel == "norm_backward_few"), names


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
