"""cross_entropy's generic kernels on a GPU of any architecture that they are built for."""

import pytest

import thunderkittens
from tests.families.cross_entropy import cases, linear_cases
from tests.families.cross_entropy import far_cases as far
from tests.families.cross_entropy.cases import BF16, FP16, FP32, Case
from tests.families.cross_entropy.linear_cases import LinearCase
from tests.tools.run_to_run import check_same_bits
from thunderkittens import _C
from thunderkittens.testing import check_memory

pytestmark = pytest.mark.gpu

WIDTHS = (*cases.WIDTHS, 4096, 8191, 8193, 16385, 32768, *cases.STREAMED, 50257, 128256, 300001)
ALL = [
    *cases.widths(WIDTHS),
    *(Case(w, (r,), BF16) for r in (1, 132, 133, 264, 265) for w in (64, 1100, 8192, 20000)),
    *(Case(w, (700,), BF16, inplace=i) for w in (20000, 50257, 128256) for i in (False, True)),
    *cases.options(1100)[::3],
    *cases.options(50257, (BF16,)),
    *cases.layouts(20000)[::3],
    *cases.layouts(40000)[1::2],
    *cases.regimes(50257),
]
REPEATED = [
    *cases.widths((1000, 5000, 50257, 128256), (BF16,), (300,)),
    *cases.widths((5000, 50257), (FP32,), (132,)),  # few rows
    Case(50304, (300,), BF16, inplace=True, dloss=0.3),
    Case(128256, (300,), FP16, regime="half masked", inplace=True),
    Case(50304, (300,), BF16, regime="far", inplace=True),
]


@pytest.fixture(autouse=True)
def generic(monkeypatch):
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "1")
    with thunderkittens.backend("auto", kernel="generic"):
        yield


@pytest.mark.parametrize("case", ALL, ids=str)
def test_against_float64(case):
    """Right, within its tensors, the same bits with other neighbours, and by our kernels."""
    inputs = cases.make(case, "cuda")
    before = _C.launch_counts()["cross_entropy_forward"]
    results = check_memory(lambda *t: cases.run(case, *t), *inputs)
    assert _C.launch_counts()["cross_entropy_forward"] == before + 4  # two runs, with and without
    cases.check(case, inputs, results)


@pytest.mark.parametrize(
    "case", [LinearCase(1000, 96, (70,), FP32), LinearCase(50264, 64, (70,), FP32)], ids=str
)
def test_linear_against_float64(case):
    inputs = linear_cases.make(case, "cuda")
    linear_cases.check(case, inputs, linear_cases.run(case, *inputs))


@pytest.mark.parametrize("rows", [14, 700])
@pytest.mark.parametrize("width", [1100, 9000, 50257, 128256])
def test_far_logits(width, rows):
    """Beyond 1e9, where neighbours differ in probability by e⁶⁴; few rows, and many."""
    far.check_all("cuda", width, rows)


@pytest.mark.parametrize("width", [1100, 50257])
def test_numbers_at_the_edge(width, monkeypatch):
    monkeypatch.delenv("THUNDERKITTENS_STRICT")  # which makes an error of bad targets
    cases.check_rows_that_are_undefined("cuda", width)
    cases.check_targets_without_probability("cuda", width)
    cases.check_gradients_of_loss_that_are_not_finite("cuda", width)


@pytest.mark.parametrize("case", REPEATED, ids=str)
def test_the_same_bits_on_every_run(case):
    inputs = cases.make(case, "cuda")
    check_same_bits(lambda: cases.run(case, *inputs))


def test_explain_says_that_it_is_the_generic_kernel():
    found = thunderkittens.explain("cross_entropy", *cases.make(Case(50257, (9,), BF16), "cuda"))
    assert found.backend == "cuda"
    assert found.reason.endswith("it is the generic kernel")
