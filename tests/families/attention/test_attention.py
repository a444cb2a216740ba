"""attention on the CPU (ATen backend) against a float64 formula written row by row."""

import itertools
import math

import pytest
import torch

import thunderkittens
from thunderkittens.testing import assert_close, check_memory, memory, tolerance

FP32, FP16, BF16, FP64 = torch.float32, torch.float16, torch.bfloat16, torch.float64


def make(b=2, sq=5, sk=7, hq=4, hk=2, d=8, dv=8, dtype=FP32):
    """q, k, v of one size."""
    shapes = ((b, sq, hq, d), (b, sk, hk, d), (b, sk, hk, dv))
    return tuple(torch.randn(shape).to(dtype) for shape in shapes)


def sees(i, j, sq, sk, causal, window):
    """Whether row i sees key j."""
    diagonal = i + sk - sq
    left, right = window or (None, None)
    if causal:
        right = 0
    return (left is None or j >= diagonal - left) and (right is None or j <= diagonal + right)


def reference(q, k, v, causal=False, scale=None, window=None, softcap=0.0, sinks=None):
    """o, lse, softmax @ |v| and the largest |q| @ |k| · scale, one row at a time in float64."""
    (b, sq, hq, d), (_, sk, hk, dv) = q.shape, v.shape
    q, k, v = q.double(), k.double(), v.double()
    scale = 1 / math.sqrt(d) if scale is None else scale
    o, spread = torch.zeros(b, sq, hq, dv, dtype=FP64), torch.zeros(b, sq, hq, dv, dtype=FP64)
    lse = torch.full((b, hq, sq), -math.inf, dtype=FP64)
    largest = 0.0
    for n, h, i in itertools.product(range(b), range(hq), range(sq)):
        g = h // (hq // hk)
        keys = [j for j in range(sk) if sees(i, j, sq, sk, causal, window)]
        score = k[n, keys, g] @ q[n, i, h] * scale
        if softcap > 0:
            score = softcap * torch.tanh(score / softcap)
        logits = score if sinks is None else torch.cat([score, sinks[h].double().view(1)])
        if not len(logits):
            continue
        lse[n, h, i] = torch.logsumexp(logits, 0)
        weights = torch.exp(score - lse[n, h, i])
        o[n, i, h], spread[n, i, h] = weights @ v[n, keys, g], weights @ v[n, keys, g].abs()
        if keys:
            size = (k[n, keys, g].abs() @ q[n, i, h].abs()).max() * abs(scale)
            largest = max(largest, float(size))
    return o, lse, spread, largest


def check(q, k, v, o, lse=None, other=None, **options):
    """Asserts o, and lse and another o if given, against the reference."""
    want, want_lse, spread, largest = reference(q, k, v, **options)
    bound = tolerance.attention(want, spread, q.dtype, k.shape[1], largest)
    for each in (o, o if other is None else other):
        assert each.dtype == q.dtype
        assert each.is_contiguous()
        assert_close(each, want, bound, "o")
    if lse is not None:
        assert lse.dtype == (FP64 if q.dtype == FP64 else FP32)
        bound = 1e-5 + 1e-6 * want_lse.abs().nan_to_num(posinf=0.0)
        assert_close(lse, want_lse, bound, "lse")


OPTIONS = [
    {},
    {"causal": True},
    {"scale": 0.3},
    {"scale": -1.0},
    {"scale": 0.0},
    {"window": (2, 1)},
    {"window": (None, 1)},
    {"window": (1, None)},
    {"window": (0, 0)},
    {"window": (2, 3), "causal": True},
    {"softcap": 0.5},
    {"softcap": 2.0, "causal": True, "window": (3, None)},
]
SIZES = [(5, 7), (7, 5), (6, 6), (1, 9), (9, 1), (3, 0), (0, 3), (33, 65)]


