"""attention hands torch tensors that it can take: strides and addresses that its kernels cannot."""

import math

import pytest
import torch

import thunderkittens
from thunderkittens.testing import memory

FP32, FP16, BF16, FP64 = torch.float32, torch.float16, torch.bfloat16, torch.float64
SDPA = thunderkittens.scaled_dot_product_attention


def lay_out(values, strides, offset=0):
    """The same elements, of an expanded dimension the first, with these strides and offset."""
    once = values[tuple(slice(0, 1) if s == 0 else slice(None) for s in strides)]
    span = offset + 1 + sum((n - 1) * s for n, s in zip(values.shape, strides, strict=True))
    buffer = torch.full((span,), math.nan, dtype=values.dtype, device=values.device)
    buffer.as_strided(once.shape, strides, offset).copy_(once)
    return buffer.as_strided(values.shape, strides, offset)


# ---- On the CPU ----------------------------------------------------------------------------------

# Of q [B, S, H, D]: rows that overlap, and a dimension of size 1 whose stride is not one of rows.
# Torch lays o out in the order of the strides of q, and then writes it as if D were the innermost.
OVERLAPPING = [((32, 0, 1, 1), 2), ((32, 1, 7, 1), 2), ((32, 1, 7, 1), 5), ((32, 0, 1, 1), 64)]


@pytest.mark.parametrize("dtype", [FP32, FP64, BF16], ids=str)
@pytest.mark.parametrize(("strides", "rows"), OVERLAPPING, ids=str)
def test_rows_that_overlap(strides, rows, dtype):
    buffer = torch.randn(200).to(dtype)
    q = buffer.as_strided((1, rows, 1, 16), strides, 1)
    k, v = torch.randn(2, 1, 31, 1, 16).to(dtype)
    want = thunderkittens.attention(q.clone(memory_format=torch.contiguous_format), k, v)
    assert memory.bits_equal(thunderkittens.attention(q, k, v), want)
    heads_first = SDPA(*(t.transpose(1, 2) for t in (q, k, v))).transpose(1, 2)
    assert memory.bits_equal(heads_first, want)


def copies(call) -> int:
    """How many tensors `call` clones."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        call()
    return sum(event.count for event in profile.key_averages() if event.key == "aten::clone")


# Strides of [2, 5, 3, 64], an offset, and how often 16 bytes are not kept to, or a row is expanded.
LAYOUTS = [
    (FP32, (960, 192, 64, 1), 0, False),
    (FP32, (960, 192, 64, 1), 4, False),
    (FP32, (1000, 200, 64, 1), 0, False),
    (FP32, (1020, 204, 68, 1), 0, False),
    (FP32, (960, 192, 64, 1), 1, True),
    (FP32, (960, 192, 64, 1), 2, True),
    (FP32, (975, 195, 65, 1), 0, True),
    (FP32, (961, 192, 64, 1), 0, True),
    (FP32, (1920, 384, 128, 2), 0, True),
    (FP32, (960, 64, 0, 1), 0, True),
    (FP64, (962, 192, 64, 1), 2, False),
    (FP64, (961, 192, 64, 1), 0, True),
    (BF16, (1020, 204, 68, 1), 0, True),
    (BF16, (1000, 200, 64, 1), 8, False),
    (BF16, (960, 192, 64, 1), 4, True),
]


@pytest.mark.parametrize(("dtype", "strides", "offset", "copied"), LAYOUTS, ids=str)
def test_what_cannot_be_read_16_bytes_at_once_is_copied(dtype, strides, offset, copied):
    """The backward copies on every device what torch's kernels for GPUs could not read."""
    q, dout = torch.randn(2, 2, 5, 3, 64).to(dtype)
    o, lse = torch.ops.thunderkittens.attention_forward(q, q, q)
    k = lay_out(q, strides, offset)
    backward = torch.ops.thunderkittens.attention_backward

    def call(k):
        return backward(dout, None, q, k, q, o, lse, False, None, [True, True, True, False])

    assert copies(lambda: call(k)) - copies(lambda: call(q)) == copied


