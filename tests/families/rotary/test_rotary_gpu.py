"""rotary's kernel on a GPU: the list of test_rotary.py, and what only a GPU can show."""

import dataclasses

import pytest
import torch

import thunderkittens
from tests.families.rotary import cases
from tests.families.rotary.cases import BF16, FP16, FP32, FP64, Case
from tests.tools.run_to_run import check_same_bits
from thunderkittens import _C, _loader
from thunderkittens.testing import check_memory, memory

pytestmark = pytest.mark.gpu

LARGE = [
    Case(2, 1000, 32, 8, 128),
    Case(2, 1000, 32, 8, 128, interleaved=True, table=FP32),
    Case(1, 777, 16, 16, 80, 32, FP16, layout="fused"),
    Case(1, 777, 16, 2, 96, dtype=FP32, layout="grouped"),
    Case(64, 1, 32, 8, 128, offsets="int64"),
    Case(70000, 1, 2, 1, 64, offsets="int32"),
    Case(1, 70000, 2, 1, 64),
    Case(heads=8, key_heads=2, head_dim=128, lengths=(1000, 1, 0, 517), room=(3, 9)),
    Case(heads=2, key_heads=1, lengths=tuple(range(70)), layout="fused"),
]
ALL = [
    *cases.widths(),
    *cases.options(),
    *cases.heads(),
    *cases.packings(),
    *cases.layouts(),
    *cases.layouts(6),
    *LARGE,
]


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    """A fallback would test torch, not the kernels."""
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "1")


def launches() -> int:
    return _C.launch_counts()["rotary"]


@pytest.mark.parametrize("case", ALL, ids=str)
def test_against_float64(case):
    """Right, within its tensors, the same bits with other neighbours, and by our kernel."""
    inputs = cases.make(case, "cuda")
    before = launches()
    results = check_memory(lambda *t: cases.run_case(case, t), *inputs)
    assert launches() >= before + 4
    cases.check_case(case, inputs, results)


@pytest.mark.parametrize("check", (cases.check_not_finite, cases.check_wrong_lengths))
def test_numbers_at_the_edge(check):
    check("cuda")


@pytest.mark.skipif(not _loader.SIMULATOR.is_file(), reason="the simulator is not built")
@pytest.mark.parametrize("case", LARGE[:4], ids=str)
def test_simulator_gives_the_same_bits(case):
    """The GPU rounds as the simulator does."""
    small = dataclasses.replace(case, batch=1, tokens=5)
    inputs = cases.make(small)
    with thunderkittens.backend("simulator"):
        want = cases.run_case(small, inputs)
    results = cases.run_case(small, [None if t is None else t.cuda() for t in inputs])
    for got, first in zip(results, want, strict=True):
        assert memory.bits_equal(got.cpu(), first)


@pytest.mark.parametrize("case", LARGE[:2], ids=str)
def test_run_to_run(case):
    """The same bits every time, also while another stream keeps the GPU busy."""
    inputs = cases.make(case, "cuda")
    check_same_bits(lambda: cases.run_case(case, inputs))


def test_graph_capture():
    """A graph of one decoding step: offsets on the device move on between replays."""
    q, k, cos, sin, offsets, *_ = cases.make(Case(4, 1, 32, 8, 128, offsets="int64"), "cuda")
    cos, sin = (torch.cat([t] * 4) for t in (cos, sin))

    def step():
        turned = thunderkittens.rotary(q, k, cos, sin, offsets=offsets)
        offsets.add_(1)
        return turned

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    for _ in range(5):
        q.copy_(torch.randn_like(q))
        want = thunderkittens.rotary(q, k, cos, sin, offsets=offsets.clone())
        graph.replay()
        for got, wanted in zip(captured, want, strict=True):
            assert memory.bits_equal(got, wanted)


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
            late = [None if t is None else t.clone() for t in inputs]
            results = [t.clone() for t in cases.run_case(case, late)]
        torch.cuda.current_stream().wait_stream(stream)
        for got, first in zip(results, want, strict=True):
            assert memory.bits_equal(got, first)


