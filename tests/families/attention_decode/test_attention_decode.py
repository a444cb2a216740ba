"""attention_decode and cache_append on the CPU, by torch: what they compute and refuse."""

import pytest
import torch

import thunderkittens
from tests.families.attention_decode import append_cases, cases
from tests.families.attention_decode.append_cases import AppendCase
from tests.families.attention_decode.cases import FP8, FP32, FP64, Case
from thunderkittens import attention_decode, cache_append

ALL = [
    *cases.shapes()[::2],
    *cases.pages(),
    *cases.options(),
    *cases.narrow_caches(),
    Case(dtype=FP64, head_dim=20),
    Case((40, 3), 20, dtype=FP32, head_dim=256, sinks=FP32),
    Case((40, 3), 2, dtype=FP64, page=5, head_dim=7),
]


@pytest.mark.parametrize("case", ALL, ids=str)
def test_decode_against_float64(case):
    inputs = cases.make(case)
    cases.check_case(case, inputs, cases.run_case(case, inputs))


@pytest.mark.parametrize(
    "case", [*append_cases.all_cases(), AppendCase(dtype=FP64, page=5, tokens=2)], ids=str
)
def test_append_against_float64(case):
    inputs = append_cases.make(case)
    results = append_cases.run_case(case, append_cases.copied(inputs))
    append_cases.check_case(case, inputs, results)


def tensors():
    """q, k_cache, v_cache and seqlens."""
    return torch.randn(2, 1, 4, 64), *torch.randn(2, 2, 30, 2, 64), torch.tensor([3, 30])


def test_is_causal_attention_of_each_sequence():
    q, k, v, _ = tensors()
    q = torch.randn(2, 5, 4, 64)
    o = attention_decode(q, k, v, seqlens=torch.tensor([17, 30]), window=(9, None), softcap=2.0)
    for b, n in enumerate((17, 30)):
        want = thunderkittens.attention(
            *(q[b : b + 1], k[b : b + 1, :n], v[b : b + 1, :n]),
            causal=True,
            window=(9, None),
            softcap=2.0,
        )
        torch.testing.assert_close(o[b : b + 1], want)


def test_append_turns_as_rotary():
    k, v = torch.randn(2, 2, 3, 2, 64)
    caches = torch.zeros(2, 2, 30, 2, 64)
    angle = torch.rand(30, 32)
    seqlens = torch.tensor([3, 30])
    cache_append(k, v, *caches, seqlens, cos=angle.cos(), sin=angle.sin())
    want, _ = thunderkittens.rotary(k, None, angle.cos(), angle.sin(), offsets=seqlens - 3)
    torch.testing.assert_close(caches[0][0, :3], want[0])
    torch.testing.assert_close(caches[0][1, 27:], want[1])


@pytest.mark.parametrize("paged", [False, True])
@torch._inductor.config.patch(force_disable_caches=True)
def test_compiles_as_a_whole_graph(paged):
    """A step: append, then attend with the same seqlens, also into `out`.

    Without Inductor's cache, which takes a graph of views for one of tensors of their own.
    """
    table = torch.tensor([[1, 0], [2, 3]]) if paged else None

    def step(q, k, v, k_cache, v_cache, seqlens, out):
        cache_append(k, v, k_cache, v_cache, seqlens, table)
        given = {"seqlens": seqlens, "page_table": table}
        o = attention_decode(q, k_cache, v_cache, **given, sinks=q[0, 0, :, 0])
        return o, attention_decode(q, k_cache, v_cache, **given, out=out)

    shape = (4, 16, 2, 64) if paged else (2, 32, 2, 64)
    q, k, v = torch.randn(2, 1, 4, 64), torch.randn(2, 1, 2, 64), torch.randn(2, 1, 2, 64)
    compiled = torch.compile(step, fullgraph=True)
    for lengths in ([3, 30], [32, 1]):
        # Tensors of their own: test_cache_append_compiled has views.
        caches = [torch.randn(shape), torch.randn(shape)]
        again, seqlens = [t.clone() for t in caches], torch.tensor(lengths)
        outs = [torch.zeros_like(q), torch.zeros_like(q)]
        want = step(q, k, v, *caches, seqlens, outs[0])
        got = compiled(q, k, v, *again, seqlens, outs[1])
        torch.testing.assert_close(got, want)
        torch.testing.assert_close(again, caches)
        torch.testing.assert_close(outs[0], outs[1])


