"""Torch's FlashAttention backend with our kernel in it, on a GPU."""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.varlen import varlen_attn

import thunderkittens
from tests.families.attention import cases
from tests.families.attention.cases import BF16, FP16, Case
from thunderkittens import _C
from thunderkittens.ops import _fallback
from thunderkittens.testing import memory

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore:Warning only once for all operators"),
]
registry = torch.nn.attention
SQUARE = [
    Case(200, 200, causal, group, d, dtype, key_heads=2, batch=2)
    for causal, group, d, dtype in itertools.product((False, True), (1, 4), (64, 128), (BF16, FP16))
]
CASES = [*SQUARE, Case(130, 333, batch=2), Case(333, 130, group=2), Case(1, 500), Case(1025, 1025)]


@pytest.fixture(autouse=True)
def activated():
    thunderkittens.register_flash_attention()
    registry.activate_flash_attention_impl("thunderkittens")
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        yield
    if registry.current_flash_attention_impl() is not None:
        registry.restore_flash_attention_impl()


@pytest.fixture
def strict(monkeypatch):
    """A fallback would test torch, not the kernel."""
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "1")


def launches() -> int:
    return _C.launch_counts()["attention_forward"]


def sdpa(case: Case, q, k, v, **options):
    """F.scaled_dot_product_attention of and to [B, S, H, D]."""
    query, key, value = (t.transpose(1, 2) for t in (q, k, v))
    options |= {"is_causal": case.causal, "scale": case.scale, "enable_gqa": case.group > 1}
    return F.scaled_dot_product_attention(query, key, value, **options).transpose(1, 2)


@pytest.mark.usefixtures("strict")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_against_float64(case):
    """Forward by our kernel, and backward from its o and log-sum-exp."""
    leaves = [t.requires_grad_() for t in cases.make(case, "cuda")]
    before = launches()
    o = sdpa(case, *leaves)
    assert launches() == before + 1
    dout = torch.randn_like(o)
    gradients = torch.autograd.grad(o, leaves, dout)
    assert launches() == before + 1
    reference = cases.Reference(case, *leaves)
    reference.check(o)
    reference.check_gradients(dout, None, *gradients)


@pytest.mark.usefixtures("strict")
def test_same_bits_as_attention():
    case = Case(300, 300, True, 2, 128, key_heads=2, batch=2)
    tensors = cases.make(case, "cuda")
    assert memory.bits_equal(sdpa(case, *tensors), thunderkittens.attention(*tensors, causal=True))


@pytest.mark.usefixtures("strict")
@pytest.mark.parametrize("layout", ["transposed", "packed", "expanded"])
def test_layouts(layout):
    """The results lie in memory as torch promises to compiled code."""
    case = Case(200, 200, True, batch=2, layout=layout)
    leaves = [t.detach().requires_grad_() for t in cases.make(case, "cuda")]
    o = sdpa(case, *leaves)
    assert o.stride() == torch.empty_like(leaves[0]).stride()
    dout = torch.randn_like(o)
    gradients = torch.autograd.grad(o, leaves, dout)
    reference = cases.Reference(case, *leaves)
    reference.check(o.contiguous())
    reference.check_gradients(dout, None, *gradients)


@pytest.mark.usefixtures("strict")
@pytest.mark.parametrize("sizes", [(300, 100), (100, 300)], ids=str)
def test_agrees_with_the_op_that_it_replaces(sizes):
    """Bottom-right causal, [B, Hq, Sq], +inf for the log-sum-exp of a row with no key."""
    case = Case(*sizes, True, 2)
    tensors = cases.make(case, "cuda")
    call = torch.ops.aten._flash_attention_forward.default
    before = launches()
    o, lse, *_ = call(*tensors, None, None, *sizes, 0.0, True, False)
    assert launches() == before + 1
    registry.restore_flash_attention_impl()
    want, want_lse, *_ = call(*tensors, None, None, *sizes, 0.0, True, False)
    assert launches() == before + 1
    reference = cases.Reference(case, *tensors)
    reference.check(o, lse.masked_fill(lse == math.inf, -math.inf))
    reference.check(want.contiguous(), want_lse.masked_fill(want_lse == math.inf, -math.inf))
    assert (lse == math.inf).equal(want_lse == math.inf) and not (lse == -math.inf).any()


