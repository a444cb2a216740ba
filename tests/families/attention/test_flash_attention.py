"""Our attention in the place of torch's FlashAttention: what a machine without a GPU can show.

The functions that torch would call on a GPU are called with CPU tensors, for which ATen computes
attention's ops; what a GPU does is in test_flash_attention_impl_gpu.py.
"""

import dataclasses
import math
import subprocess
import sys

import pytest
import torch

import thunderkittens
from tests.families.attention import cases
from tests.families.attention.cases import FP32, FP64, Case
from thunderkittens.ops import _fallback, flash_attention
from thunderkittens.testing import memory

registry = torch.nn.attention
CPU = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
OPS = ("_flash_attention_forward", "_flash_attention_backward")
PLAIN = {"dtype": FP32, "value_dim": None, "softcap": 0.0, "sinks": None}
RANDOM = [
    dataclasses.replace(case, **PLAIN, seqused_k=(), leftpad_k=())
    for case in cases.random(seed=2, count=200, longest=24, widest=40)
]


@pytest.fixture
def taken(monkeypatch):
    """As if a kernel took every call."""
    monkeypatch.setattr(flash_attention, "explain", lambda call: ("attention", "cuda", "", []))


@pytest.fixture
def registered():
    before = dict(registry._registry._FLASH_ATTENTION_IMPLS)
    thunderkittens.register_flash_attention()
    yield
    if registry.current_flash_attention_impl() is not None:
        registry.restore_flash_attention_impl()
    registry._registry._FLASH_ATTENTION_IMPLS.clear()
    registry._registry._FLASH_ATTENTION_IMPLS.update(before)


def kernels() -> list[str]:
    """Where the kernels that CUDA tensors would reach are registered."""
    return [str(torch.library.get_kernel(f"aten::{op}", "CUDA")) for op in OPS]


def arguments(case: Case, tensors) -> tuple[list, dict]:
    """What follows query, key and value in torch's schema, up to is_causal, and the options."""
    q, k, _, *packing = tensors
    longest = [q.shape[1], k.shape[1]]
    if case.packed:
        options = cases.options(case, *packing)
        longest = [options["max_seqlen_q"], options["max_seqlen_k"]]
    window = {"window_size_left": case.window_left, "window_size_right": case.window_right}
    return [*(packing or [None, None]), *longest, 0.0, case.causal], {"scale": case.scale, **window}


def forward(case: Case, tensors):
    given, options = arguments(case, tensors)
    return flash_attention._forward(CPU, *tensors[:3], *given, False, **options)


def backward(case: Case, tensors, dout, o, lse):
    given, options = arguments(case, tensors)
    return flash_attention._backward(CPU, dout, *tensors[:3], o, lse, *given, None, None, **options)


def strides(t) -> list[int]:
    """Those that mean something."""
    return [d for size, d in zip(t.shape, t.stride(), strict=True) if size > 1 and t.numel()]


# ---- Numbers -------------------------------------------------------------------------------------


@pytest.mark.usefixtures("taken")
def test_the_state_of_random_numbers_is_the_same_in_each_run():
    """There is no dropout, so nobody reads it but who compares or saves all outputs."""
    with memory.poisoned_outputs():
        _, _, state, offset, _ = forward(RANDOM[0], cases.make(RANDOM[0]))
    assert (state.tolist(), offset.item()) == ([0, 0], 0)


@pytest.mark.usefixtures("taken")
@pytest.mark.parametrize("case", RANDOM, ids=str)
def test_against_float64(case):
    """Dense and packed, with every option; what torch promises of layouts; +inf without a key."""
    tensors = cases.make(case)
    q, k, v = tensors[:3]
    o, lse, state, offset, mask = forward(case, tensors)
    reference = cases.Reference(case, *tensors)
    assert strides(o) == strides(torch.empty_like(q))
    reference.check(o.contiguous(), lse.masked_fill(lse == math.inf, -math.inf))
    assert not (lse == -math.inf).any()
    assert (state.dtype, state.shape, offset.dtype, offset.shape) == (
        *(torch.uint64, (2,)),
        *(torch.uint64, ()),
    )
    assert (mask.dtype, mask.shape) == (q.dtype, (0,))
    dout, _ = cases.incoming(case, "cpu", with_lse=False)
    gradients = backward(case, tensors, dout, o, lse)
    reference.check_gradients(dout, None, *gradients)
    for t, like in zip(gradients, (q, k, v), strict=True):
        assert strides(t) == strides(torch.empty_like(like))


