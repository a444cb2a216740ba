"""attention's kernel, lane by lane on the CPU: the list of test_attention_gpu.py in small."""

import math

import pytest
import torch

import thunderkittens
from tests.families.attention import cases, forward_checks, layouts
from tests.families.attention.cases import BF16, FP16, Case
from tests.families.attention.forward_checks import launches
from tests.families.attention.simulator_lists import ALL, OF_EACH_KIND, POLICIES, RANDOM
from thunderkittens import _C, _loader
from thunderkittens.testing import check_memory, memory

pytestmark = pytest.mark.skipif(
    not _loader.SIMULATOR.is_file(),
    reason="the simulator is not built (python -m build_tools simulator)",
)


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
    with thunderkittens.backend("simulator"):
        forward_checks.check_numbers(case, "cpu")


@pytest.mark.filterwarnings("ignore:attention(_backward)?. computed by torch")
@pytest.mark.usefixtures("fallbacks")
@pytest.mark.parametrize("case", RANDOM, ids=str)
def test_random_cases(case):
    with thunderkittens.backend("simulator"):
        forward_checks.check_any(case, "cpu")


@pytest.mark.usefixtures("fallbacks")
def test_the_kernel_takes_random_cases():
    with thunderkittens.backend("simulator"):
        assert any(cases.kernel_takes(case, *cases.make(case)) for case in RANDOM)


@pytest.mark.parametrize("case", OF_EACH_KIND, ids=str)
def test_policies_agree(case):
    """The order of threads, blocks and asynchronous work changes no bit; nor does a repetition."""
    tensors = cases.make(case)
    with thunderkittens.backend("simulator", threads=1):
        want = cases.forward(case, *tensors)
    for options in POLICIES:
        with thunderkittens.backend("simulator", **options):
            for got, first in zip(cases.forward(case, *tensors), want, strict=True):
                assert memory.bits_equal(got, first), options


@pytest.mark.skipif(not _loader.SIMULATOR_RACE.is_file(), reason="race mode is not built")
@pytest.mark.parametrize("case", OF_EACH_KIND, ids=str)
def test_no_races(case):
    """Nothing is left to chance in shared memory, and the numbers are those without race mode."""
    tensors = cases.make(case)
    with thunderkittens.backend("simulator"):
        want = cases.forward(case, *tensors)
    with thunderkittens.backend("simulator", policy="random", seed=3, race=True):
        for got, first in zip(cases.forward(case, *tensors), want, strict=True):
            assert memory.bits_equal(got, first)


@pytest.mark.parametrize("layout", layouts.LAYOUTS)
def test_strides_change_no_bit(layout):
    with thunderkittens.backend("simulator"):
        cases.check_layout(Case(33, 33, group=2, key_heads=2, batch=2, layout=layout), "cpu")
        cases.check_layout(Case(1, 1, layout=layout), "cpu")


@pytest.mark.parametrize("case", OF_EACH_KIND[1:3], ids=str)
def test_not_finite(case):
    with thunderkittens.backend("simulator"):
        cases.check_not_finite(case, "cpu")


def test_without_lse():
    """The log-sum-exp is written only when it is wanted; o is the same."""
    case = Case(65, 70, True)
    tensors = cases.make(case)
    with thunderkittens.backend("simulator"):
        o = thunderkittens.attention(*tensors, causal=True)
        again, _ = cases.forward(case, *tensors)
    assert memory.bits_equal(o, again)


# ---- Gradients -----------------------------------------------------------------------------------


@pytest.mark.parametrize("with_lse", [False, True], ids=["", "lse"])
@pytest.mark.parametrize(
    "case",
    [
        Case(33, 40, False, 4, 64, BF16),
        Case(40, 33, True, 2, 128, FP16, key_heads=2, batch=2),  # rows that see no key
        Case(20, 20, True, 1, 64, BF16, layout="transposed", scale=0.3),
    ],
    ids=str,
)
def test_gradients_against_float64(case, with_lse):
    before = launches()
    with thunderkittens.backend("simulator"):
        cases.check_gradients(case, "cpu", with_lse)
    assert launches() == before + 1


@pytest.mark.parametrize("needs", [(1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 0, 1)], ids=str)
def test_gradients_that_are_wanted(needs):
    case = Case(20, 24, True, 2)
    q, k, v = cases.make(case)
    with thunderkittens.backend("simulator"):
        full = cases.gradients(case, q, k, v, torch.ones_like(q))
        leaves = [t.clone().requires_grad_(bool(n)) for t, n in zip((q, k, v), needs, strict=True)]
        thunderkittens.attention(*leaves, causal=True).sum().backward()  # dout is expanded
    for leaf, want, need in zip(leaves, full, needs, strict=True):
        assert (leaf.grad is not None) == bool(need)
        assert not need or memory.bits_equal(leaf.grad, want)


