"""linear's kernels on a GPU: the list of the simulator, decoding's sizes, and graphs."""

import dataclasses

import pytest
import torch

import thunderkittens
from tests.families.linear import cases
from tests.families.linear.cases import BF16, FP16, Case
from thunderkittens import _C
from thunderkittens.testing import memory

pytestmark = pytest.mark.gpu

LARGE = [
    *(Case((m,), 4096, n, residual=True) for m in (1, 7, 16) for n in (4096, 6144)),
    Case((1,), 14336, 4096),
    Case((8,), 4096, 14336, FP16, activation="swiglu"),
    Case((3,), 4096, 128256),
    *(Case((m,), 4096, 6144, norm=1e-5) for m in (1, 16)),
    Case((8,), 4096, 14336, activation="swiglu", norm=1e-5),
]

# Of more than 16 rows: weights that are wide enough.
WIDE = [
    Case((24,), 4096, 14336, activation="swiglu", norm=1e-5),
    Case((64,), 1000, 14336, FP16, bias=True, residual=True, activation="swiglu"),
    Case((33,), 520, 128256, bias=True),
    Case((17,), 203, 128003, residual=True, weight_layout="wide"),
]


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    """A fallback would test torch, not the kernel."""
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "1")


@pytest.fixture(params=[None, "generic"], ids=["specialised", "generic"])
def kernel(request):
    with thunderkittens.backend("auto", kernel=request.param):
        yield


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("case", LARGE, ids=str)
def test_a_constant_weight_changes_no_bit(case):
    """Behind a kernel that writes nothing of it, as all the calls before it are."""
    inputs = cases.make(case, "cuda")
    (want,) = cases.run_case(case, inputs)
    for _ in range(20):
        (y,) = cases.run_case(dataclasses.replace(case, constant=True), inputs)
        assert memory.bits_equal(y, want)


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("case", [*cases.every(), *LARGE], ids=str)
def test_against_float64(case):
    """Right, the same bits again, and by our kernel."""
    inputs = cases.make(case, "cuda")
    before = _C.launch_counts()["linear"]
    results = cases.run_case(case, inputs)
    assert _C.launch_counts()["linear"] == before + 1
    cases.check_case(case, inputs, results)
    for _ in range(3):
        assert memory.bits_equal(cases.run_case(case, inputs)[0], results[0])


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("constant", [False, True])
def test_a_graph_of_layers_has_the_bits_of_calls(constant):
    """Each product's weight is on its way, to the L2 or, constant, to shared memory, while the one
    in front of it still runs, which writes its x.
    """
    weights = [torch.randn(1024, 1024, device="cuda").to(BF16) / 32 for _ in range(20)]
    x = torch.randn(4, 1024, device="cuda").to(BF16)

    def layers(constant):
        y = x
        for weight in weights:
            y = thunderkittens.linear(y, weight, residual=y, weight_is_constant=constant)
        return y

    want = layers(False)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = layers(constant)
    for _ in range(10):
        graph.replay()
        assert memory.bits_equal(got, want)


def test_a_weight_that_the_kernel_in_front_writes():
    """What was prefetched before it was written is not what is read."""
    x = torch.randn(2, 512, device="cuda").to(BF16)
    weight = torch.zeros(512, 512, device="cuda", dtype=BF16)
    new = torch.randn(20, 512, 512, device="cuda").to(BF16)
    for each in new:
        weight.copy_(each)
        y = thunderkittens.linear(x, weight)
        assert memory.bits_equal(y, thunderkittens.linear(x, each.clone()))


@pytest.mark.usefixtures("kernel")
def test_x_that_the_kernel_in_front_writes():
    """By torch's kernels and by ours, beside a weight that is constant."""
    weight = torch.randn(4096, 4096, device="cuda").to(BF16) / 64
    x = torch.zeros(2, 4096, device="cuda", dtype=BF16)
    wants = [(new, thunderkittens.linear(new, weight)) for new in fresh_rows(20)]
    for new, want in wants:
        x.copy_(new)
        assert memory.bits_equal(thunderkittens.linear(x, weight, weight_is_constant=True), want)
    for new, _ in wants:
        norm_weight = torch.ones(4096, device="cuda", dtype=BF16)
        y = thunderkittens.linear(thunderkittens.rms_norm(new, norm_weight), weight)
        x = thunderkittens.rms_norm(new, norm_weight)
        assert memory.bits_equal(thunderkittens.linear(x, weight, weight_is_constant=True), y)


def fresh_rows(count):
    return [torch.randn(2, 4096, device="cuda").to(BF16) for _ in range(count)]


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("width", [4096, 1001])  # 1001: rows end within 16 bytes
def test_a_constant_weight_that_was_written_before_the_kernel_in_front(width):
    new = [
        cases.lay_out(torch.randn(512, width, device="cuda").to(BF16) / 32, "wide")
        for _ in range(20)
    ]
    x = torch.randn(2, width, device="cuda").to(BF16)
    weight = cases.lay_out(torch.zeros(512, width, device="cuda", dtype=BF16), "wide")
    wants = [thunderkittens.linear(x, each) for each in new]
    for each, want in zip(new, wants, strict=True):
        weight.copy_(each)
        moved = x + 0  # the kernel in front, which writes x
        y = thunderkittens.linear(moved, weight, weight_is_constant=True)
        assert memory.bits_equal(y, want)


def test_more_rows_are_torchs():
    x, weight = torch.randn(cases.MOST + 1, 64, device="cuda"), torch.randn(8, 64, device="cuda")
    x, weight = x.to(BF16), weight.to(BF16)
    want = torch.nn.functional.linear(x, weight)
    assert memory.bits_equal(thunderkittens.linear(x, weight), want)  # strict: raises if it warns


def test_fallbacks_say_why():
    with pytest.raises(RuntimeError, match="linear: computed by torch: float32 is computed"):
        thunderkittens.linear(torch.ones(2, 8, device="cuda"), torch.ones(8, 8, device="cuda"))


@pytest.mark.parametrize("case", WIDE, ids=str)
def test_many_rows_of_a_wide_weight(case):
    """Right, the same bits again and with a constant weight, and by Hopper's second kernel."""
    inputs = cases.make(case, "cuda")
    before = _C.launch_counts()["linear_rows"]
    results = cases.run_case(case, inputs)
    assert _C.launch_counts()["linear_rows"] == before + 1
    cases.check_case(case, inputs, results)
    for constant in (False, True) * 5:
        (y,) = cases.run_case(dataclasses.replace(case, constant=constant), inputs)
        assert memory.bits_equal(y, results[0])


def test_many_rows_of_a_narrow_weight_are_torchs_without_a_word():
    x, weight = (torch.randn(n, 64, device="cuda").bfloat16() for n in (cases.FEW + 1, 8))
    found = thunderkittens.explain("linear", x, weight)
    assert found.backend == "torch"
    assert found.reason == "torch's product of 17 rows and a weight of 8 is faster"
    want = torch.nn.functional.linear(x, weight)
    assert memory.bits_equal(thunderkittens.linear(x, weight), want)