@pytest.mark.usefixtures("taken")
@pytest.mark.parametrize("causal", [False, True])
def test_against_torchs_math(causal):
    case = Case(9, 9, causal, 2, 8, FP64, 2, 2)
    tensors = cases.make(case)
    o = forward(case, tensors)[0].transpose(1, 2)
    query, key, value = (t.transpose(1, 2) for t in tensors)
    want, _ = torch.ops.aten._scaled_dot_product_attention_math(
        query, key, value, is_causal=causal, enable_gqa=True
    )
    torch.testing.assert_close(o, want)


@pytest.mark.usefixtures("taken")
def test_windows_of_minus_1_have_no_limit():
    case = Case(5, 7, False, 1, 8, FP32)
    tensors = cases.make(case)
    given, _ = arguments(case, tensors)
    window = {"window_size_left": -1, "window_size_right": -1}
    got = flash_attention._forward(CPU, *tensors, *given, False, **window)
    assert memory.bits_equal(got[0], forward(case, tensors)[0])


@pytest.mark.usefixtures("taken")
def test_backward_leaves_its_own_call_to_torch(monkeypatch):
    """On a GPU attention_backward may call torch's FlashAttention, which is overridden."""
    case = Case(5, 5, False, 1, 8, FP32)
    tensors = cases.make(case)
    dout = torch.randn_like(tensors[0])
    o, lse, *_ = forward(case, tensors)
    within = []

    class Op:
        @staticmethod
        def redispatch(*args, **kwargs):
            within.append(backward(case, tensors, dout, o, lse))
            return *tensors, None

    monkeypatch.setattr(flash_attention, "_attention_backward", Op)
    for _ in range(2):
        assert backward(case, tensors, dout, o, lse) is not None
    assert within == [None, None]


# ---- What is torch's -----------------------------------------------------------------------------


def test_what_no_kernel_takes_is_torchs():
    case = Case(5, 5, False, 1, 64)
    tensors = cases.make(case)
    assert forward(case, tensors) is None  # on the CPU
    assert backward(case, tensors, tensors[0], tensors[0], torch.zeros(1, 1, 5)) is None
    assert forward(dataclasses.replace(case, rows=0), cases.make(Case(0, 5))) is None


@pytest.mark.usefixtures("taken")
@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"dropout_p": 0.1}, "dropout"),
        ({"return_debug_mask": True}, "a debug mask"),
        ({"seqused_k": torch.ones(1, dtype=torch.int32)}, "seqused_k"),
        ({"alibi_slopes": torch.ones(1)}, "alibi slopes"),
    ],
    ids=str,
)
def test_unsupported_options_are_torchs(changed, reason, monkeypatch):
    said = []
    monkeypatch.setattr(flash_attention, "computed_by_torch", lambda *words: said.append(words))
    tensors = cases.make(Case(5, 5, head_dim=8, dtype=FP32))
    names = ("cum_seq_q", "cum_seq_k", "max_q", "max_k", "dropout_p", "is_causal")
    options = dict(zip(names, (None, None, 5, 5, 0.0, False), strict=True))
    options |= {"return_debug_mask": False, **changed}
    assert flash_attention._forward(CPU, *tensors, **options) is None
    assert said == [("flash_attention", reason, False)]


