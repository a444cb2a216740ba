"""seqused_k and leftpad_k: which keys of a batch exist. Torch's side, on the CPU."""

import dataclasses

import pytest
import torch

import thunderkittens
from tests.families.attention import cases, padded_lists
from tests.families.attention.cases import FP32, FP64, Case
from thunderkittens.testing import memory

ALL = [*padded_lists.padded(20, 30), *padded_lists.padded(9, 5), *padded_lists.wide(3, 12)]
ENDS = torch.tensor([5, 3])


def make(dtype=FP32, batch=2, key_heads=2, width=8):
    q = torch.randn(batch, 4, 2 * key_heads, width, dtype=dtype)
    k = torch.randn(batch, 6, key_heads, width, dtype=dtype)
    return q, k, torch.randn_like(k)


@pytest.mark.parametrize("case", ALL, ids=str)
def test_against_float64(case):
    tensors = cases.make(case)
    cases.Reference(case, *tensors).check(*cases.forward(case, *tensors))
    cases.check_gradients(case, "cpu", with_lse=True)
    cases.check_gradients(case, "cpu", with_lse=False)


@pytest.mark.parametrize("case", ALL[1:6], ids=str)
def test_strays_change_nothing(case):
    padded_lists.check_strays_change_nothing(dataclasses.replace(case, dtype=FP32), "cpu")


@pytest.mark.parametrize("case", ALL[:9], ids=str)
def test_each_batch_is_as_alone(case):
    padded_lists.check_each_is_as_alone(dataclasses.replace(case, dtype=FP32, sinks=None), "cpu")


@pytest.mark.parametrize("options", [{}, {"causal": True}, {"window": (2, 1), "softcap": 2.0}])
def test_gradcheck(options):
    q, k, v = (t.requires_grad_() for t in make(FP64, width=3))
    first = torch.tensor([2, 0])

    def run(q, k, v):
        return thunderkittens.attention(
            q, k, v, seqused_k=ENDS, leftpad_k=first, return_lse=True, **options
        )

    torch.autograd.gradcheck(lambda *t: run(*t)[0], (q, k, v))
    if "window" not in options:  # whose blind rows have lse −inf
        torch.autograd.gradcheck(lambda *t: run(*t)[1][:, :, 2:], (q, k, v))


def test_all_keys_is_what_it_is_without_bounds():
    q, k, v = make()
    want = thunderkittens.attention(q, k, v, causal=True)
    ends = torch.full((2,), 6, dtype=torch.int32)
    got = thunderkittens.attention(q, k, v, causal=True, seqused_k=ends, leftpad_k=0 * ends)
    torch.testing.assert_close(got, want)


def test_no_batch():
    leaves = [t.requires_grad_() for t in make(batch=0)]
    o = thunderkittens.attention(*leaves, seqused_k=ENDS[:0])
    o.sum().backward()
    assert o.shape == (0, 4, 4, 8)
    assert all(t.grad.shape == t.shape for t in leaves)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"seqused_k": ENDS[:1]}, ValueError, r"attention: seqused_k must have shape \[2\]"),
        ({"leftpad_k": ENDS.float()}, TypeError, "attention: leftpad_k must have dtype int32"),
        ({"seqused_k": ENDS.to("meta")}, ValueError, "attention: seqused_k must be on"),
    ],
)
def test_refused(given, error, message):
    with pytest.raises(error, match=message):
        thunderkittens.attention(*make(), **given)


@pytest.mark.parametrize("name", ["seqused_k", "leftpad_k"])
def test_packed_sequences_have_no_bounds_of_their_own(name):
    q, k, v = (t.flatten(0, 1) for t in make())
    ends = {"cu_seqlens_q": torch.tensor([0, 4, 8]), "cu_seqlens_k": torch.tensor([0, 6, 12])}
    with pytest.raises(ValueError, match=f"attention: {name} must be None with cu_seqlens"):
        thunderkittens.attention(q, k, v, **ends, max_seqlen_q=4, max_seqlen_k=6, **{name: ENDS})


def test_opcheck():
    """Of `attention`, which is this op's o, the same but for symbolic sizes, which take seconds.

    (All heads are one group: more of a symbolic size are test_attention.py's.)
    """
    tensors = tuple(t.requires_grad_() for t in make(key_heads=1))
    given = {"seqused_k": ENDS, "leftpad_k": torch.tensor([1, 0])}
    ops = torch.ops.thunderkittens
    torch.library.opcheck(ops.attention_forward.default, tensors, given)
    few = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(ops.attention.default, tensors, given, test_utils=few)


@pytest.mark.parametrize("dynamic", [False, True])
def test_compile(dynamic):
    """Other bounds need no other graph."""
    torch._dynamo.reset()
    compiled = torch.compile(
        thunderkittens.attention, fullgraph=True, dynamic=dynamic, backend="aot_eager"
    )
    tensors = make()
    with torch.compiler.set_stance("default"):
        for ends in (ENDS, ENDS - 1):
            want = thunderkittens.attention(*tensors, causal=True, seqused_k=ends)
            assert memory.bits_equal(compiled(*tensors, causal=True, seqused_k=ends), want)


@pytest.mark.parametrize("in_dims", [(0, 0, 0, 0), (0, None, None, 0), (0, 0, 0, None)], ids=str)
def test_vmap(in_dims):
    sizes = [3 if dim == 0 else 1 for dim in in_dims]
    q, k, v = (torch.randn(n, *t.shape) for n, t in zip(sizes, make(), strict=False))
    ends = torch.randint(0, 7, (sizes[3], 2))
    given = [t if dim == 0 else t[0] for t, dim in zip((q, k, v, ends), in_dims, strict=True)]

    def run(q, k, v, ends):
        return thunderkittens.attention(q, k, v, causal=True, seqused_k=ends)

    got = torch.vmap(run, in_dims)(*given)
    for i in range(3):
        one = [t[i] if dim == 0 else t for t, dim in zip(given, in_dims, strict=True)]
        torch.testing.assert_close(got[i], run(*one))


def test_random_cases_have_bounds():
    drawn = cases.random(seed=1, count=64, longest=130, widest=128)
    assert sum(case.bounded for case in drawn) > 5
    assert Case(3, 4, batch=2, seqused_k=(9, 2), leftpad_k=(1, 5)).key_ranges() == [
        slice(1, 4),
        slice(2, 2),
    ]