def test_lse_alone_has_a_gradient():
    case = Case(20, 24, True, 2)
    leaves = [t.requires_grad_() for t in cases.make(case)]
    dlse = torch.randn(1, 2, 20)
    with thunderkittens.backend("simulator"):
        _, lse = cases.forward(case, *leaves)
        got = torch.autograd.grad(lse, leaves, dlse)
    reference = cases.Reference(case, *leaves)
    reference.check_gradients(torch.zeros_like(leaves[0]), dlse, *got)
    assert not got[2].any()


def test_backward_outside_of_the_context():
    case = Case(20, 24)
    leaves = [t.requires_grad_() for t in cases.make(case)]
    with thunderkittens.backend("simulator"):
        o = thunderkittens.attention(*leaves)
        want = torch.autograd.grad(o, leaves, torch.ones_like(o), retain_graph=True)
    got = torch.autograd.grad(o, leaves, torch.ones_like(o))
    assert all(map(memory.bits_equal, got, want))


def test_double_backward_is_refused():
    leaves = [t.requires_grad_() for t in cases.make(Case(8, 8))]
    with thunderkittens.backend("simulator"):
        o = thunderkittens.attention(*leaves)
        (dq, *_) = torch.autograd.grad(o.float().square().sum(), leaves, create_graph=True)
        with pytest.raises(NotImplementedError, match="attention: double backward is not"):
            dq.float().sum().backward()


# ---- Which calls the kernel takes ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"scale": 0.0}, r"scale 0 is not within 1e-30 and 1e\+30"),
        ({"scale": -1.0}, "scale -1 is not within"),
        ({"scale": 1e38}, r"scale 1e\+38 is not within"),
        ({"softcap": 1e-7}, "softcap 1e-07 is not within"),
        ({"dtype": torch.float32}, "float32 is computed by torch"),
        ({"dtype": torch.float64}, "float64 is computed by torch"),
        ({"width": 36}, "head dimension 36 is not one of 8, 16 … 256"),
        ({"width": 264}, "head dimension 264 is not"),
        ({"value_width": 20}, "head dimension 20 is not"),
        ({"width": 0}, "head dimension 0 is not"),
        ({"width": 0, "scale": 0.5}, "head dimension 0 is not"),
        ({"value_width": 0}, "head dimension 0 is not"),
    ],
    ids=str,
)
def test_fallbacks_say_why(change, reason, monkeypatch):
    options = dict(change)
    dtype, width = options.pop("dtype", BF16), options.pop("width", 64)
    q, k = (torch.randn(1, n, 2, width).to(dtype) for n in (3, 5))
    v = torch.randn(1, 5, 2, options.pop("value_width", width)).to(dtype)
    want = thunderkittens.attention(q, k, v, **options)
    before = launches()
    with thunderkittens.backend("simulator"):
        with pytest.raises(RuntimeError, match=f"attention: computed by torch: {reason}"):
            thunderkittens.attention(q, k, v, **options)
        with pytest.raises(RuntimeError, match=reason):
            thunderkittens.attention(q, k.clone().requires_grad_(), v, **options)
        monkeypatch.setenv("THUNDERKITTENS_STRICT", "0")
        _C.forget_warnings()
        with pytest.warns(UserWarning, match=reason):
            got = thunderkittens.attention(q, k, v, **options)
        found = thunderkittens.explain("attention", q, k, v, **options)
    assert memory.bits_equal(got, want)
    assert (found.backend, launches()) == ("torch", before)


@pytest.mark.parametrize(
    ("q_ends", "k_ends"),
    [
        ([0, 300], [0, 900]),  # past the last row and key
        ([-5, 70, 300], [-9, 40, 500]),
        ([0, 150, 80, 200], [0, 200, 100, 260]),  # backwards
        ([90, 90, 90], [0, 0, 260]),  # rows of no sequence
        ([5], [7]),  # no sequence
    ],
    ids=str,
)
def test_sequences_that_do_not_fit_are_clamped(q_ends, k_ends):
    """As torch's implementation does it; what is poison outside of them is not looked at."""
    q, k, v = (torch.randn(n, 2, 64).to(BF16) for n in (200, 260, 260))
    first, last = max(0, k_ends[0]), min(260, max(k_ends))
    for t in (k, v):
        t[:first] = math.nan
        t[last:] = math.nan
    ends = [torch.tensor(ends) for ends in (q_ends, k_ends)]
    options = {"max_seqlen_q": 200, "max_seqlen_k": 260, "return_lse": True}
    options |= dict(zip(("cu_seqlens_q", "cu_seqlens_k"), ends, strict=True))
    want, want_lse = thunderkittens.attention(
        *(t.float().nan_to_num() for t in (q, k, v)), **options
    )
    with thunderkittens.backend("simulator"):
        o, lse = check_memory(lambda *t: thunderkittens.attention(*t, **options), q, k, v)
    torch.testing.assert_close(o.float(), want, rtol=0, atol=2**-7)
    torch.testing.assert_close(lse, want_lse, rtol=1e-5, atol=1e-5)