# ---- On a GPU ------------------------------------------------------------------------------------

# Shapes of q and k with v, strides and offsets of q, k, v and o's gradient.
PACKED_HEADS = ((10176, 192, 192, 1), 0)
CASES = {
    "address of k": (
        (1, 53, 1, 192),
        (1, 53, 1, 192),
        (((1, 192, 0, 1), 0), ((10176, 192, 0, 1), 2), PACKED_HEADS, PACKED_HEADS),
    ),
    "address of the gradient": (
        (1, 53, 1, 192),
        (1, 53, 1, 192),
        (PACKED_HEADS, PACKED_HEADS, PACKED_HEADS, ((10176, 192, 192, 1), 1)),
    ),
    "heads of k": (
        (2, 32, 2, 256),
        (2, 48, 2, 256),
        (
            ((320, 1296, 640, 1), 0),
            ((24872, 518, 259, 1), 0),
            ((24576, 512, 256, 1), 1),
            ((16384, 512, 256, 1), 0),
        ),
    ),
    "one row, one head": (
        (2, 1, 1, 64),
        (2, 9, 1, 64),
        (((64, 7, 1, 1), 0), ((576, 64, 5, 1), 0), ((577, 64, 64, 1), 0), ((64, 64, 3, 1), 0)),
    ),
    "groups of heads": (
        (2, 20, 6, 64),
        (2, 30, 2, 64),
        (
            ((7681, 384, 64, 1), 3),
            ((3900, 130, 65, 1), 0),
            ((4000, 1, 2000, 30), 0),
            ((0, 0, 0, 1), 0),
        ),
    ),
    "many heads of expanded keys": (
        (2, 1, 80, 64),
        (2, 30, 80, 64),
        (((5120, 64, 64, 1), 0), ((1920, 64, 0, 1), 0), ((1920, 64, 0, 1), 0), ((0, 0, 0, 0), 0)),
    ),
}


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:attention(_backward)?. computed by torch")
@pytest.mark.parametrize("dtype", [FP32, FP64, BF16], ids=str)
@pytest.mark.parametrize("case", CASES)
def test_torch_on_a_gpu_takes_every_layout(case, dtype, monkeypatch):
    """The gradients are the same ones; torch adds up those of q in any order."""
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "0")
    rows, keys, layouts = CASES[case]
    names = {"q": rows, "k": keys, "v": keys, "do": rows}
    placed = {
        name: lay_out(torch.randn(shape, device="cuda", dtype=dtype), *layout)
        for (name, shape), layout in zip(names.items(), layouts, strict=True)
    }

    def run(tensors):
        q, k, v = (t.detach().requires_grad_() for t in list(tensors.values())[:3])
        with thunderkittens.backend("torch"):
            o = thunderkittens.attention(q, k, v)
            with torch.no_grad():
                alone = thunderkittens.attention(q, k, v)
            return o.detach(), alone, *torch.autograd.grad(o, (q, k, v), tensors["do"])

    got = run(placed)
    want = run({n: t.contiguous().clone().double().cpu() for n, t in placed.items()})
    torch.cuda.synchronize()  # a misaligned address is reported here at the latest
    # Sums of at most 53 · 192 terms, most of size 1.
    off = {FP32: 1e-4, FP64: 1e-12, BF16: 3e-2}[dtype]
    for one, other in zip(got, want, strict=True):
        torch.testing.assert_close(one.double().cpu(), other, rtol=off, atol=off)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:attention(_backward)?. computed by torch")
def test_torch_on_a_gpu_reads_what_is_aligned_where_it_lies(monkeypatch):
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "0")
    q, k, v = torch.randn(2, 50, 3, 4, 64, device="cuda").unbind(2)  # as of one projection
    with torch.no_grad():
        assert copies(lambda: thunderkittens.attention(q, k, v)) == 0
        odd = lay_out(k, k.stride(), 1)
        assert copies(lambda: thunderkittens.attention(q, odd, v)) == 1