def test_refuses_gradients():
    q, k, v, seqlens = tensors()
    with pytest.raises(NotImplementedError, match="attention_decode: k_cache must not require"):
        attention_decode(q, k.requires_grad_(), v, seqlens=seqlens)
    new = torch.randn(2, 1, 2, 64, requires_grad=True)
    with pytest.raises(NotImplementedError, match="cache_append: v must not require a gradient"):
        cache_append(new.detach(), new, k.detach(), v, seqlens)
    with torch.no_grad():
        attention_decode(q, k, v, seqlens=seqlens)


def test_out_and_caches_must_not_share_memory():
    q, k, v, seqlens = tensors()
    with pytest.raises(RuntimeError, match="out must not share memory with q"):
        attention_decode(q, k, v, seqlens=seqlens, out=q)
    with pytest.raises(RuntimeError, match="out must not overlap with itself"):
        attention_decode(q, k, v, seqlens=seqlens, out=torch.zeros(2, 1, 1, 64).expand(q.shape))
    with pytest.raises(RuntimeError, match="k_cache and v_cache must not share memory"):
        cache_append(k[:, :1].clone(), v[:, :1].clone(), k, k, seqlens)
    with pytest.raises(RuntimeError, match="k_cache must not share memory with k"):
        cache_append(k[:, :1], v[:, :1].clone(), k, v, seqlens)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"v_cache": torch.zeros(2, 30, 4, 64)}, r"v_cache must have shape \[2, 30, 2, 64\]"),
        ({"seqlens": torch.zeros(3, dtype=torch.int32)}, r"seqlens must have shape \[2\]"),
        ({"k_cache": torch.zeros(3, 30, 2, 64)}, r"k_cache must have shape \[2, S, Hk, 64\]"),
        ({"page_table": torch.zeros(3, 2, dtype=torch.int32)}, r"page_table must have shape \[2, "),
        ({"window": 3}, r"attention_decode: window must be \(left, right\) or None, got 3"),
        ({"out": torch.zeros(2, 1, 4, 32)}, r"out must have shape \[2, 1, 4, 64\]"),
    ],
)
def test_refused_calls(change, message):
    names = ("q", "k_cache", "v_cache", "seqlens")
    with pytest.raises(ValueError, match=message):
        attention_decode(**(dict(zip(names, tensors(), strict=True)) | change))


@pytest.mark.parametrize(
    ("cos", "sin", "error", "message"),
    [
        (torch.ones(9, 32), None, ValueError, "cos and sin must be given together, got sin None"),
        (torch.ones(9, 40), torch.ones(9, 40), ValueError, r"cos.size\(1\) must be at most 32"),
        (torch.ones(9, 32), torch.ones(8, 32), ValueError, "sin must have the shape of cos"),
        (torch.ones(9, 32), torch.ones(9, 32).half(), TypeError, "sin must have dtype"),
        (torch.ones(0, 32), torch.ones(0, 32), ValueError, r"cos.size\(0\) must be at least 1"),
        (torch.ones(9), torch.ones(9), ValueError, r"cos must have shape \[T, R/2\]"),
    ],
)
def test_refused_tables(cos, sin, error, message):
    _, k, v, seqlens = tensors()
    with pytest.raises(error, match=message):
        cache_append(k[:, :1].clone(), v[:, :1].clone(), k, v, seqlens, cos=cos, sin=sin)