def test_no_hidden_synchronisation():
    """Also with cu_seqlens and offsets on the device."""
    case = LARGE[7]
    inputs = cases.make(dataclasses.replace(case, offsets="int64"), "cuda")
    given = {"offsets": inputs[4], "cu_seqlens": inputs[5], "max_seqlen": max(case.lengths)}
    thunderkittens.rotary(*inputs[:4], **given)
    torch.cuda.set_sync_debug_mode("error")
    try:
        torch.cuda._sleep(200_000_000)  # 0.1 s: a call that waited for it would show below
        done = torch.cuda.Event()
        thunderkittens.rotary(*inputs[:4], **given)
        done.record()
        assert not done.query()
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_more_than_2_to_the_31_elements():
    """The last tokens of a tensor past 2³¹ elements are those of a small one."""
    if torch.cuda.mem_get_info()[0] < 40 << 30:
        pytest.skip("needs 40 GiB of GPU memory")
    tokens = 2**19 + 5
    q = torch.ones(1, tokens, 32, 128, dtype=BF16, device="cuda")
    angle = torch.rand(tokens, 64, device="cuda")
    q[:, -7:] = torch.randn(1, 7, 32, 128, device="cuda").bfloat16()
    assert q.numel() > 2**31
    want = thunderkittens.rotary(q[:, -7:], q[:, -7:, :2], angle, angle.cos(), offsets=tokens - 7)
    got = thunderkittens.rotary(q, q[..., :2, :], angle, angle.cos())
    for turned, small in zip(got, want, strict=True):
        assert memory.bits_equal(turned[:, -7:], small)
    thunderkittens.rotary(q, q[..., :0, :], angle, angle.cos(), inplace=True)
    assert memory.bits_equal(q, got[0])


def test_strides_past_2_to_the_31():
    """Of [B, H, S, D] transposed, heads and batches are far apart."""
    if torch.cuda.mem_get_info()[0] < 40 << 30:
        pytest.skip("needs 40 GiB of GPU memory")
    room = torch.empty(2, 2, 2**23, 128, dtype=BF16, device="cuda").transpose(1, 2)
    q, k = room[:, :5], room[:, -5:]
    for t in (q, k):
        t.copy_(torch.randn(t.shape, device="cuda"))
    angle = torch.rand(5, 64, device="cuda")
    want = thunderkittens.rotary(q.contiguous(), k.contiguous(), angle, angle)
    for got, small in zip(thunderkittens.rotary(q, k, angle, angle), want, strict=True):
        assert memory.bits_equal(got, small)


def test_fallbacks_say_why(monkeypatch):
    q, k, cos, sin, *_ = cases.make(Case(dtype=FP64), "cuda")
    with pytest.raises(RuntimeError, match="rotary: computed by torch: float64 is computed"):
        thunderkittens.rotary(q, k, cos, sin)
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "0")
    for case in (Case(dtype=FP64, offsets="int32"), Case(head_dim=1032, lengths=(3, 2))):
        _C.forget_warnings()
        inputs = cases.make(case, "cuda")
        with pytest.warns(UserWarning, match="rotary: computed by torch"):
            cases.check_case(case, inputs, cases.run_case(case, inputs))


def test_mixed_devices_are_refused():
    q, k, cos, sin, *_ = cases.make(Case(dtype=FP32), "cuda")
    before = launches()
    with pytest.raises(ValueError, match=r"rotary: cos must be on cuda:0 \(q's device\), got cpu"):
        thunderkittens.rotary(q, k, cos.cpu(), sin.cpu())
    offsets = torch.tensor([1, 2])
    with pytest.raises(ValueError, match=r"rotary: offsets must be on cuda:0 .*, got cpu"):
        thunderkittens.rotary(q, k, cos, sin, offsets=offsets)
    assert launches() == before
    assert thunderkittens.explain("rotary", q, k, cos, sin).backend == "cuda"


@pytest.mark.parametrize("inplace", [False, True])
def test_compile(inplace):
    """Inductor around the opaque op: no graph break, the bits of eager."""

    def model(qkv, cos, sin):
        qkv = qkv * 1
        q, k = thunderkittens.rotary(qkv[:, :, 0], qkv[:, :, 1], cos, sin, inplace=inplace)
        return q * 1, k * 1, qkv * 1

    compiled = torch.compile(model, fullgraph=True, dynamic=True)
    angle = torch.rand(64, 32, device="cuda")
    for tokens in (7, 40):
        qkv = torch.randn(2, tokens, 3, 4, 64, device="cuda").to(FP16).requires_grad_()
        results = []
        for function in (model, compiled):
            outputs = function(qkv, angle.cos(), angle.sin())
            results.append([*outputs, *torch.autograd.grad(sum(o.sum() for o in outputs), qkv)])
        for got, want in zip(*results, strict=True):
            assert memory.bits_equal(got, want)
