"""attention's kernel on a GPU: every edge of its tiles, and what only a GPU can show."""

import itertools
import math

import pytest
import torch

import thunderkittens
from tests.families.attention import cases, forward_checks, heads, layouts
from tests.families.attention.cases import BF16, FP16, FP32, Case
from tests.families.attention.forward_checks import launches
from tests.tools.growing_memory import check_memory_does_not_grow
from tests.tools.run_to_run import check_same_bits
from thunderkittens import _C
from thunderkittens.testing import assert_close, memory, tolerance

pytestmark = pytest.mark.gpu

# Around the tiles of 64 to 192 rows and 128 keys.
LENGTHS = (1, 63, 64, 65, 127, 128, 129, 191, 192, 193, 383, 384, 385, 1023, 1024, 1025, 4097)
KINDS = list(itertools.product((False, True), cases.GROUPS, (64, 128), (BF16, FP16)))
ALL = [
    *cases.rotate(itertools.product(LENGTHS, LENGTHS)),
    *(Case(200, 333, *kind, key_heads=2, batch=2) for kind in KINDS),
    *(Case(333, 200, *kind, key_heads=2, batch=2) for kind in KINDS),
    *(
        Case(321, 321, causal, group, d, key_heads=2, batch=3, layout=layout)
        for layout, causal, (group, d) in itertools.product(
            layouts.LAYOUTS, (False, True), ((1, 64), (4, 128))
        )
    ),
    *(
        Case(150, 260, causal, 1, d, dtype, regime=regime)
        for regime, causal, d, dtype in itertools.product(
            cases.REGIMES[1:], (False, True), (64, 128), (BF16, FP16)
        )
    ),
    *(Case(150, 260, True, scale=scale) for scale in (1e-30, 1e-3, 1.0, 3.0)),
    *(
        Case(scale * n, scale * m, causal, 2, d, dtype, 2, 2, value_dim=dv)
        for (n, m, d, dv), scale, causal, dtype in itertools.product(
            heads.BETWEEN_TILES, (1, 7), (False, True), (BF16, FP16)
        )
    ),
    # More tiles than multiprocessors, and more heads than a grid's second direction has places.
    *(Case(1000, 1000, causal, 4, 128, key_heads=8, batch=5) for causal in (False, True)),
    *(Case(3, 5, causal, 4, key_heads=4, batch=4096) for causal in (False, True)),
]
RANDOM = cases.random(seed=1, count=2000)
GRADIENTS = [
    *(Case(129, 193, *kind, key_heads=2, batch=2) for kind in KINDS),
    *(Case(n, m, True, 2) for n, m in ((1, 1), (1, 300), (300, 1), (300, 64), (1025, 1025))),
    *(Case(130, 130, True, 2, batch=2, layout=layout) for layout in layouts.LAYOUTS),
    Case(257, 400, False, 3, 80, value_dim=40, window_left=100, window_right=7, sinks=FP32),
    Case(257, 400, True, 2, 24, FP16, value_dim=128, sinks=FP16),
    *(Case(3 * n, 7 * m, n < m, 2, d, value_dim=dv) for n, m, d, dv in heads.BETWEEN_TILES),
    Case(1000, 1000, True, 4, 128, key_heads=8, batch=5),
    Case(3, 5, True, 4, key_heads=4, batch=4200),
]


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    """A fallback would test torch, not the kernel."""
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "1")


@pytest.fixture
def fallbacks(strict, monkeypatch):
    """Where torch may compute what the kernel does not take yet."""
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "0")


@pytest.mark.parametrize("case", ALL, ids=str)
def test_against_float64(case):
    forward_checks.check_numbers(case, "cuda")


@pytest.mark.filterwarnings("ignore:attention(_backward)?. computed by torch")
@pytest.mark.usefixtures("fallbacks")
@pytest.mark.parametrize("case", RANDOM, ids=str)
def test_random_cases(case):
    forward_checks.check_any(case, "cuda")


@pytest.mark.usefixtures("fallbacks")
def test_the_kernel_takes_random_cases():
    assert any(cases.kernel_takes(case, *cases.make(case, "cuda")) for case in RANDOM[:100])


