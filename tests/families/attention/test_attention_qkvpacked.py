"""attention_qkvpacked on the CPU, by torch's ops: q, k and v of one tensor, and its gradient."""

import dataclasses
import re

import pytest
import torch

import thunderkittens
from tests.families.attention import qkvpacked_checks as checks
from tests.families.attention.cases import BF16, FP16, FP32, FP64, Case
from thunderkittens.testing import check_memory, memory

attention, qkvpacked = thunderkittens.attention, thunderkittens.attention_qkvpacked


@pytest.mark.parametrize("case", checks.NUMBERS, ids=str)
def test_against_float64_and_attention(case):
    checks.check_numbers(case, "cpu")
    sinks = None if case.sinks is None else FP32
    checks.check_numbers(dataclasses.replace(case, dtype=FP32, sinks=sinks), "cpu")


@pytest.mark.parametrize("options", [{}, {"causal": True}, {"softcap": 2.0}], ids=str)
@pytest.mark.parametrize("dtype", [FP32, FP64, FP16, BF16], ids=str)
def test_without_lse(dtype, options):
    """Where torch's own fused attention may compute it."""
    leaf = torch.randn(2, 17, 3, 2, 16).to(dtype).requires_grad_()
    o = qkvpacked(leaf, **options)
    want = attention(*leaf.unbind(2), **options)
    assert memory.bits_equal(o.detach(), want.detach()) and o.is_contiguous()
    dout = torch.randn_like(o)
    (got,), (want,) = (torch.autograd.grad(t, leaf, dout) for t in (o, want))
    assert memory.bits_equal(got, want)
    with torch.no_grad():
        assert memory.bits_equal(qkvpacked(leaf, **options), o.detach())


@pytest.mark.parametrize("dtype", [FP32, BF16], ids=str)
def test_strides_change_no_bit(dtype):
    checks.check_layouts(Case(33, 33, True, key_heads=2, batch=2, dtype=dtype, head_dim=16), "cpu")


def test_which_gradients_are_needed():
    checks.check_needs(Case(20, 20, key_heads=2, sinks=FP32), "cpu")


@pytest.mark.parametrize("dtype", [FP32, BF16], ids=str)
def test_tokens_of_no_sequence(dtype):
    checks.check_stray_tokens("cpu", dtype)


def test_a_fused_projection():
    """As models have it: the gradient reaches the projection's weight."""
    x, projection = torch.randn(2, 9, 32), torch.nn.Linear(32, 96)
    parameters = list(projection.parameters())

    def gradients(call):
        o = call(projection(x).unflatten(-1, (3, 4, 8)))
        return torch.autograd.grad(o.square().sum(), parameters)

    got = gradients(lambda t: qkvpacked(t, causal=True))
    want = gradients(lambda t: attention(*t.unbind(2), causal=True))
    assert all(map(memory.bits_equal, got, want))


def test_the_backward_op_writes_one_tensor():
    """In ATen too: what it computes of saved o and lse, into the parts of one contiguous dqkv."""
    qkv, ops = torch.randn(2, 9, 3, 2, 16), torch.ops.thunderkittens
    sinks = torch.randn(2)
    o, lse = ops.attention_qkvpacked_forward(qkv, True, sinks=sinks)
    dout, dlse = torch.randn_like(o), torch.randn_like(lse)

    def call(dout, dlse, qkv, o, lse, sinks):
        given = (dout, dlse, qkv, o, lse, True, None)
        return ops.attention_qkvpacked_backward(*given, [True, True], sinks=sinks)

    dqkv, dsinks = check_memory(call, dout, dlse, qkv, o, lse, sinks)
    parts = (dout, dlse, *qkv.unbind(2), o, lse, True, None)
    *three, want = ops.attention_backward(*parts, [True] * 4, sinks=sinks)
    assert dqkv.is_contiguous() and memory.bits_equal(dqkv, torch.stack(three, 2))
    assert memory.bits_equal(dsinks, want)
    given = (dout, dlse, qkv, o, lse, True, None)
    dqkv, dsinks = ops.attention_qkvpacked_backward(*given, [False, True], sinks=sinks)
    assert dqkv.numel() == 0 and memory.bits_equal(dsinks, want)


EMPTY = [(0, 5, 3, 2, 8), (2, 0, 3, 2, 8), (2, 5, 3, 0, 8), (2, 5, 3, 2, 0)]


@pytest.mark.parametrize("shape", EMPTY, ids=str)
def test_empty(shape):
    qkv = torch.randn(shape, requires_grad=True)
    o, lse = qkvpacked(qkv, causal=True, return_lse=True)
    assert o.shape == (*shape[:2], *shape[3:])
    assert lse.shape == (shape[0], shape[3], shape[1])
    o.sum().backward()
    assert qkv.grad.shape == shape and not qkv.grad.any()
    assert qkvpacked(qkv, causal=True).shape == o.shape


def test_no_packed_tokens():
    qkv = torch.randn(0, 3, 2, 8, requires_grad=True)
    o = qkvpacked(qkv, cu_seqlens=torch.tensor([0, 0]), max_seqlen=0)
    o.sum().backward()
    assert o.shape == (0, 2, 8) and qkv.grad.shape == qkv.shape


@pytest.mark.parametrize("options", [{}, {"causal": True}, {"window": (1, 1)}], ids=str)
def test_gradcheck(options):
    qkv = torch.randn(1, 4, 3, 2, 3, dtype=FP64, requires_grad=True)
    sinks = torch.randn(2, dtype=FP64, requires_grad=True)

    def call(qkv, sinks):
        return qkvpacked(qkv, sinks=sinks, return_lse=True, **options)

    assert torch.autograd.gradcheck(call, (qkv, sinks))
    assert torch.autograd.gradcheck(lambda t: qkvpacked(t, **options), qkv)