def test_explain():
    with thunderkittens.backend("simulator"):
        for layout in ("contiguous", *layouts.LAYOUTS):
            tensors = cases.make(Case(9, 9, batch=2, layout=layout))
            found = thunderkittens.explain("attention", *tensors)
            assert found.backend == "simulator"
            assert bool(found.notes) == (layout in layouts.COPIED), layout
        tensors = cases.make(Case(9, 9, batch=2, layout="expanded"))
        found = str(thunderkittens.explain("attention", *tensors))
        assert "v is copied first: an expanded dimension has stride 0" in found
        tensors[0].requires_grad_()
        found = str(thunderkittens.explain("attention", *tensors))
        assert found.endswith("its backward is computed by a kernel, too")


@pytest.mark.parametrize("shape", [(0, 3, 5, 2), (2, 0, 5, 2), (2, 3, 0, 2), (2, 3, 5, 0)], ids=str)
@pytest.mark.parametrize("causal", [False, True])
def test_empty_launches_nothing(shape, causal):
    b, rows, keys, heads = shape
    q = torch.randn(b, rows, heads, 64).to(BF16).requires_grad_()
    k, v = (torch.randn(b, keys, heads, 64).to(BF16).requires_grad_() for _ in range(2))
    before = launches()
    with thunderkittens.backend("simulator"):
        o, lse = thunderkittens.attention(q, k, v, causal=causal, return_lse=True)
        o.float().sum().backward()
        again = thunderkittens.attention(q, k, v, causal=causal)
    assert launches() == before
    assert o.shape == again.shape == q.shape
    assert lse.shape == (b, heads, rows)
    assert not o.any() and bool((lse == -torch.inf).all())
    for t in (q, k, v):
        assert t.grad.shape == t.shape and not t.grad.any()


# ---- Under torch's transformations ---------------------------------------------------------------


@pytest.mark.parametrize("op", ["attention", "attention_forward", "attention_backward"])
def test_opcheck(op):
    case = Case(5, 7, True, 2, layout="transposed", batch=2)
    tensors = cases.make(case)
    overload = getattr(torch.ops.thunderkittens, op).default
    with thunderkittens.backend("simulator"):
        if op == "attention_backward":
            o, lse = cases.forward(case, *tensors)
            dout, dlse = torch.randn_like(o), torch.randn_like(lse)
            needs = [True, False, True, False]
            torch.library.opcheck(overload, (dout, dlse, *tensors, o, lse, True, None, needs))
            torch.library.opcheck(overload, (dout, None, *tensors, o, lse, True, 0.3, [True] * 4))
        else:
            leaves = tuple(t.requires_grad_() for t in tensors)
            torch.library.opcheck(overload, leaves, {"causal": True})
            torch.library.opcheck(overload, tuple(cases.make(case)), {"scale": 0.3})


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("gradient", [False, True])
def test_compile(dynamic, gradient):
    """One op, whose backend is chosen when the code runs: here by a code traced outside."""
    torch._dynamo.reset()
    compiled = torch.compile(
        thunderkittens.attention, fullgraph=True, dynamic=dynamic, backend="aot_eager"
    )
    compiled(*(t.requires_grad_(gradient) for t in cases.make(Case(6, 6))), causal=True)
    for length in (5, 9):
        tensors = [t.requires_grad_(gradient) for t in cases.make(Case(length, length))]
        before = launches()
        with thunderkittens.backend("simulator"):
            got = compiled(*tensors, causal=True)
            assert launches() == before + 1
            want = thunderkittens.attention(*tensors, causal=True)
            assert memory.bits_equal(got, want)
            if gradient:
                dout = torch.randn_like(want)
                both = (torch.autograd.grad(o, tensors, dout) for o in (got, want))
                assert all(memory.bits_equal(a, b) for a, b in zip(*both, strict=True))


@pytest.mark.parametrize("dtype", [BF16, FP16])
def test_autocast(dtype):
    leaves = [torch.randn(1, n, 2, 64, requires_grad=True) for n in (5, 7, 7)]
    before = launches()
    with thunderkittens.backend("simulator"), torch.autocast("cpu", dtype=dtype):
        o, lse = thunderkittens.attention(*leaves, return_lse=True)
        (o.float().sum() + lse.sum()).backward()
    assert launches() == before + 1
    assert (o.dtype, lse.dtype, leaves[0].grad.dtype) == (dtype, torch.float32, torch.float32)
    with thunderkittens.backend("simulator"):
        want = thunderkittens.attention(*(t.detach().to(dtype) for t in leaves))
    assert memory.bits_equal(o, want)