@pytest.mark.parametrize("layout", layouts.LAYOUTS)
@pytest.mark.parametrize("head_dim", [64, 128])
def test_strides_change_no_bit(layout, head_dim):
    case = Case(300, 300, True, 2, head_dim, key_heads=2, batch=2, layout=layout)
    cases.check_layout(case, "cuda")
    cases.check_layout(Case(1, 1, head_dim=head_dim, layout=layout), "cuda")


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("head_dim", [64, 72, 128, 192])
def test_not_finite(causal, head_dim):
    cases.check_not_finite(Case(300, 400, causal, 2, head_dim, key_heads=2), "cuda")


@pytest.mark.parametrize("causal", [False, True])
def test_without_lse(causal):
    case = Case(300, 400, causal, 2)
    tensors = cases.make(case, "cuda")
    o = thunderkittens.attention(*tensors, causal=causal)
    assert memory.bits_equal(o, cases.forward(case, *tensors)[0])


@pytest.mark.parametrize(("head_dim", "causal"), list(itertools.product((64, 128), (False, True))))
def test_run_to_run(head_dim, causal):
    """The same bits every time, also while another stream keeps the GPU busy."""
    case = Case(1000, 1100, causal, 4, head_dim, key_heads=4, batch=4)
    tensors = cases.make(case, "cuda")
    check_same_bits(lambda: cases.forward(case, *tensors), repeats=50)


def test_simulator_and_gpu_agree():
    """Both within the bounds of one reference."""
    tensors = cases.make(case := Case(70, 90, True, 2))
    results = cases.forward(case, *(t.cuda() for t in tensors))
    cases.Reference(case, *tensors).check(*(t.cpu() for t in results))


# ---- Gradients -----------------------------------------------------------------------------------


@pytest.mark.parametrize("with_lse", [False, True], ids=["", "lse"])
@pytest.mark.parametrize("case", GRADIENTS, ids=str)
def test_gradients_against_float64(case, with_lse):
    before = launches(), launches("attention_backward")
    cases.check_gradients(case, "cuda", with_lse)
    assert (launches(), launches("attention_backward")) == (before[0] + 1, before[1] + 1)


def test_rows_that_see_no_key_pass_no_gradient():
    case = Case(300, 100, True, 2)
    q, k, v = cases.make(case, "cuda")
    dq, dk, dv = cases.gradients(case, q, k, v, torch.ones_like(q))
    assert not dq[:, :200].any()
    assert all(bool(t.isfinite().all()) for t in (dq, dk, dv))


@pytest.mark.parametrize("needs", [(1, 0, 0), (0, 1, 0), (0, 0, 1)], ids=str)
def test_gradients_that_are_wanted(needs):
    case = Case(130, 200, True, 2)
    q, k, v = cases.make(case, "cuda")
    leaves = [t.clone().requires_grad_(bool(n)) for t, n in zip((q, k, v), needs, strict=True)]
    thunderkittens.attention(*leaves, causal=True).sum().backward()  # dout is expanded
    assert [t.grad is not None for t in leaves] == list(map(bool, needs))
    full = cases.gradients(case, q, k, v, torch.ones_like(q))
    pairs = zip(leaves, full, strict=True)
    assert all(t.grad is None or memory.bits_equal(t.grad, want) for t, want in pairs)


def test_training_step_with_torch_compile():
    """Inductor around the opaque op: no graph break, the forward's bits are those of eager."""
    torch._dynamo.reset()
    compiled = torch.compile(thunderkittens.attention, fullgraph=True, dynamic=True)
    for length in (70, 130):
        case = Case(length, length, True, 2)
        leaves = [t.requires_grad_() for t in cases.make(case, "cuda")]
        dout = torch.randn_like(leaves[0])
        before = launches()
        o = compiled(*leaves, causal=True)
        got = torch.autograd.grad(o, leaves, dout)
        assert launches() == before + 1
        assert memory.bits_equal(o, thunderkittens.attention(*leaves, causal=True))
        cases.Reference(case, *leaves).check_gradients(dout, None, *got)


# ---- Streams, graphs, memory ---------------------------------------------------------------------