@pytest.mark.parametrize("sinks", [False, True], ids=["", "sinks"])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_against_float64(sizes, options, sinks):
    q, k, v = make(sq=sizes[0], sk=sizes[1])
    options = {**options, "sinks": torch.randn(4)} if sinks else options
    o, lse = thunderkittens.attention(q, k, v, return_lse=True, **options)
    without_lse = thunderkittens.attention(q, k, v, **options)
    check(q, k, v, o, lse, without_lse, **options)


@pytest.mark.parametrize("dtype", [FP32, FP16, BF16, FP64])
@pytest.mark.parametrize("causal", [False, True])
def test_dtypes(dtype, causal):
    q, k, v = make(sq=17, sk=17, d=16, dv=24, dtype=dtype)
    sinks = torch.randn(4, dtype=FP32)
    check(q, k, v, thunderkittens.attention(q, k, v, causal=causal), causal=causal)
    o, lse = thunderkittens.attention(q, k, v, causal=causal, sinks=sinks, return_lse=True)
    check(q, k, v, o, lse, causal=causal, sinks=sinks)


@pytest.mark.parametrize("heads", [(1, 1), (6, 6), (6, 3), (6, 2), (6, 1), (7, 1)], ids=str)
@pytest.mark.parametrize("lse", [False, True])
def test_head_map(heads, lse):
    """Each key head holds one constant, so that a wrong map shows as a wrong number."""
    q, k, v = make(sq=3, sk=4, hq=heads[0], hk=heads[1])
    v = torch.arange(heads[1], dtype=FP32).view(1, 1, -1, 1).expand(v.shape)
    o = thunderkittens.attention(q, k, v, return_lse=lse)
    want = (torch.arange(heads[0]) // (heads[0] // heads[1])).float().view(1, 1, -1, 1)
    torch.testing.assert_close(o[0] if lse else o, want.expand(2, 3, heads[0], 8))


@pytest.mark.parametrize("dtype", [FP64, FP32, FP16, BF16], ids=str)
@pytest.mark.parametrize(("sq", "sk"), [(2, 3), (5, 37), (16, 17)])
def test_causal_rows_behind_keys(sq, sk, dtype):
    """The next tokens of a prompt: by torch's fused attention where no gradient is wanted."""
    q, k, v = make(sq=sq, sk=sk, d=16, dv=16, dtype=dtype)
    for wanted in (False, True):
        with torch.profiler.profile(acc_events=True) as profile:
            o = thunderkittens.attention(q, k, v.requires_grad_(wanted), causal=True)
        ran = {event.name for event in profile.events()}
        assert ("aten::_scaled_dot_product_flash_attention_for_cpu" in ran) != wanted
        check(q, k, v.detach(), o.detach(), causal=True)


@pytest.mark.parametrize("options", [{}, {"causal": True}, {"softcap": 1.0}], ids=str)
def test_strides(options):
    """Other strides, the same bits."""
    q, k, v = make()
    want = thunderkittens.attention(q, k, v, **options)
    transposed = [t.transpose(1, 2).contiguous().transpose(1, 2) for t in (q, k, v)]
    sliced = [torch.cat([t, t], -1)[..., : t.shape[-1]] for t in (q, k, v)]
    stepped = [t.repeat_interleave(2, -1)[..., ::2] for t in (q, k, v)]
    for tensors in (transposed, sliced, stepped):
        torch.testing.assert_close(thunderkittens.attention(*tensors, **options), want)


def test_memory():
    q, k, v = make()
    sinks = torch.randn(4)

    def call(q, k, v, sinks):
        leaves = [t.detach().requires_grad_() for t in (q, k, v, sinks)]
        o, lse = thunderkittens.attention(*leaves[:3], sinks=leaves[3], return_lse=True)
        return o, lse, *torch.autograd.grad(o.sum() + lse.sum(), leaves)

    check_memory(call, q, k, v, sinks)


@pytest.mark.parametrize("shape", [{"b": 0}, {"sq": 0}, {"sk": 0}, {"dv": 0}, {"d": 0}], ids=str)
@pytest.mark.parametrize("causal", [False, True])
def test_empty(shape, causal):
    q, k, v = (t.requires_grad_() for t in make(**shape))
    o, lse = thunderkittens.attention(q, k, v, causal=causal, return_lse=True)
    assert o.shape == (*q.shape[:3], v.shape[3])
    assert lse.shape == (q.shape[0], q.shape[2], q.shape[1])
    assert not o.isnan().any()
    (o.sum() + lse.nan_to_num(neginf=0.0).sum()).backward()
    assert all(bool(t.grad.isfinite().all()) for t in (q, k, v))
    assert thunderkittens.attention(q, k, v, causal=causal).shape == o.shape


def test_rows_without_a_key():
    """More rows than keys under causal: the first rows see nothing, and pass no gradient."""
    q, k, v = (t.requires_grad_() for t in make(sq=6, sk=2))
    o, lse = thunderkittens.attention(q, k, v, causal=True, return_lse=True)
    assert torch.equal(o[:, :4], torch.zeros_like(o[:, :4]))
    assert bool((lse[..., :4] == -math.inf).all())
    sinks = torch.randn(4)
    _, with_sink = thunderkittens.attention(q, k, v, causal=True, sinks=sinks, return_lse=True)
    assert_close(with_sink[..., :4], sinks.double().view(1, 4, 1).expand(2, 4, 4), 1e-6)
    (o.sum() + lse[..., 4:].sum()).backward()
    assert torch.equal(q.grad[:, :4], torch.zeros_like(q.grad[:, :4]))
    assert all(bool(t.grad.isfinite().all()) for t in (q, k, v))


@pytest.mark.parametrize("options", OPTIONS[1:], ids=str)
@pytest.mark.parametrize("sizes", [(3, 4), (4, 3)], ids=str)
def test_gradcheck(sizes, options):
    q, k, v = (t.requires_grad_() for t in make(1, *sizes, 2, 1, 3, 2, FP64))
    sinks = torch.randn(2, dtype=FP64, requires_grad=True)

    def call(q, k, v, sinks):
        o, lse = thunderkittens.attention(q, k, v, sinks=sinks, return_lse=True, **options)
        return o, lse

    assert torch.autograd.gradcheck(call, (q, k, v, sinks))
    assert torch.autograd.gradcheck(
        lambda q, k, v: thunderkittens.attention(q, k, v, **options), (q, k, v)
    )


# ---- Packed sequences ----------------------------------------------------------------------------


def pack(lengths_q, lengths_k, dtype=FP32):
    """Packed q, k, v and the options that say how."""
    q, k, v = (t.squeeze(0) for t in make(1, sum(lengths_q), sum(lengths_k), dtype=dtype))
    options = {
        "cu_seqlens_q": torch.tensor([0, *itertools.accumulate(lengths_q)], dtype=torch.int32),
        "cu_seqlens_k": torch.tensor([0, *itertools.accumulate(lengths_k)], dtype=torch.int64),
        "max_seqlen_q": max(lengths_q, default=0),
        "max_seqlen_k": max(lengths_k, default=0),
    }
    return q, k, v, options


PACKINGS = [([3, 5, 1], [3, 5, 1]), ([2, 4], [5, 3]), ([0, 3, 0], [2, 4, 1]), ([4], [0]), ([], [])]


@pytest.mark.parametrize("lengths", PACKINGS, ids=str)
@pytest.mark.parametrize("options", [{}, {"causal": True}, {"window": (1, 1)}], ids=str)
def test_packed(lengths, options):
    check_packed(thunderkittens.attention, lengths, options)


@pytest.mark.parametrize("lengths", PACKINGS[:3], ids=str)
def test_packed_and_compiled(lengths):
    """Compiled code that records takes the form that reads nothing back."""
    check_packed(compiled_form_by_mask(), lengths, {"causal": True})


def compiled_form_by_mask():
    """`attention` compiled into ATen ops: what happens where a gradient is recorded."""
    torch._dynamo.reset()
    compiled = torch.compile(thunderkittens.attention, fullgraph=True, backend="aot_eager")

    def call(q, k, v, **options):
        results = compiled(q.clone().requires_grad_(), k, v, **options)
        return torch.utils._pytree.tree_map(torch.Tensor.detach, results)

    return call


def check_packed(call, lengths, options):
    """Asserts that each sequence comes out as if alone."""
    q, k, v, places = pack(*lengths)
    o, lse = call(q, k, v, return_lse=True, **places, **options)
    assert (o.shape, lse.shape) == (q.shape, (4, len(q)))
    row = column = 0
    for rows, keys in zip(*lengths, strict=True):
        one = [q[None, row : row + rows]]
        one += [t[None, column : column + keys] for t in (k, v)]
        check(*one, o[None, row : row + rows], lse[None, :, row : row + rows], **options)
        row, column = row + rows, column + keys


@pytest.mark.parametrize("ends", [[1, 3, 6], [0, 9, 4], [-3, 2, 99]], ids=str)
@pytest.mark.parametrize("compiled", [False, True], ids=["loop", "mask"])
def test_inconsistent_cu_seqlens_are_clamped(ends, compiled):
    """Wrong offsets give some defined result; tokens of no sequence give 0, whatever they hold."""
    q, k, v, places = pack([3, 4], [3, 4])
    places["cu_seqlens_q"] = places["cu_seqlens_k"] = torch.tensor(ends)
    call = compiled_form_by_mask() if compiled else thunderkittens.attention
    inside = sorted(min(max(e, 0), 7) for e in ends)
    if ends == sorted(ends):
        for t in (q, k, v):
            t[: inside[0]] = t[inside[-1] :] = float("nan")
    o = call(q, k, v, **places)
    assert bool(o.isfinite().all())
    if ends == sorted(ends):
        assert not o[: inside[0]].any() and not o[inside[-1] :].any()


@pytest.mark.parametrize("ends", [[0, 4, 1, 5], [3, 1, 9, 2, 6]], ids=str)
@pytest.mark.parametrize("causal", [False, True])
def test_cu_seqlens_out_of_order(ends, causal):
    """Both forms take the running maximum, so that eager and compiled code agree."""
    q, k, v, places = pack([3, 4], [3, 4])
    places["cu_seqlens_q"] = places["cu_seqlens_k"] = torch.tensor(ends)
    compiled = compiled_form_by_mask()
    want = thunderkittens.attention(q, k, v, causal=causal, **places, return_lse=True)
    got = compiled(q, k, v, causal=causal, **places, return_lse=True)
    torch.testing.assert_close(got, want)
    places["cu_seqlens_q"] = places["cu_seqlens_k"] = torch.tensor(ends).clamp(0, 7).cummax(0)[0]
    in_order = thunderkittens.attention(q, k, v, causal=causal, **places, return_lse=True)
    assert all(map(torch.equal, in_order, want))


def test_packed_gradients():
    q, k, v, places = pack([2, 0, 3], [3, 1, 2], FP64)
    leaves = [t.requires_grad_() for t in (q, k, v)]

    def call(q, k, v):
        return thunderkittens.attention(q, k, v, causal=True, **places)

    assert torch.autograd.gradcheck(call, leaves)


def test_packed_options_go_together():
    q, k, v, places = pack([2, 3], [2, 3])
    for name in places:
        message = f"attention: {name} must be given with cu_seqlens_q, got None"
        if name == "cu_seqlens_q":
            message = "attention: cu_seqlens_k must be None without cu_seqlens_q, got a tensor"
        with pytest.raises(ValueError, match=f"^{message}$"):
            thunderkittens.attention(q, k, v, **{n: p for n, p in places.items() if n != name})
    q4, k4, v4 = make()
    with pytest.raises(
        ValueError, match="max_seqlen_q must be None without cu_seqlens_q, got a number$"
    ):
        thunderkittens.attention(q4, k4, v4, max_seqlen_q=5)


# ---- Autocast, opcheck, compile ------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [BF16, FP16])
def test_autocast(dtype):
    q, k, v = (t.requires_grad_() for t in make(dtype=FP32))
    mixed = (q, k.detach().to(dtype), v)
    with torch.autocast("cpu", dtype=dtype):
        o, lse = thunderkittens.attention(*mixed, sinks=torch.randn(4), return_lse=True)
        plain = thunderkittens.attention(q, k, v)
    assert (o.dtype, lse.dtype, plain.dtype) == (dtype, FP32, dtype)
    (o.sum() + plain.sum()).backward()
    assert q.grad.dtype == FP32
    torch.testing.assert_close(
        plain, thunderkittens.attention(q.to(dtype), k.to(dtype), v.to(dtype))
    )
    with pytest.raises(TypeError, match="attention: k must have dtype float32"):
        thunderkittens.attention(*mixed)


@pytest.mark.parametrize("dtype", [FP32, FP16, BF16])
def test_autocast_of_sinks(dtype):
    """Sinks are cast with q, k and v, but float32 ones keep their precision."""
    q, k, v = make(dtype=FP16)
    sinks = torch.randn(4).to(dtype)
    with torch.autocast("cpu", dtype=BF16):
        o = thunderkittens.attention(q, k, v, sinks=sinks)
    cast = [t.to(BF16) for t in (q, k, v)]
    want = thunderkittens.attention(*cast, sinks=sinks if dtype == FP32 else sinks.to(BF16))
    assert memory.bits_equal(o, want)


@pytest.mark.gpu
@pytest.mark.parametrize("stepped", ["q", "k", "v"])
def test_decoding_with_strided_rows(stepped):
    """FlashAttention wants contiguous rows; without them, or without it, torch chooses another."""
    tensors = dict(zip("qkv", (t.cuda() for t in make(sq=1, d=64, dv=64, dtype=BF16)), strict=True))
    want = thunderkittens.attention(*tensors.values()).float()
    tensors[stepped] = tensors[stepped].repeat_interleave(2, -1)[..., ::2]
    got = thunderkittens.attention(*tensors.values()).float()
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        switched_off = thunderkittens.attention(*tensors.values()).float()
    torch.testing.assert_close(got, want, rtol=2e-2, atol=2e-2)
    torch.testing.assert_close(switched_off, want, rtol=2e-2, atol=2e-2)


# Of a mask, attention_forward, with all options at once: `attention` is its o, and symbolic sizes
# take seconds.
SAMPLES = [
    ("attention", {}),
    ("attention_forward", {"window_left": 2, "softcap": 1.0, "sinks": True, "causal": True}),
]


@pytest.mark.parametrize(("op", "options"), SAMPLES, ids=str)
def test_opcheck(op, options):
    if "sinks" in options:
        options = {**options, "sinks": torch.randn(4, requires_grad=True)}
    batch = 1 if "softcap" in options else 2  # a symbol less
    q, k, v = (t.transpose(0, 1).contiguous().transpose(0, 1) for t in make(batch))
    for t in (q, k, v):
        t.requires_grad_()
    overload = getattr(torch.ops.thunderkittens, op).default
    torch.library.opcheck(overload, (q, k, v), options)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("options", [{"causal": True}, {"window": (3, 0)}], ids=str)
def test_compile(dynamic, options):
    torch._dynamo.reset()
    compiled = torch.compile(
        thunderkittens.attention, fullgraph=True, dynamic=dynamic, backend="aot_eager"
    )
    for length in (5, 6, 9) if dynamic else (5,):
        q, k, v = make(sq=length, sk=length)
        want = thunderkittens.attention(q, k, v, **options)
        assert memory.bits_equal(compiled(q, k, v, **options), want)
