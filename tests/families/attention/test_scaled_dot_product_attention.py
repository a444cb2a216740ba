"""scaled_dot_product_attention against torch's own, which it replaces, on the CPU."""

import math
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.bias import causal_lower_right, causal_upper_left

import thunderkittens
from thunderkittens.ops import _fallback
from thunderkittens.testing import assert_close, memory, tolerance

FP32, FP16, BF16, FP64 = torch.float32, torch.float16, torch.bfloat16, torch.float64
SIZES = [(4, 7), (6, 6), (7, 4), (1, 5), (5, 1)]
LEADING = [(), (3,), (2, 3), (2, 1, 3), (2, 2, 1, 3)]  # the last is the heads of key and value
HEADS = [(leading, group) for leading in LEADING for group in (1, 2) if leading or group == 1]
sdpa = thunderkittens.scaled_dot_product_attention
torch_sdpa = F.scaled_dot_product_attention


@pytest.fixture
def told():
    """Reasons are told once more."""
    _fallback._warn_once.cache_clear()
    yield
    _fallback._warn_once.cache_clear()


@pytest.fixture
def replaced(monkeypatch):
    """As a program does it that wants ours everywhere."""
    monkeypatch.setattr(F, "scaled_dot_product_attention", sdpa)


def make(leading=(2, 3), rows=4, keys=4, group=1, d=8, dv=6, dtype=FP64):
    """query, key, value; the query has `group` times the heads."""
    heads = (*leading[:-1], group * leading[-1]) if leading else ()
    shapes = ((*heads, rows, d), (*leading, keys, d), (*leading, keys, dv))
    return [torch.randn(shape, dtype=FP64).to(dtype) for shape in shapes]


def strided(t):
    """The same values: steps of 2 in a row, rows before heads."""
    t = t.repeat_interleave(2, -1)[..., ::2]
    return t.transpose(-2, -3).contiguous().transpose(-2, -3) if t.dim() > 2 else t


def by_torch(tensors, **options):
    """Torch's formula in float64: the result, its bound's spread, gradients for `dout` of ones."""
    query, key, value = wide = [t.detach().double().requires_grad_() for t in tensors]
    with sdpa_kernel(SDPBackend.MATH):
        want = torch_sdpa(*wide, **options)
        spread = torch_sdpa(query, key, value.abs(), **options).detach()
    return want.detach(), spread, torch.autograd.grad(want.sum(), wide)


# ---- Numbers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [FP64, FP32, FP16, BF16], ids=str)
@pytest.mark.parametrize(("leading", "group"), HEADS, ids=str)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
def test_against_torch(causal, sizes, leading, group, dtype):
    """Contiguous and not, with and without gradients."""
    options = {"is_causal": causal, "enable_gqa": group > 1}
    tensors = make(leading, *sizes, group, dtype=dtype)
    want, spread, wants = by_torch(tensors, **options)
    score = float(tensors[0].abs().amax() * tensors[1].abs().sum(-1).amax())
    bound = tolerance.attention(want, spread, dtype, sizes[1], score)
    for lay_out in (torch.clone, strided):
        leaves = [lay_out(t).requires_grad_() for t in tensors]
        got = sdpa(*leaves, **options)
        assert (got.dtype, got.requires_grad) == (dtype, True)
        assert_close(got, want, bound)
        if leading:
            assert got.transpose(-2, -3).is_contiguous()
        with torch.no_grad():
            assert_close(sdpa(*leaves, **options), want, bound)
        for t, right in zip(torch.autograd.grad(got.sum(), leaves), wants, strict=True):
            # At most 14 terms of size 10, each rounded a few times.
            unit = tolerance.unit(dtype)
            torch.testing.assert_close(t.double(), right, rtol=8 * unit, atol=500 * unit)


@pytest.mark.parametrize("scale", [0.3, 1, 0.0, -0.5])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_scale(sizes, scale):
    tensors = make((2, 3), *sizes)
    for causal in (False, True):
        got = sdpa(*tensors, is_causal=causal, scale=scale)
        want = torch_sdpa(*tensors, is_causal=causal, scale=scale)
        torch.testing.assert_close(got, want)
    torch.testing.assert_close(sdpa(*tensors, None, 0.0, True, scale, False), want)


def test_causal_is_top_left():
    """Row i sees the keys 0 to i and no other: values that are one-hot give the weights."""
    for rows, keys in SIZES:
        query, key, _ = make((1, 1), rows, keys)
        weights = sdpa(query, key, torch.eye(keys, dtype=FP64)[None, None], is_causal=True)
        assert (weights > 0).equal(torch.ones_like(weights).tril().bool())


