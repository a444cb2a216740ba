"""layer_norm's kernels on a GPU: the list of test_norm.py, and what only a GPU can show."""

import pytest
import torch

import thunderkittens
from tests.families.norm import cases
from tests.families.norm.cases import BF16, FP16, FP32, FP64, Case
from tests.tools.growing_memory import check_memory_does_not_grow
from tests.tools.run_to_run import check_same_bits
from thunderkittens import _C
from thunderkittens.testing import check_memory, memory

pytestmark = pytest.mark.gpu

WIDTHS = (*cases.WIDTHS, 4096, 4097, 8192, 8193, 12345, 16384, 32768, 65535, 65536)
ROWS = (1, 2, 131, 132, 133, 263, 264, 265, 1000, 65537)
ALL = [
    *cases.widths(WIDTHS),
    *(Case(w, (r,), BF16, d, d) for r in ROWS for w, d in ((64, BF16), (129, FP32))),
    *(Case(w, (130,), d, d, d) for w in (cases.WIDE, 20000) for d in (BF16, FP32)),
    *cases.widths(WIDTHS, leading=(300,)),
    *cases.options(129),
    *cases.options(1024),
    *cases.layouts(33),
    *cases.layouts(768),
    *cases.regimes(64),
    *cases.regimes(4096),
    # More rows than the backward takes in one launch.
    *cases.options(129, (300,)),
    *cases.options(1024, (300,)),
    *cases.layouts(33, (3, 100)),
    *cases.layouts(768, (3, 100)),
    *cases.regimes(64, (300,)),
    *cases.regimes(4096, (300,)),
    *cases.forms(300),
]


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
    results = check_memory(lambda *t: cases.run(*t, case.eps), *inputs)
    assert launches() == before + 4  # two runs, forward and backward
    cases.check(case, inputs, results)


@pytest.mark.parametrize(
    "check", (cases.check_large_mean, cases.check_tiny_eps, cases.check_not_finite)
)
def test_numbers_at_the_edge(check):
    check("cuda")


@pytest.mark.parametrize(
    "case",
    [
        *cases.widths((9, 768, 4096, 16384), leading=(1000,)),
        *cases.widths((9, 768, 4096, 8192), leading=(128,)),
    ],
    ids=str,
)
def test_run_to_run(case):
    """The same bits every time, also while another stream keeps the GPU busy."""
    inputs = cases.make(case, "cuda")
    check_same_bits(lambda: cases.run(*inputs))


def test_simulator_gives_the_same_statistics():
    """CPU and GPU backends agree within the bounds of both."""
    case = Case(1024, (16,), BF16, FP32, FP32)
    inputs = cases.make(case)
    results = cases.run(*(t.cuda() for t in inputs))
    cases.check(case, inputs, [t.cpu() for t in results])


def test_graph_capture():
    """Forward and backward in one CUDA graph; replays on new data give the bits of eager."""
    case = Case(1024, (133,), BF16, BF16, BF16)
    static = cases.make(case, "cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        cases.run(*static)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = cases.run(*static)
    for _ in range(5):
        fresh = cases.make(case, "cuda")
        for place, values in zip(static, fresh, strict=True):
            place.copy_(values)
        graph.replay()
        for got, want in zip(captured, cases.run(*fresh), strict=True):
            assert memory.bits_equal(got, want)


def test_side_stream():
    """The op waits for the producer on its own stream and not for others."""
    case = Case(1024, (133,))
    inputs = cases.make(case, "cuda")
    want = cases.run(*inputs)
    for _ in range(10):
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            torch.cuda._sleep(2_000_000)
            late = [t.clone() for t in inputs]
            results = cases.run(*late)
            results = [t.clone() for t in results]
        torch.cuda.current_stream().wait_stream(stream)
        for got, first in zip(results, want, strict=True):
            assert memory.bits_equal(got, first)


def test_no_hidden_synchronisation():
    inputs = cases.make(Case(1024, (133,)), "cuda")
    cases.run(*inputs)
    torch.cuda.set_sync_debug_mode("error")
    try:
        cases.run(*inputs)
        torch.cuda._sleep(200_000_000)  # 0.1 s: a call that waited for it would show below
        done = torch.cuda.Event()
        cases.run(*inputs)
        done.record()
        assert not done.query()
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_memory_does_not_grow():
    inputs = cases.make(Case(769, (133,), BF16), "cuda")
    check_memory_does_not_grow(lambda: cases.run(*inputs))


@pytest.mark.parametrize(("dtype", "rows"), [(BF16, 2**21 + 1), (FP32, 2**19 + 1)])
def test_more_than_2_to_the_31_elements(dtype, rows):
    """The last rows of a tensor past 2³¹ elements, or 2³² bytes, are those of a small one."""
    width = 1024 if dtype == BF16 else 4096
    if torch.cuda.mem_get_info()[0] < 40 << 30:
        pytest.skip("needs 40 GiB of GPU memory")
    x = torch.empty(rows, width, dtype=dtype, device="cuda")
    tail = cases.make(Case(width, (200,), dtype), "cuda")[0]
    x[-200:] = tail
    x[:-200] = 1
    assert x.numel() > 2**31
    y = thunderkittens.layer_norm(x)
    assert memory.bits_equal(y[-200:], thunderkittens.layer_norm(tail))
    _, mean, rstd = torch.ops.thunderkittens.layer_norm_forward(x, None, None, 1e-5)
    backward = torch.ops.thunderkittens.layer_norm_backward
    dx = backward(x, x, None, None, mean, rstd, [True, False, False])[0]
    want = backward(tail, tail, None, None, mean[-200:], rstd[-200:], [True, False, False])[0]
    assert memory.bits_equal(dx[-200:], want)


def test_fallbacks_say_why(monkeypatch):
    x = torch.randn(2, 8, dtype=FP64, device="cuda")
    with pytest.raises(RuntimeError, match="layer_norm: computed by torch: float64 is computed"):
        thunderkittens.layer_norm(x)
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "0")
    _C.forget_warnings()
    for wide in (x, torch.randn(2, 65537, device="cuda", dtype=BF16)):
        with pytest.warns(UserWarning, match="layer_norm: computed by torch"):
            y = thunderkittens.layer_norm(wide)
        torch.testing.assert_close(y, torch.nn.functional.layer_norm(wide, wide.shape[-1:]))


