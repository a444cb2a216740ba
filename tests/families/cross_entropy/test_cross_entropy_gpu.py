"""The kernels of cross_entropy on a GPU: a longer list, and what only a GPU can show."""

from collections.abc import Iterator

import pytest
import torch

import thunderkittens
from tests.families.cross_entropy import cases, linear_cases
from tests.families.cross_entropy import far_cases as far
from tests.families.cross_entropy.cases import BF16, FP16, FP32, FP64, Case
from tests.families.cross_entropy.linear_cases import LinearCase
from tests.tools.growing_memory import check_memory_does_not_grow
from tests.tools.run_to_run import check_same_bits
from thunderkittens import _C
from thunderkittens.testing import check_memory, memory

pytestmark = pytest.mark.gpu

WIDTHS = (
    *cases.WIDTHS,
    4096,
    8191,
    8193,
    16385,
    32768,
    *cases.STREAMED,
    32000,
    50257,
    50304,
    128256,
    300001,
)
SPREAD = (4097, 9000, 32768, 50257, 131072, 131087)  # few rows of several blocks each
ROWS = (1, 2, 131, 132, 133, 264, 265, 1000, 70000)
ALL = [
    *cases.widths(WIDTHS),
    *(Case(w, (r,), BF16) for r in ROWS for w in (64, 129)),
    *(Case(w, (r,), BF16) for r in (131, 133, 700) for w in (20000, 50257, 128256)),
    *(Case(w, (r,), BF16) for r in (1, 2, 8, 16, 17, 33, 34, 66, 67) for w in SPREAD),
    *(Case(w, (8,), d) for d in (FP32, FP16) for w in SPREAD),
    *cases.options(129),
    *cases.options(1100),
    *cases.options(50257, (BF16,)),
    *cases.layouts(33),
    *cases.layouts(20000)[::2],
    *cases.layouts(40000)[1::2],
    *cases.regimes(64),
    *cases.regimes(50257),
]
REPEATED = [
    *cases.widths((9, 1000, 5000), (BF16,), (1000,)),
    *cases.widths((50257, 128256), (BF16,), (300,)),
    Case(50304, (300,), BF16, inplace=True, dloss=0.3),
    *cases.widths((9, 1000, 5000, 50257), (BF16,), (264,)),  # few rows, but for the last
    *cases.widths((50257,), (BF16,), (132,)),
    *cases.widths((9000, 50257, 128256), (BF16,), (8,)),
    Case(50304, (16,), BF16, inplace=True, dloss=0.3),
    Case(50304, (300,), BF16, regime="far", inplace=True),
    Case(128256, (300,), BF16, regime="far", inplace=True),
    Case(50304, (8,), BF16, regime="far"),
]


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    """A fallback would test torch, not the kernels."""
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "1")


@pytest.mark.parametrize("case", ALL, ids=str)
def test_against_float64(case):
    """Right, within its tensors, the same bits with other neighbours, and by our kernels."""
    inputs = cases.make(case, "cuda")
    before = _C.launch_counts()["cross_entropy_forward"]
    results = check_memory(lambda *t: cases.run(case, *t), *inputs)
    assert _C.launch_counts()["cross_entropy_forward"] == before + 4  # two runs, with and without
    cases.check(case, inputs, results)


@pytest.fixture
def products_in_float32() -> Iterator[None]:
    """Products that sum in float32 throughout: torch allows 16-bit parts, which have no bound.

    (They are added up where a product is split along H, so far as torch's own switch lets.)
    """
    products = torch.backends.cuda.matmul
    names = [f"allow_{dtype}_reduced_precision_reduction" for dtype in ("bf16", "fp16")]
    before = {name: getattr(products, name) for name in names}
    for name in names:
        setattr(products, name, False)
    yield
    for name, value in before.items():
        setattr(products, name, value)


@pytest.mark.parametrize(
    "case",
    [
        *linear_cases.every(),
        *linear_cases.every(1000)[::2],
        LinearCase(50257, 768, (300,), BF16, chunk_rows=128),
        LinearCase(50257, 768, (300,), BF16, reduction="none"),
        LinearCase(50264, 768, (300,), BF16, chunk_rows=128),
    ],
    ids=str,
)
def test_linear_against_float64(case, products_in_float32):
    inputs = linear_cases.make(case, "cuda")
    linear_cases.check(case, inputs, linear_cases.run(case, *inputs))


@pytest.mark.parametrize("rows", [14, 700])
@pytest.mark.parametrize("width", [1, 300, 1100, 9000, 32768, 50257, 128256, 131087])
def test_far_logits(width, rows):
    """Beyond 1e9, where neighbours differ in probability by e⁶⁴; few rows, and many."""
    far.check_all("cuda", width, rows)