def narrow_tensors():
    """Those of `tensors`, with caches of fp8 and a scale of each key head."""
    q, k, v, seqlens = tensors()
    return q, k.to(FP8), v.to(FP8), seqlens, torch.tensor([0.5, 2.0])


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"k_scale": torch.ones(3)}, ValueError, r"k_scale must have shape \[2\]"),
        ({"v_scale": torch.ones(2).half()}, TypeError, "v_scale must have dtype float32, got fl"),
        ({"v_cache": torch.zeros(2, 30, 2, 64)}, TypeError, "v_cache must have the dtype of k_cac"),
        ({"k_cache": torch.zeros(2, 30, 2, 64).half()}, TypeError, "float32 or float8_e4m3fn"),
    ],
)
def test_refused_calls_with_fp8(change, error, message):
    q, k, v, seqlens, _ = narrow_tensors()
    given = {"k_cache": k, "v_cache": v, "seqlens": seqlens} | change
    with pytest.raises(error, match="attention_decode: .*" + message):
        attention_decode(q, **given)
    new = torch.zeros(2, 1, 2, 64)
    with pytest.raises(error, match="cache_append: .*" + message):
        cache_append(new, new.clone(), **given)


def test_scales_are_of_fp8_alone():
    q, k, v, seqlens = tensors()
    message = "k_scale must be None where the caches are not of float8_e4m3fn"
    with pytest.raises(ValueError, match="attention_decode: " + message):
        attention_decode(q, k, v, seqlens=seqlens, k_scale=torch.ones(2))
    new = torch.zeros(2, 1, 2, 64)
    with pytest.raises(ValueError, match="cache_append: " + message):
        cache_append(new, new.clone(), k, v, seqlens, k_scale=torch.ones(2))


def test_autocast_leaves_q_beside_fp8_as_it_is():
    q, k, v, seqlens, scale = narrow_tensors()
    want = attention_decode(q, k, v, seqlens=seqlens, k_scale=scale)
    with torch.autocast("cpu", torch.bfloat16):
        o = attention_decode(q, k, v, seqlens=seqlens, k_scale=scale)
    assert torch.equal(o, want)
    new = torch.randn(2, 1, 2, 64)
    again = [t.clone() for t in (k, v)]
    cache_append(new, new, k, v, seqlens, k_scale=scale)
    with torch.autocast("cpu", torch.bfloat16):
        cache_append(new, new, *again, seqlens, k_scale=scale)
    assert torch.equal(k.view(torch.uint8), again[0].view(torch.uint8))


def test_fp8_compiles_as_a_whole_graph():
    def step(q, new, k, v, seqlens, scale):
        cache_append(new, new, k, v, seqlens, k_scale=scale, v_scale=scale)
        return attention_decode(q, k, v, seqlens=seqlens, k_scale=scale, v_scale=scale)

    q, k, v, seqlens, scale = narrow_tensors()
    again, new = [t.clone() for t in (k, v)], torch.randn(2, 1, 2, 64)
    want = step(q, new, k, v, seqlens, scale)
    got = torch.compile(step, fullgraph=True)(q, new, *again, seqlens, scale)
    torch.testing.assert_close(got, want)
    assert torch.equal(k.view(torch.uint8), again[0].view(torch.uint8))


def test_caches_count_their_versions():
    _, k, v, seqlens = tensors()
    before = k._version
    cache_append(torch.zeros(2, 1, 2, 64), torch.zeros(2, 1, 2, 64), k, v, seqlens)
    assert k._version > before


@pytest.mark.parametrize("paged", [False, True])
def test_vmap_is_a_loop(paged):
    q, k, v, seqlens = torch.randn(3, 2, 1, 4, 64), *tensors()[1:]
    table = torch.tensor([[0], [1]]) if paged else None

    def of_one(x):
        return attention_decode(x, k, v, seqlens=seqlens, page_table=table)

    torch.testing.assert_close(torch.func.vmap(of_one)(q), torch.stack([of_one(x) for x in q]))


def test_opcheck():
    q, k, v, seqlens = tensors()
    table = torch.tensor([[1], [0]])
    op = torch.ops.thunderkittens.attention_decode.default
    torch.library.opcheck(op, (q, k, v, seqlens))
    torch.library.opcheck(op, (q, k, v, seqlens, table, 0.5, 3, 2.0, q[0, 0, :, 0].clone()))
    new = torch.randn(2, 1, 2, 64)
    cos = torch.ones(9, 32)
    append = torch.ops.thunderkittens.cache_append.default
    torch.library.opcheck(append, (new, new.clone(), k, v, seqlens, table, cos, cos))