def test_same_bits_as_attention():
    tensors = make((2, 3), 5, 5, dtype=FP32)
    q, k, v = (t.transpose(1, 2) for t in tensors)
    want = thunderkittens.attention(q, k, v, causal=True).transpose(1, 2)
    got = sdpa(*tensors, is_causal=True)
    assert memory.bits_equal(got, want) and got.stride() == want.stride()


@pytest.mark.parametrize("zero", ["batch", "rows", "keys", "d", "dv"])
def test_empty(zero):
    sizes = {"rows": 3, "keys": 4, "d": 5, "dv": 6} | ({zero: 0} if zero != "batch" else {})
    leading = (0, 3) if zero == "batch" else (2, 3)
    tensors = make(leading, **sizes)
    for causal in (False, True):
        got = sdpa(*tensors, is_causal=causal)
        torch.testing.assert_close(got, torch_sdpa(*tensors, is_causal=causal))


@pytest.mark.parametrize("sizes", [(2, 3), (3, 3), (3, 2)], ids=str)
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
def test_gradcheck(causal, sizes):
    tensors = [t.requires_grad_() for t in make((1, 1), *sizes, group=2, d=3, dv=2)]
    call = lambda *t: sdpa(*t, is_causal=causal, enable_gqa=True)  # noqa: E731
    assert torch.autograd.gradcheck(call, tensors)


# ---- What is torch's -----------------------------------------------------------------------------


def masks(rows, keys):
    return [
        torch.rand(rows, keys) > 0.3,
        torch.randn(2, 1, rows, keys, dtype=FP64),
        causal_upper_left(rows, keys),
        causal_lower_right(rows, keys),
    ]


@pytest.mark.parametrize("replace", [False, True], ids=["", "replaced"])
@pytest.mark.parametrize("which", range(4))
def test_masks(which, replace, request):
    tensors, mask = make((2, 2), 3, 5), masks(3, 5)[which]
    want = torch_sdpa(*tensors, mask)
    if replace:
        request.getfixturevalue("replaced")
    torch.testing.assert_close(sdpa(*tensors, mask), want)


def test_dropout():
    tensors = make()
    torch.manual_seed(0)
    want = torch_sdpa(*tensors, dropout_p=0.5)
    torch.manual_seed(0)
    assert memory.bits_equal(sdpa(*tensors, dropout_p=0.5), want)


@pytest.mark.parametrize(
    ("shapes", "gqa"),
    [
        (((2, 3, 4, 8), (3, 5, 8), (3, 5, 8)), False),
        (((2, 3, 4, 8), (1, 1, 5, 8), (1, 1, 5, 8)), False),
        (((2, 4, 3, 8), (2, 2, 5, 8), (2, 4, 5, 8)), True),
        (((2, 4, 3, 8), (1, 2, 5, 8), (1, 2, 5, 8)), True),
    ],
    ids=str,
)
def test_broadcast(shapes, gqa):
    tensors = [torch.randn(shape) for shape in shapes]
    want = torch_sdpa(*tensors, enable_gqa=gqa)
    assert memory.bits_equal(sdpa(*tensors, enable_gqa=gqa), want)


def test_nested():
    jagged = [
        torch.nested.nested_tensor([torch.randn(n, 2, 8) for n in (3, 5)], layout=torch.jagged)
        for _ in range(3)
    ]
    tensors = [t.transpose(1, 2) for t in jagged]
    got, want = sdpa(*tensors), torch_sdpa(*tensors)
    assert all(map(memory.bits_equal, got.unbind(), want.unbind()))