@pytest.mark.parametrize("width", [300, 1100, 50257, 128256])
def test_numbers_at_the_edge(width, monkeypatch):
    monkeypatch.delenv("THUNDERKITTENS_STRICT")  # which makes an error of bad targets
    cases.check_rows_that_are_undefined("cuda", width)
    cases.check_targets_without_probability("cuda", width)
    cases.check_no_targets("cuda")
    cases.check_gradients_of_loss_that_are_not_finite("cuda", width)
    linear_cases.check_gradients_of_loss_that_are_not_finite("cuda")


@pytest.mark.parametrize("width", [300, 1100, 50257, 128256])
def test_targets_outside_are_told(width):
    cases.check_targets_outside_are_told("cuda:0", width, wait=torch.cuda.synchronize)


@pytest.mark.parametrize("rows", [6, 600])
def test_targets_outside_and_graphs(rows):
    """A capture never raises; what a graph's kernels meet is told to the next eager call."""
    x = torch.randn(rows, 1100, device="cuda", dtype=BF16)
    right, wrong = (torch.full((rows,), t, device="cuda") for t in (3, 1100))
    static = right.clone()
    thunderkittens.cross_entropy(x, wrong)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):  # while one is to be told
        loss = thunderkittens.cross_entropy(x, static)
    message = "cross_entropy: targets of an earlier call on cuda:0 must be columns .* got 1100 "
    with pytest.raises(IndexError, match=message):
        thunderkittens.cross_entropy(x, right)
    graph.replay()
    thunderkittens.cross_entropy(x, right)
    torch.cuda.synchronize()
    assert loss.isfinite()
    static.copy_(wrong)
    graph.replay()
    torch.cuda.synchronize()
    assert loss.isnan()
    with pytest.raises(IndexError, match=message):
        thunderkittens.cross_entropy(x, right)
    want = thunderkittens.cross_entropy(x, right)
    static.copy_(right)
    graph.replay()
    torch.cuda.synchronize()
    assert memory.bits_equal(loss, want)


@pytest.mark.parametrize("case", REPEATED, ids=str)
def test_run_to_run(case):
    """The same bits every time, also while another stream keeps the GPU busy."""
    inputs = cases.make(case, "cuda")
    check_same_bits(lambda: cases.run(case, *inputs))