@pytest.mark.filterwarnings("ignore:(flash_)?attention(_backward)?. computed by torch")
@pytest.mark.parametrize("causal", [False, True])
def test_packed_sequences(causal):
    """torch.nn.attention.varlen, by our kernel as soon as that takes packed sequences."""
    ends = (0, 100, 101, 400)
    case = Case(400, 400, causal, 1, cu_seqlens_q=ends, cu_seqlens_k=ends, key_heads=2)
    q, k, v, cu_q, _ = cases.make(case, "cuda")
    tensors = [q, k, v, cu_q, cu_q]  # torch wants int32 for both
    taken, before = cases.kernel_takes(case, *tensors), launches()
    leaves = [t.requires_grad_() for t in tensors[:3]]
    window = {"window_size": (-1, 0)} if causal else {}
    o = varlen_attn(*leaves, cu_q, cu_q, 299, 299, **window)
    assert launches() == before + taken
    dout = torch.randn_like(o)
    gradients = torch.autograd.grad(o, leaves, dout)
    reference = cases.Reference(case, *tensors)
    reference.check(o)
    reference.check_gradients(dout, None, *gradients)


@pytest.mark.usefixtures("strict")
@pytest.mark.parametrize("layout", ["contiguous", "transposed"])
def test_torch_compile(layout):
    torch._dynamo.reset()
    case = Case(130, 130, True, layout=layout)
    leaves = [t.detach().requires_grad_() for t in cases.make(case, "cuda")]
    compiled = torch.compile(lambda *t: 2 * sdpa(case, *t), fullgraph=True)
    before = launches()
    o = compiled(*leaves)
    dout = torch.randn_like(o)
    gradients = torch.autograd.grad(o, leaves, dout)
    assert launches() == before + 1
    assert memory.bits_equal(o, 2 * sdpa(case, *leaves))
    cases.Reference(case, *leaves).check_gradients(2 * dout, None, *gradients)


@pytest.mark.parametrize(("options", "reason"), [({"dropout_p": 0.5}, "dropout")], ids=str)
def test_what_our_kernel_does_not_take_is_torchs(options, reason, monkeypatch):
    """With one warning, forward and backward; and the same numbers as without us."""
    case = Case(200, 200)
    leaves = [t.requires_grad_() for t in cases.make(case, "cuda")]
    _fallback._warn_once.cache_clear()
    before = launches()

    def run():
        torch.manual_seed(0)
        o = sdpa(case, *leaves, **options)
        return o, torch.autograd.grad(o.sum(), leaves)[1]  # dk: torch adds dq up in any order

    with pytest.warns(UserWarning, match=f"^flash_attention: computed by torch: {reason}") as seen:
        got = run()
    assert sum("computed by torch" in str(w.message) for w in seen) == 1
    assert launches() == before
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "1")
    with pytest.raises(RuntimeError, match=f"^flash_attention: computed by torch: {reason}"):
        sdpa(case, *leaves, **options)
    registry.restore_flash_attention_impl()
    assert all(map(memory.bits_equal, got, run()))


@pytest.mark.usefixtures("strict")
def test_restored():
    case = Case(64, 64)
    tensors = cases.make(case, "cuda")
    registry.restore_flash_attention_impl()
    before = launches()
    cases.Reference(case, *tensors).check(sdpa(case, *tensors))
    assert launches() == before


@pytest.mark.usefixtures("strict")
def test_scaled_dot_product_attention():
    """The drop-in by our kernel, whatever backend torch would choose."""
    registry.restore_flash_attention_impl()
    for rows, keys, causal in ((200, 200, False), (200, 200, True), (100, 200, True)):
        case = Case(rows, keys, causal, 2)
        tensors = cases.make(case, "cuda")
        query, key, value = (t.transpose(1, 2) for t in tensors)
        before = launches()
        got = thunderkittens.scaled_dot_product_attention(
            query, key, value, is_causal=causal, enable_gqa=True
        )
        assert launches() == before + 1
        if causal:  # top left
            case, tensors = Case(rows, rows, True, 2), [t[:, :rows] for t in tensors]
        cases.Reference(case, *tensors).check(got.transpose(1, 2))