def test_a_gpu_is_told(monkeypatch):
    _fallback._warn_once.cache_clear()
    for _ in range(2):
        with pytest.warns(UserWarning, match="^flash_attention: computed by torch: dropout"):
            _fallback.computed_by_torch("flash_attention", "dropout", True)
        _fallback._warn_once.cache_clear()
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "1")
    with pytest.raises(RuntimeError, match="^flash_attention: computed by torch: dropout"):
        _fallback.computed_by_torch("flash_attention", "dropout", True)


# ---- The registry --------------------------------------------------------------------------------


@pytest.mark.usefixtures("registered")
@pytest.mark.filterwarnings("ignore:Warning only once for all operators")
def test_activate_and_restore():
    torchs = kernels()
    assert "thunderkittens" in registry.list_flash_attention_impls()
    assert registry.current_flash_attention_impl() is None
    for _ in range(3):
        registry.activate_flash_attention_impl("thunderkittens")
        assert registry.current_flash_attention_impl() == "thunderkittens"
        assert not set(kernels()) & set(torchs)
        registry.activate_flash_attention_impl("thunderkittens")  # again: restores first
        registry.restore_flash_attention_impl()
        assert registry.current_flash_attention_impl() is None
        assert kernels() == torchs


@pytest.mark.usefixtures("registered")
@pytest.mark.filterwarnings("ignore:Warning only once for all operators")
def test_the_cpu_is_left_alone():
    q = torch.randn(1, 2, 5, 8)
    want = torch.nn.functional.scaled_dot_product_attention(q, q, q)
    registry.activate_flash_attention_impl("thunderkittens")
    assert memory.bits_equal(torch.nn.functional.scaled_dot_product_attention(q, q, q), want)


@pytest.mark.filterwarnings("ignore:Warning only once for all operators")
def test_overrides_call_ours_first_and_torchs_for_none(monkeypatch):
    """By the two ops' own dispatch, for the CPU, where torch has no such kernel."""

    class Original:
        @staticmethod
        def call_boxed(keys, *args, **kwargs):
            return tuple(torch.zeros(n) for n in range(3 if len(args) > 12 else 5))

    class Library(torch.library.Library):
        def __init__(self, namespace, kind, key):
            super().__init__(namespace, kind, "CPU")

    monkeypatch.setattr(torch.library, "get_kernel", lambda op, key: Original)
    monkeypatch.setattr(torch.library, "Library", Library)
    case = Case(5, 5, True, 2, 8, FP32)
    q, k, v = (t.requires_grad_() for t in cases.make(case))
    handle = flash_attention._Activated()
    call = torch.ops.aten._flash_attention_forward.default
    try:
        assert [t.numel() for t in call(q, k, v, None, None, 5, 5, 0.0, True, False)] == [*range(5)]
        monkeypatch.setattr(flash_attention, "explain", lambda call: ("attention", "cuda", "", []))
        o = call(q, k, v, None, None, 5, 5, 0.0, True, False, scale=0.3)[0]
        dout = torch.randn_like(o)
        got = torch.autograd.grad(o, (q, k, v), dout)
    finally:
        handle.remove()
    reference = cases.Reference(dataclasses.replace(case, scale=0.3), q, k, v)
    reference.check(o)
    reference.check_gradients(dout, None, *got)
    with pytest.raises(NotImplementedError):
        call(q, k, v, None, None, 5, 5, 0.0, True, False)


def test_import_registers_nothing():
    program = (
        "import torch, thunderkittens; a = torch.nn.attention; "
        "assert 'thunderkittens' not in a.list_flash_attention_impls(); "
        "thunderkittens.register_flash_attention(); "
        "assert 'thunderkittens' in a.list_flash_attention_impls(); "
        "assert a.current_flash_attention_impl() is None; "
        "assert not torch.cuda.is_initialized()"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def test_without_a_registry(monkeypatch):
    monkeypatch.delattr(registry, "register_flash_attention_impl")
    with pytest.raises(RuntimeError, match="^register_flash_attention: torch must have .*, got 2"):
        thunderkittens.register_flash_attention()