Q = torch.randn(2, 3, 4, 8)
BAD = {
    "None": ((None, Q, Q), {}),
    "list": (([1.0], Q, Q), {}),
    "one dimension": ((Q[0, 0, 0],) * 3, {}),
    "width": ((Q, Q[..., :4], Q), {}),
    "dimensions": ((Q, Q[0, :2], Q[0, :2]), {}),
    "heads": ((Q, Q[:, :2], Q[:, :2]), {}),
    "heads of gqa": ((Q, Q[:, :2], Q[:, :2]), {"enable_gqa": True}),
    "gqa of two dimensions": ((Q[0, 0],) * 3, {"enable_gqa": True}),
    "batch": ((Q, Q[:1].expand(3, 3, 4, 8), Q), {}),
    "dtypes": ((Q, Q.double(), Q), {}),
    "integers": ((Q.int(),) * 3, {}),
    "devices": ((Q, Q.to("meta"), Q), {}),
    "mask dtype": ((Q, Q, Q), {"attn_mask": torch.ones(4, 4, dtype=torch.int32)}),
    "mask shape": ((Q, Q, Q), {"attn_mask": torch.ones(5, 5)}),
    "causal": ((Q, Q, Q), {"is_causal": 1}),
    "dropout": ((Q, Q, Q), {"dropout_p": 2.0}),
    "dropout type": ((Q, Q, Q), {"dropout_p": "0"}),
    "sparse": ((Q.to_sparse(), Q, Q), {}),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_inputs(name):
    """Torch's own error."""
    arguments, options = BAD[name]
    with pytest.raises(Exception) as want:
        torch_sdpa(*arguments, **options)
    with pytest.raises(want.type) as got:
        sdpa(*arguments, **options)
    assert str(got.value) == str(want.value)


def test_scale_must_be_finite():
    with pytest.raises(ValueError, match="^attention: scale must be finite, got inf"):
        sdpa(Q, Q, Q, scale=math.inf)


REASONS = {
    "an attn_mask": {"attn_mask": torch.ones(4, 4, dtype=torch.bool)},
    "dropout": {"dropout_p": 0.5},
}


@pytest.fixture
def simulated(told):
    """A backend under which torch is a fallback on the CPU too."""
    try:
        with thunderkittens.backend("simulator"):
            yield
    except RuntimeError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("reason", REASONS)
@pytest.mark.parametrize("compiled", [False, True], ids=["", "compiled"])
@pytest.mark.usefixtures("simulated")
def test_fallback_is_never_silent(reason, compiled, monkeypatch):
    torch._dynamo.reset()

    def call():
        return sdpa(Q, Q, Q, **REASONS[reason])

    if compiled:
        call = torch.compile(call, fullgraph=True, backend="eager")
    sentence = f"scaled_dot_product_attention: computed by torch: {reason}"
    with pytest.warns(UserWarning, match=f"^{sentence}$") as seen:
        call(), call()
    said = [w for w in seen if sentence in str(w.message)]
    assert len(said) == 1 and (compiled or said[0].filename == __file__)
    torch._dynamo.reset()
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "1")
    with pytest.raises(Exception, match=f"{sentence} .THUNDERKITTENS_STRICT=1 makes this an error"):
        call()


@pytest.mark.usefixtures("told")
@pytest.mark.parametrize("reason", REASONS)
def test_silent_where_nothing_falls_back(reason, monkeypatch):
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "1")
    for backend in ("auto", "torch"):
        with thunderkittens.backend(backend), warnings.catch_warnings():
            warnings.simplefilter("error")
            sdpa(Q, Q, Q, **REASONS[reason])


# ---- In models -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [BF16, FP16])
def test_autocast(dtype):
    """Queries rotated in float32 meet values that autocast has already cast."""
    query, key, value = make((2, 3), dtype=FP32)
    with torch.autocast("cpu", dtype=dtype):
        got = sdpa(query, key, value.to(dtype))
    assert got.dtype == dtype
    torch.testing.assert_close(got, sdpa(query.to(dtype), key.to(dtype), value.to(dtype)))


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("sizes", [(4, 7), (6, 6), (7, 4)], ids=str)
def test_compile(sizes, dynamic):
    """Differentiated with dynamic sizes where one becomes an argument: that takes ten seconds."""
    torch._dynamo.reset()
    compiled = torch.compile(sdpa, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    differentiated = not dynamic or sizes == (7, 4)
    for longer in (0, 2) if dynamic else (0,):
        rows, keys = (size + longer for size in sizes)
        tensors = [t.requires_grad_(differentiated) for t in make((2, 2, 1), rows, keys, 2)]
        options = {"is_causal": True, "enable_gqa": True}
        got, want = compiled(*tensors, **options), sdpa(*tensors, **options)
        assert memory.bits_equal(got, want) and got.stride() == want.stride()
        if differentiated:
            gradients = [torch.autograd.grad(o.square().sum(), tensors) for o in (got, want)]
            torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("which", range(4))
@pytest.mark.usefixtures("replaced")
def test_compile_with_masks(which):
    torch._dynamo.reset()
    tensors, mask = make((2, 2), 3, 5), masks(3, 5)[which]
    want = torch_sdpa(*tensors, mask if which < 2 else mask._materialize())
    compiled = torch.compile(sdpa, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(*tensors, mask), want)


@pytest.mark.usefixtures("replaced")
def test_replaces_torchs():
    """A module of torch's gives the same with ours, also compiled."""
    torch._dynamo.reset()
    module = torch.nn.MultiheadAttention(24, 3, batch_first=True, dtype=FP64)
    x = torch.randn(2, 5, 24, dtype=FP64, requires_grad=True)

    def call(x):
        return module(x, x, x, need_weights=False)[0]

    got = call(x)
    F.scaled_dot_product_attention = torch_sdpa
    torch.testing.assert_close(got, call(x))
    F.scaled_dot_product_attention = sdpa
    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), got)