@pytest.mark.parametrize(
    "case", [Case(w, (r,), BF16) for w in (1000, 50257) for r in (8, 133, 300)], ids=str
)
def test_graph_capture(case):
    """Forward and backward in one CUDA graph; replays on new data give the bits of eager."""
    static = cases.make(case, "cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        cases.run(case, *static)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = cases.run(case, *static)
    for _ in range(5):
        fresh = cases.make(case, "cuda")
        for place, values in zip(static, fresh, strict=True):
            place.copy_(values)
        graph.replay()
        for got, want in zip(captured, cases.run(case, *fresh), strict=True):
            assert memory.bits_equal(got, want)


def test_totals_at_the_same_time():
    """Losses of few rows meet in words of the stream's, or of the captured launch's own."""
    problems = [cases.make(Case(1000, (rows,), BF16), "cuda") for rows in (8, 133, 264)]
    wants = [thunderkittens.cross_entropy(*problem) for problem in problems]
    torch.cuda.synchronize()
    graphs = [torch.cuda.CUDAGraph() for _ in range(2)]
    replayed = []
    for graph in graphs:
        with torch.cuda.graph(graph):
            replayed.append([thunderkittens.cross_entropy(*problem) for problem in problems])
    streams = [torch.cuda.Stream() for _ in range(4)]
    results = []
    for _ in range(50):
        for stream, graph in zip(streams, graphs, strict=False):
            with torch.cuda.stream(stream):
                graph.replay()
        for stream in streams:
            with torch.cuda.stream(stream):
                results.append([thunderkittens.cross_entropy(*problem) for problem in problems])
    torch.cuda.synchronize()
    for totals in [*replayed, *results]:
        for got, want in zip(totals, wants, strict=True):
            assert memory.bits_equal(got, want)


def test_side_stream():
    """The op waits for the producer on its own stream and not for others."""
    case = Case(50257, (133,), BF16)
    inputs = cases.make(case, "cuda")
    want = cases.run(case, *inputs)
    for _ in range(10):
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            torch.cuda._sleep(2_000_000)
            late = [t.clone() for t in inputs]
            results = [t.clone() for t in cases.run(case, *late)]
        torch.cuda.current_stream().wait_stream(stream)
        for got, first in zip(results, want, strict=True):
            assert memory.bits_equal(got, first)


def test_no_hidden_synchronisation():
    case, linear = Case(50257, (133,), BF16), LinearCase(1000, dtype=BF16)
    inputs, linear_inputs = cases.make(case, "cuda"), linear_cases.make(linear, "cuda")
    cases.run(case, *inputs)
    linear_cases.run(linear, *linear_inputs)
    torch.cuda.set_sync_debug_mode("error")
    try:
        cases.run(case, *inputs)
        linear_cases.run(linear, *linear_inputs)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_memory_does_not_grow():
    case = Case(769, (133,), BF16)
    inputs = cases.make(case, "cuda")
    check_memory_does_not_grow(lambda: cases.run(case, *inputs))


def test_logits_are_never_all_in_memory():
    """The peak stays below half of the logits, gradients and the float32 sum included."""
    x = torch.randn(65536, 64, device="cuda", dtype=BF16, requires_grad=True)
    weight = torch.randn(50304, 64, device="cuda", dtype=BF16, requires_grad=True)
    targets = torch.randint(0, 50304, (65536,), device="cuda")
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    thunderkittens.linear_cross_entropy(x, weight, targets).backward()
    assert torch.cuda.max_memory_allocated() - before < 65536 * 50304


def test_one_chunk_needs_no_sum_of_dweight():
    """Where all logits take no more memory than a float32 sum of dweight would, there is none."""
    hidden, vocabulary, rows = 2048, 65536, 4096  # logits of 512 MiB; weight has 256, a sum 512
    x = torch.randn(rows, hidden, device="cuda", dtype=BF16, requires_grad=True)
    weight = torch.randn(vocabulary, hidden, device="cuda", dtype=BF16, requires_grad=True)
    targets = torch.randint(0, vocabulary, (rows,), device="cuda")
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    loss = thunderkittens.linear_cross_entropy(x, weight, targets)
    peak = torch.cuda.max_memory_allocated() - before
    assert loss.isfinite()
    logits, gradients = 2 * rows * vocabulary, x.nbytes + weight.nbytes
    assert logits + gradients <= peak < logits + gradients + (64 << 20)


@pytest.mark.parametrize(("width", "rows"), [(1024, 2**21 + 1), (65536, 2**15 + 3)])
def test_more_than_2_to_the_31_elements(width, rows):
    """The last rows of a tensor past 2³¹ elements are those of a small one, in place."""
    if torch.cuda.mem_get_info()[0] < 40 << 30:
        pytest.skip("needs 40 GiB of GPU memory")
    x = torch.ones(rows, width, dtype=BF16, device="cuda")
    assert x.numel() > 2**31
    tail, targets = cases.make(Case(width, (100,), BF16, ignored=0), "cuda")
    x[-100:] = tail
    aims = torch.zeros(rows, dtype=torch.int64, device="cuda")
    aims[-100:] = targets
    options = {"reduction": "none"}
    run = torch.ops.thunderkittens.cross_entropy_forward_
    loss, want = run(x, aims, **options), run(tail, targets, **options)
    assert memory.bits_equal(loss[-100:], want)
    assert memory.bits_equal(x[-100:], tail)
    dloss = torch.full((rows,), 0.3, device="cuda")
    torch.ops.thunderkittens.cross_entropy_backward_(x, dloss)
    torch.ops.thunderkittens.cross_entropy_backward_(tail, dloss[:100])
    assert memory.bits_equal(x[-100:], tail)


def test_fallbacks_say_why():
    x, targets = cases.make(Case(8, (2,), FP64), "cuda")
    with pytest.raises(RuntimeError, match="cross_entropy: computed by torch: float64 is computed"):
        thunderkittens.cross_entropy(x, targets)


def test_mixed_devices_are_refused():
    x, targets = torch.randn(2, 8, device="cuda"), torch.zeros(2, dtype=torch.int64)
    message = r"cross_entropy: targets must be on cuda:0 \(logits's device\), got cpu"
    with pytest.raises(ValueError, match=message):
        thunderkittens.cross_entropy(x, targets)


@pytest.mark.parametrize("dtype", [BF16, FP16, FP32])
@pytest.mark.parametrize("inplace", [False, True])
def test_compile(dtype, inplace):
    """Inductor around the opaque op: no graph break, the bits of eager."""

    def call(x, targets):
        return thunderkittens.cross_entropy(x * 1.0, targets, inplace=inplace)

    compiled = torch.compile(call, fullgraph=True, dynamic=True)
    for rows in (7, 40):
        x, targets = cases.make(Case(768, (rows,), dtype), "cuda")
        x.requires_grad_()
        results = []
        for function in (compiled, call):
            loss = function(x, targets)
            results.append([loss.detach(), *torch.autograd.grad(loss, x)])
        for got, want in zip(*results, strict=True):
            assert memory.bits_equal(got, want)