@pytest.mark.parametrize("weight", ["none", "constant"])
@pytest.mark.parametrize("shape", [(7, 33), (1040, 128, 2), (4096, 768)])
def test_a_bias_alone_by_torch(shape, weight):
    """torch's own backward may write the bias's gradient out of bounds there, on a GPU."""
    x = torch.randn(shape, dtype=FP64, device="cuda")
    given = torch.randn(shape[-1], dtype=FP64, device="cuda") if weight == "constant" else None
    bias = torch.randn(shape[-1], dtype=FP64, device="cuda", requires_grad=True)
    dy = torch.randn(shape, dtype=FP64, device="cuda")
    with thunderkittens.backend("torch"):
        thunderkittens.layer_norm(x, given, bias).backward(dy)
    torch.testing.assert_close(bias.grad, dy.flatten(0, -2).sum(0))


def test_explain():
    x = torch.randn(4, 6, 264, device="cuda")
    found = thunderkittens.explain("layer_norm", x)
    assert (found.backend, found.notes) == ("cuda", ())
    assert "x is copied first" in str(thunderkittens.explain("layer_norm", x.transpose(0, 1)))
    heads = torch.randn(4, 6, 256, device="cuda").transpose(
        0, 1
    )  # narrow rows need no one distance
    assert thunderkittens.explain("layer_norm", heads).notes == ()
    assert "x is copied first" in str(thunderkittens.explain("layer_norm", x.transpose(1, 2)))
    with thunderkittens.backend("torch"):
        assert thunderkittens.explain("layer_norm", x).backend == "torch"


def test_mixed_devices_are_refused():
    x, weight = torch.randn(2, 8, device="cuda"), torch.randn(8)
    before = launches()
    message = r"layer_norm: weight must be on cuda:0 \(x's device\), got cpu"
    with pytest.raises(ValueError, match=message):
        thunderkittens.layer_norm(x, weight)
    with pytest.raises(ValueError, match=r"must be on the cpu under backend"):
        _C.set_backend(_C.Backend.simulator)
        try:
            thunderkittens.layer_norm(x)
        finally:
            _C.set_backend(_C.Backend.auto)
    assert launches() == before
    thunderkittens.layer_norm(x)


@pytest.mark.parametrize("dtype", [BF16, FP16])
def test_compile(dtype):
    """Inductor around the opaque op: no graph break, the bits of eager."""
    compiled = torch.compile(thunderkittens.layer_norm, fullgraph=True, dynamic=True)
    for rows in (7, 40):
        inputs = cases.make(Case(768, (rows,), dtype, FP32, FP32), "cuda")
        leaves = [t.clone().requires_grad_() for t in inputs[:3]]
        y = compiled(*leaves)
        results = [y.detach(), *torch.autograd.grad(y, leaves, inputs[3])]
        for got, want in zip(results, cases.run(*inputs), strict=True):
            assert memory.bits_equal(got, want)
