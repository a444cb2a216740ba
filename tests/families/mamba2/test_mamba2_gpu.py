"""mamba2's kernels on a GPU: the lists of its other tests, and what only a GPU can show."""

import pytest

import thunderkittens
from tests.families.mamba2 import cases, long_sequences
from tests.families.mamba2.cases import FP16, FP32, Case
from tests.tools.run_to_run import check_same_bits
from thunderkittens import _C
from thunderkittens.testing import check_memory

pytestmark = pytest.mark.gpu

LARGE = [
    Case(4, 1000, 32, 1, 64, 64, steps=-4.0),
    Case(1, 4099, 4, 2, 64, 128, FP16, FP32, steps=-4.0),
    Case(2, 2050, 8, 8, 128, 128, z=True, strength=0.01),
    Case(1, 5000, 6, 2, 64, 64, steps=-4.0),  # segments of pairs, each of parts
]
# Heads enough, four a multiprocessor, for pairs of one warpgroup each; few are warp-specialized.
MANY_HEADS = [
    Case(20, 200, 32, 1, 64, 64, steps=-4.0),
    Case(40, 131, 16, 4, 24, 40, dt_dtype=FP32, z=True),
]
ALL = [
    *cases.lengths(),
    *cases.widths(),
    *cases.options(),
    *cases.layouts(),
    *cases.packed(),
    Case(dtype=FP16, dt_dtype=FP32),
    *LARGE,
    *MANY_HEADS,
]


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    """A fallback would test torch, not the kernels."""
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "1")


@pytest.fixture(params=[None, "generic"], ids=["specialised", "generic"])
def kernel(request):
    """Of linear attention; mamba2's own are generic."""
    with thunderkittens.backend("auto", kernel=request.param):
        yield


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("case", ALL, ids=str)
def test_against_float64(case):
    """Right, within its tensors, the same bits with other neighbours, and by our kernels."""
    inputs = cases.make(case, "cuda")
    before = _C.launch_counts()["linear_attention"]
    results = check_memory(lambda *t: cases.run_case(case, t), *inputs)
    assert _C.launch_counts()["linear_attention"] >= before + 2 * 4
    cases.check_case(case, inputs, results)


@pytest.mark.parametrize("which", [None, "generic"], ids=["specialised", "generic"])
@pytest.mark.parametrize("packed", [False, True], ids=["whole", "packed"])
@pytest.mark.parametrize("kind", long_sequences.KINDS)
def test_gradients_of_gates_over_long_sequences(kind, packed, which):
    long_sequences.check(kind, 65536, 4, packed, which, "cuda")


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("case", LARGE, ids=str)
def test_run_to_run(case):
    """The same bits every time, also while another stream keeps the GPU busy."""
    inputs = cases.make(case, "cuda")
    check_same_bits(lambda: cases.run_case(case, inputs))