def test_graph_capture():
    """Forward and backward in one CUDA graph; replays on new data give the bits of plain calls."""
    case = Case(333, 444, True, 2, 128, key_heads=2)
    static = cases.make(case, "cuda")
    dout = torch.randn_like(static[0])

    def run(q, k, v):
        return *cases.forward(case, q, k, v), *cases.gradients(case, q, k, v, dout)

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        run(*static)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = run(*static)
    for _ in range(5):
        fresh = cases.make(case, "cuda")
        for place, values in zip(static, fresh, strict=True):
            place.copy_(values)
        graph.replay()
        assert all(map(memory.bits_equal, captured, run(*fresh)))
        cases.Reference(case, *fresh).check_gradients(dout, None, *captured[2:])


def test_side_stream():
    """The op waits for the producer on its own stream and not for others."""
    case = Case(300, 400, True, 2)
    tensors = cases.make(case, "cuda")
    want = cases.forward(case, *tensors)
    for _ in range(10):
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            torch.cuda._sleep(2_000_000)
            late = [t.clone() for t in tensors]
            results = [t.clone() for t in cases.forward(case, *late)]
        torch.cuda.current_stream().wait_stream(stream)
        for got, first in zip(results, want, strict=True):
            assert memory.bits_equal(got, first)


def test_no_hidden_synchronisation():
    case = Case(300, 400, True, 2)
    tensors = cases.make(case, "cuda")
    dout = torch.randn_like(tensors[0])
    cases.gradients(case, *tensors, dout)
    torch.cuda.set_sync_debug_mode("error")
    try:
        cases.gradients(case, *tensors, dout)
        torch.cuda._sleep(200_000_000)  # 0.1 s: a call that waited for it would show below
        done = torch.cuda.Event()
        cases.gradients(case, *tensors, dout)
        done.record()
        assert not done.query()
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_memory_does_not_grow():
    case = Case(300, 400, True, 2, layout="transposed")
    tensors = cases.make(case, "cuda")
    dout = torch.randn_like(tensors[0])
    check_memory_does_not_grow(lambda: cases.gradients(case, *tensors, dout))


@pytest.mark.parametrize("what", ["rows", "batch"])
def test_more_than_2_to_the_31_elements(what):
    """The last rows, or batches, of tensors past 2³¹ elements are those of small ones."""
    if torch.cuda.mem_get_info()[0] < 60 << 30:
        pytest.skip("needs 60 GiB of GPU memory")
    heads, d = 32, 128
    if what == "rows":
        last, small = 200, Case(200, 100, False, heads, d)
        q_tail, k, v = cases.make(small, "cuda")
        q = torch.ones(1, 2**19 + last, heads, d, dtype=BF16, device="cuda")
        q[:, -last:] = q_tail
        o, lse = cases.forward(small, q, k, v)
        assert q.numel() > 2**31
        got = o[:, -last:], lse[..., -last:]
    else:
        last, small = 3, Case(16, 16, True, 1, d, key_heads=heads, batch=3)
        tails = cases.make(small, "cuda")
        shape = (2**15 + last, 16, heads, d)
        whole = [torch.ones(shape, dtype=BF16, device="cuda") for _ in range(3)]
        for t, tail in zip(whole, tails, strict=True):
            t[-last:] = tail
        q_tail, k, v = tails
        o, lse = cases.forward(small, *whole)
        assert o.numel() > 2**31
        got = o[-last:], lse[-last:]
    want = cases.forward(small, q_tail, k, v)
    assert all(map(memory.bits_equal, got, want))


def test_other_gpu():
    """The op runs where its tensors are, and leaves the current device as it was."""
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    case = Case(100, 130, True, 2)
    tensors = cases.make(case, "cuda:1")
    results = cases.forward(case, *tensors)
    assert torch.cuda.current_device() == 0
    assert results[0].device == torch.device("cuda:1")
    cases.Reference(case, *tensors).check(*results)


# ---- Which calls the kernel takes ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"softcap": 1e-7}, "softcap 1e-07 is not"),
        ({"scale": -0.1}, "scale -0.1 is not"),
    ],
    ids=str,
)
def test_fallbacks_say_why(options, reason, monkeypatch):
    q = torch.randn(1, 40, 2, 64, device="cuda").to(BF16)
    for t in (q, q.clone().requires_grad_()):
        with pytest.raises(RuntimeError, match=f"attention: computed by torch: {reason}"):
            thunderkittens.attention(t, q, q, **options)
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "0")
    _C.forget_warnings()
    before = launches()
    with pytest.warns(UserWarning, match=reason):
        o = thunderkittens.attention(q, q, q, **options)
    want = thunderkittens.attention(*[q.cpu().double()] * 3, **options)
    # The largest of a row's weights is at most 1 and so is the bound's spread: |v|'s maximum.
    spread = q.cpu().double().abs().amax(1, keepdim=True).expand(want.shape)
    assert_close(o, want, tolerance.attention(want, spread, BF16, 40, 100.0))
    assert launches() == before