def test_only_lse_has_a_gradient():
    qkv = torch.randn(1, 9, 3, 2, 8, requires_grad=True)
    _, lse = qkvpacked(qkv, return_lse=True)
    (got,) = torch.autograd.grad(lse.sum(), qkv)
    _, lse = attention(*qkv.unbind(2), return_lse=True)
    (want,) = torch.autograd.grad(lse.sum(), qkv)
    assert memory.bits_equal(got, want) and not got[:, :, 2].any()


@pytest.mark.parametrize("dtype", [BF16, FP16], ids=str)
def test_autocast(dtype):
    qkv = torch.randn(2, 9, 3, 2, 16, requires_grad=True)
    with torch.autocast("cpu", dtype=dtype):
        o = qkvpacked(qkv, sinks=torch.zeros(2))
    assert o.dtype == dtype
    assert memory.bits_equal(o.detach(), qkvpacked(qkv.detach().to(dtype), sinks=torch.zeros(2)))
    o.sum().backward()
    assert qkv.grad.dtype == FP32


# ---- Refused calls -------------------------------------------------------------------------------

GOOD, STARTS = (2, 5, 3, 4, 8), torch.tensor([0, 5])
REFUSED = [
    ((2, 5, 2, 4, 8), {}, "qkv.size(-3) must be 3, for q, k and v, got 2"),
    ((2, 5, 4, 3, 8), {}, "qkv.size(-3) must be 3, for q, k and v, got 4"),
    ((2, 5, 96), {}, "qkv must have shape [B, S, 3, H, D], got [2, 5, 96]"),
    (GOOD[1:], {}, "qkv must have shape [B, S, 3, H, D], got [5, 3, 4, 8]"),
    (GOOD, {"sinks": torch.ones(3)}, "sinks must have shape [4] (qkv.size(-2)), got [3]"),
    (GOOD, {"seqused_k": torch.tensor([1])}, "seqused_k must have shape [2] (qkv.size(-5)), got"),
    (GOOD, {"cu_seqlens": STARTS, "max_seqlen": 5}, "qkv must have shape [T, 3, H, D], got"),
    (GOOD, {"max_seqlen": 5}, "max_seqlen must be None without cu_seqlens, got a number"),
    (GOOD[1:], {"cu_seqlens": STARTS}, "max_seqlen must be given with cu_seqlens, got None"),
    (
        GOOD[1:],
        {"cu_seqlens": STARTS[:0], "max_seqlen": 5},
        "cu_seqlens must have shape [sequences + 1], got [0]",
    ),
    (
        GOOD[1:],
        {"cu_seqlens": STARTS, "max_seqlen": 5, "leftpad_k": torch.tensor([0])},
        "leftpad_k must be None with cu_seqlens, which say which keys a packed sequence has; got a",
    ),
]


@pytest.mark.parametrize("call", [qkvpacked, torch.compile(qkvpacked, backend="eager")])
@pytest.mark.parametrize(("shape", "options", "message"), REFUSED, ids=lambda x: str(x)[:40])
def test_refused(shape, options, message, call):
    """Eagerly and compiled, where dynamo makes a RuntimeError of it."""
    torch._dynamo.reset()
    with pytest.raises((ValueError, RuntimeError), match=re.escape(message)):
        call(torch.ones(shape), **options)


def test_window_must_be_a_pair():
    with pytest.raises(ValueError, match="^attention_qkvpacked: window must be .*, got 3$"):
        qkvpacked(torch.ones(GOOD), window=3)


@pytest.mark.parametrize("name", ["softmax_scale", "window_size", "dropout_p", "is_causal"])
def test_keywords_of_others(name):
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{name}': (say|there is)"):
        qkvpacked(torch.ones(GOOD), **{name: 0})


# ---- Transformations -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "options"),
    [
        ("attention_qkvpacked", {"causal": True}),
        ("attention_qkvpacked_forward", {"softcap": 1.0, "sinks": True}),
    ],
    ids=str,
)
def test_opcheck(op, options):
    if "sinks" in options:
        options = {**options, "sinks": torch.randn(2, requires_grad=True)}
    qkv = torch.randn(1, 5, 3, 2, 8, requires_grad=True)
    torch.library.opcheck(getattr(torch.ops.thunderkittens, op).default, (qkv,), options)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("dtype", [FP32, BF16], ids=str)
def test_compile(dynamic, dtype):
    case = Case(9, 9, True, key_heads=2, batch=2, head_dim=16, dtype=dtype)
    torch._dynamo.reset()
    compiled = torch.compile(qkvpacked, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    for length in (5, 6, 9) if dynamic else (5,):
        qkv = torch.randn(2, length, 3, 2, 16).to(dtype)
        assert memory.bits_equal(compiled(qkv, causal=True), qkvpacked(qkv, causal=True))
    if dtype == BF16:  # of float32, compiled code has torch's fused attention's parts
        return
    torch._dynamo.reset()
    x = torch.randn(2, case.rows, 96, requires_grad=True)

    def step(x):
        return qkvpacked((2 * x).view(2, -1, 3, 2, 16), causal=True)

    compiled = torch.compile(step, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    dout = torch.randn(2, case.rows, 2, 16)
    (got,), (want,) = (torch.autograd.grad(f(x), x, dout) for f in (compiled, step))
    # Sums of at most 9 keys or rows of 16 numbers about 1, in float32.
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
