"""The activations' kernels on a GPU: the list of test_activation.py, and what only a GPU shows."""

import pytest
import torch

import thunderkittens
from tests.families.activation import cases
from tests.families.activation.cases import BF16, FP16, FP32, FP64, Case
from tests.tools.run_to_run import check_same_bits
from thunderkittens import _C
from thunderkittens.testing import check_memory, memory

pytestmark = pytest.mark.gpu

ALL = [
    *cases.sizes((*cases.SIZES, 65537, 1_000_003)),
    *cases.of_each_op(1032, (133,), layout="halves"),
    *cases.of_each_op(11008, (17,), layout="halves"),
    *cases.layouts(33),
    *cases.layouts(768),
    *cases.regimes(4099),
    Case("swiglu", 24, (70_000,), BF16, layout="halves"),
    Case("gelu", 1, (70_001,), BF16, layout="sliced"),
    *cases.of_each_op(33, (4_099,), layout="halves"),
    *cases.of_each_op(4095, (131,), layout="halves"),
]
LARGE = cases.of_each_op(4096, (1000,), (BF16,))


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    """A fallback would test torch, not the kernels."""
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "1")


def launches() -> int:
    return sum(_C.launch_counts().values())


@pytest.mark.parametrize("case", ALL, ids=str)
def test_against_float64(case):
    """Right, within its tensors, the same bits with other neighbours, and by our kernels."""
    inputs = cases.make(case, "cuda")
    before = launches()
    results = check_memory(lambda *t: cases.run_case(case, t), *inputs)
    assert launches() == before + 4  # two runs, forward and backward
    cases.check_case(case, inputs, results)


@pytest.mark.parametrize("dtype", [BF16, FP16, FP32])
@pytest.mark.parametrize("op", ["swiglu", "geglu", "gelu"])
def test_rows_that_start_anywhere(op, dtype):
    for width in (1, 15, 16, 23, 31, 40, 4095, 4097):
        cases.check_rows_anywhere(Case(op, width, (133,), dtype), "cuda")


@pytest.mark.parametrize("check", [cases.check_edges, cases.check_not_finite])
def test_numbers_at_the_edge(check):
    check("cuda")


@pytest.mark.parametrize("dtype", [BF16, FP16])
def test_every_16_bit_number(dtype):
    """All 65,536 of them, but NaN: y and the slope."""
    every = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)
    every = every[every.isfinite()].cuda()
    for op, approximate in cases.OPS:
        case = Case(op, 1, (), dtype, approximate)
        inputs = cases.with_ones(case, every)
        cases.check_case(case, inputs, cases.run_case(case, inputs))


@pytest.mark.parametrize("case", LARGE, ids=str)
def test_run_to_run(case):
    """The same bits every time, also while another stream keeps the GPU busy."""
    inputs = cases.make(case, "cuda")
    check_same_bits(lambda: cases.run_case(case, inputs))


@pytest.mark.parametrize("case", LARGE[::2], ids=str)
def test_graph_capture(case):
    """Forward and backward in one CUDA graph; replays on new data give the bits of eager."""
    static = cases.make(case, "cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        cases.run_case(case, static)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = cases.run_case(case, static)
    for _ in range(5):
        fresh = cases.make(case, "cuda")
        for place, values in zip(static, fresh, strict=True):
            place.copy_(values)
        graph.replay()
        for got, want in zip(captured, cases.run_case(case, fresh), strict=True):
            assert memory.bits_equal(got, want)


def test_side_stream():
    """The op waits for the producer on its own stream and not for others."""
    case = LARGE[0]
    inputs = cases.make(case, "cuda")
    want = cases.run_case(case, inputs)
    for _ in range(10):
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            torch.cuda._sleep(2_000_000)
            late = [t.clone() for t in inputs]
            results = [t.clone() for t in cases.run_case(case, late)]
        torch.cuda.current_stream().wait_stream(stream)
        for got, first in zip(results, want, strict=True):
            assert memory.bits_equal(got, first)


def test_no_hidden_synchronisation():
    case = LARGE[0]
    inputs = cases.make(case, "cuda")
    cases.run_case(case, inputs)
    torch.cuda.set_sync_debug_mode("error")
    try:
        cases.run_case(case, inputs)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("offset", [0, 1], ids=["runs", "single"])
@pytest.mark.parametrize("dtype", [BF16, FP32])
def test_more_than_2_to_the_31_elements(dtype, offset):
    """The last elements past 2³¹ are those of a small tensor; also where nothing is aligned."""
    if torch.cuda.mem_get_info()[0] < 60 << 30:
        pytest.skip("needs 60 GiB of GPU memory")
    x = torch.ones(2**31 + 4099 + offset, dtype=dtype, device="cuda")[offset:]
    tail = cases.make(Case("gelu", 4000, (), dtype), "cuda")[0]
    x[-4000:] = tail
    y = thunderkittens.gelu(x)
    assert memory.bits_equal(y[-4000:], thunderkittens.gelu(tail))
    del y
    dx = torch.ops.thunderkittens.gelu_backward(x, x)
    assert memory.bits_equal(dx[-4000:], torch.ops.thunderkittens.gelu_backward(tail, tail))


@pytest.mark.parametrize("width", [4096, 4097], ids=["runs", "anywhere"])
def test_halves_of_more_than_2_to_the_31_elements(width):
    """Of the outputs, too."""
    if torch.cuda.mem_get_info()[0] < 60 << 30:
        pytest.skip("needs 60 GiB of GPU memory")
    x = torch.ones(2**19 + 3, 2 * width, dtype=BF16, device="cuda")
    x[-100:] = torch.randn(100, 2 * width, device="cuda").to(BF16)
    gate, up = x.chunk(2, dim=-1)
    y = thunderkittens.swiglu(gate, up)
    last = [t.contiguous() for t in x[-100:].chunk(2, dim=-1)]
    assert memory.bits_equal(y[-100:], thunderkittens.swiglu(*last))
    backward = torch.ops.thunderkittens.swiglu_backward
    for got, want in zip(
        backward(y, gate, up, [True] * 2), backward(y[-100:], *last, [True] * 2), strict=True
    ):
        assert memory.bits_equal(got[-100:], want)


def test_fallbacks_say_why(monkeypatch):
    x = torch.randn(2, 8, dtype=FP64, device="cuda")
    with pytest.raises(RuntimeError, match="gelu: computed by torch: float64 is computed"):
        thunderkittens.gelu(x)
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "0")
    _C.forget_warnings()
    with pytest.warns(UserWarning, match="swiglu: computed by torch"):
        thunderkittens.swiglu(x, x)


@pytest.mark.parametrize("dtype", [BF16, FP16])
def test_compile(dtype):
    """Inductor around the opaque op: no graph break, the bits of eager."""
    compiled = torch.compile(thunderkittens.swiglu, fullgraph=True, dynamic=True)
    for rows in (7, 40):
        case = Case("swiglu", 768, (rows,), dtype, layout="halves")
        *inputs, dy = cases.make(case, "cuda")
        leaves = [t.detach().requires_grad_() for t in inputs]
        y = compiled(*leaves)
        results = [y.detach(), *torch.autograd.grad(y, leaves, dy)]
        for got, want in zip(results, cases.run_case(case, (*inputs, dy)), strict=True):
            assert memory.bits_equal(got, want)