@pytest.mark.parametrize("widths", [(0, 64), (64, 0), (0, 0)], ids=str)
@pytest.mark.parametrize("scale", [None, 0.5])
@pytest.mark.usefixtures("fallbacks")
@pytest.mark.filterwarnings("ignore:attention(_backward)?. computed by torch")
def test_heads_without_width(widths, scale):
    """Without D all keys weigh the same; without Dv there is only an lse."""
    q, k = (torch.randn(1, n, 2, widths[0], device="cuda", dtype=BF16) for n in (5, 7))
    v = torch.randn(1, 7, 2, widths[1], device="cuda", dtype=BF16)
    leaves = [t.requires_grad_() for t in (q, k, v)]
    o, lse = thunderkittens.attention(*leaves, scale=scale, return_lse=True)
    (o.float().sum() + lse.sum()).backward()
    assert o.shape == (1, 5, 2, widths[1])
    if widths[0] == 0:
        torch.testing.assert_close(o, v.mean(1, keepdim=True).expand_as(o), rtol=2**-7, atol=2**-7)
        torch.testing.assert_close(lse, torch.full_like(lse, math.log(7)))
    assert all(t.grad.shape == t.shape for t in leaves)


def test_float32_falls_back(monkeypatch):
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "0")
    _C.forget_warnings()
    q = torch.randn(1, 40, 2, 64, device="cuda", dtype=FP32)
    with pytest.warns(UserWarning, match="attention: computed by torch: float32"):
        thunderkittens.attention(q, q, q)


def test_explain():
    tensors = cases.make(Case(9, 9, batch=2), "cuda")
    found = thunderkittens.explain("attention", *tensors)
    assert (found.backend, found.notes) == ("cuda", ())
    for layout in layouts.LAYOUTS:
        found = thunderkittens.explain("attention", *layouts.lay_out(tensors, layout))
        assert found.backend == "cuda"
        assert bool(found.notes) == (layout in layouts.COPIED), layout


@pytest.mark.parametrize("shape", [(0, 3, 5, 2), (2, 0, 5, 2), (2, 3, 0, 2), (2, 3, 5, 0)], ids=str)
def test_empty_launches_nothing(shape):
    b, rows, keys, heads = shape
    q, k, v = (
        torch.randn(b, n, heads, 64, device="cuda").to(BF16).requires_grad_()
        for n in (rows, keys, keys)
    )
    before = launches()
    o, lse = thunderkittens.attention(q, k, v, causal=True, return_lse=True)
    o.float().sum().backward()
    assert launches() == before
    assert not o.any() and bool((lse == -torch.inf).all())
    for t in (q, k, v):
        assert t.grad.shape == t.shape and not t.grad.any()
    torch.cuda.synchronize()


@pytest.mark.parametrize("dtype", [BF16, FP16])
def test_autocast(dtype):
    leaves = [torch.randn(1, n, 2, 64, device="cuda", requires_grad=True) for n in (50, 70, 70)]
    before = launches()
    with torch.autocast("cuda", dtype=dtype):
        o, lse = thunderkittens.attention(*leaves, return_lse=True)
    (o.float().sum() + lse.sum()).backward()
    assert launches() == before + 1
    assert (o.dtype, lse.dtype, leaves[0].grad.dtype) == (dtype, FP32, FP32)
    want = thunderkittens.attention(*(t.detach().to(dtype) for t in leaves))
    assert memory.bits_equal(o, want)


def test_mixed_devices_are_refused():
    q, k, v = cases.make(Case(9, 9), "cuda")
    before = launches()
    message = r"attention: k must be on cuda:0 \(q's device\), got cpu"
    with pytest.raises(ValueError, match=message):
        thunderkittens.attention(q, k.cpu(), v)
    assert launches() == before
    thunderkittens.attention(q, k, v)
