"""attention_backward by ATen, with every option: against autograd, float64 and gradcheck.

The op takes the o and lse of any backend; here they are those of the ATen forward.
"""

import dataclasses
import itertools
import math

import pytest
import torch

from tests.families.attention import cases, layouts
from tests.families.attention.cases import FP32, FP64, Case
from thunderkittens.testing import assert_close, check_memory, memory

ALL = [True] * 4
RANDOM = list(enumerate(cases.random(seed=1, count=200, longest=24, widest=40)))
# One call with each option, and one with all.
OPTIONS = [
    Case(3, 4, False, 1, 3, FP64),
    Case(4, 3, True, 2, 3, FP64),  # rows that see no key
    Case(3, 4, False, 1, 2, FP64, scale=-0.7, value_dim=3),
    Case(4, 5, False, 1, 2, FP64, window_left=1, window_right=0),
    Case(3, 3, False, 1, 2, FP64, softcap=0.6),
    Case(4, 3, True, 2, 2, FP64, sinks=FP64),
    Case(6, 7, False, 1, 2, FP64, cu_seqlens_q=(0, 3, 3, 5), cu_seqlens_k=(1, 3, 5, 6)),
    Case(
        *(5, 4, True, 2, 2, FP64, 2),
        value_dim=1,
        window_left=2,
        softcap=0.6,
        sinks=FP64,
        cu_seqlens_q=(0, 2, 5),
        cu_seqlens_k=(0, 3, 3),
    ),
]


class Unreadable(torch.Tensor):
    """A tensor that reaches the op as one whose numbers the CPU cannot read."""

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        with torch._C._DisableTorchDispatch():
            return func(*args, **(kwargs or {}))


def as_double(case: Case) -> Case:
    return dataclasses.replace(case, dtype=FP64, sinks=case.sinks and FP64)


def keywords(case: Case, extra) -> dict:
    """The op's own names of a case's options."""
    given = cases.options(case, *extra)
    given |= dict(zip(("window_left", "window_right"), given.pop("window", ()), strict=False))
    return {name: value for name, value in given.items() if name not in ("causal", "scale")}


def backward(case: Case, tensors, dout, dlse, needs=ALL, o_and_lse=None) -> list:
    """dq, dk, dv, dsinks; None where not needed."""
    q, k, v, *extra = tensors
    o, lse = cases.forward(case, *tensors) if o_and_lse is None else o_and_lse
    got = torch.ops.thunderkittens.attention_backward(
        dout, dlse, q, k, v, o, lse, case.causal, case.scale, needs, **keywords(case, extra)
    )
    sinks = extra[0] if case.sinks else None
    for t, need, like in zip(got, needs, (q, k, v, sinks), strict=True):
        shape = like.shape if need and like is not None else (0,)
        assert (t.shape, t.is_contiguous()) == (shape, True)
    wanted = [*needs[:3], needs[3] and sinks is not None]
    return [t if want else None for t, want in zip(got, wanted, strict=True)]


def by_autograd(case: Case, tensors, dout, dlse) -> list:
    """The same by differentiating the forward's own ATen ops."""
    return [*cases.gradients(case, *tensors[:3], dout, dlse, tensors[3:]), None][:4]


# ---- Numbers -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("index", "case"), RANDOM, ids=str)
def test_against_autograd(index, case):
    """Each pattern of `needs`, with and without a gradient of lse."""
    case = as_double(case)
    tensors = cases.make(case)
    dout, dlse = cases.incoming(case, "cpu", with_lse=index % 2 == 1)
    dlse = dlse if dlse is None else dlse.double()
    needs = [bool(index >> bit & 1) for bit in range(1, 5)]
    got = backward(case, tensors, dout, dlse, needs)
    for t, want, need in zip(got, by_autograd(case, tensors, dout, dlse), needs, strict=True):
        assert (t is not None) == (need and want is not None)
        if t is not None:  # scores reach 10⁴: a weight is off by 10⁴ · 2⁻⁵², times a sum's length
            torch.testing.assert_close(t, want, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("index", "case"), RANDOM, ids=str)
def test_against_float64(index, case):
    if index % 3 == 0:
        case = dataclasses.replace(case, dtype=FP32, sinks=case.sinks and FP32)
    tensors = cases.make(case)
    dout, dlse = cases.incoming(case, "cpu", with_lse=index % 2 == 1)
    got = backward(case, tensors, dout, dlse)
    cases.Reference(case, *tensors).check_gradients(dout, dlse, *got)


@pytest.mark.parametrize("with_lse", [False, True], ids=["", "lse"])
@pytest.mark.parametrize("case", OPTIONS, ids=str)
def test_gradcheck(case, with_lse):
    class Attention(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *tensors):
            o, lse = cases.forward(case, *tensors)
            ctx.save_for_backward(*tensors, o, lse)
            return (o, lse.nan_to_num(neginf=0.0)) if with_lse else o  # gradcheck subtracts

        @staticmethod
        def backward(ctx, dout, dlse=None):
            *tensors, o, lse = ctx.saved_tensors
            got = backward(case, tensors, dout, dlse, ALL, (o, lse))
            extra = got[3:] if case.sinks else []
            return *got[:3], *extra, *(None for _ in "qk" * case.packed)

    tensors = [t.requires_grad_(t.is_floating_point()) for t in cases.make(case)]
    assert torch.autograd.gradcheck(Attention.apply, tensors)


@pytest.mark.parametrize("case", [case for _, case in RANDOM if case.packed], ids=str)
def test_packed_without_reading_cu_seqlens(case):
    """The form that a GPU takes, and CUDA graphs can record."""
    case = as_double(case)
    *tensors, cu_q, cu_k = cases.make(case)
    dout, dlse = cases.incoming(case, "cpu", with_lse=True)
    given = (dout, dlse.double(), ALL, cases.forward(case, *tensors, cu_q, cu_k))
    want = backward(case, [*tensors, cu_q, cu_k], *given)
    hidden = [t.as_subclass(Unreadable) for t in (cu_q, cu_k)]
    got = backward(case, [*tensors, *hidden], *given)
    for a, b in zip(got, want, strict=True):  # as in test_against_autograd
        assert (a is None and b is None) or torch.allclose(a, b, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("ends", [(0, 9, 4), (-3, 2, 99), (0, 4, 1, 5), (3, 1, 9, 2, 6)], ids=str)
def test_inconsistent_cu_seqlens_are_clamped(ends):
    """Both forms read nothing out of bounds and agree."""
    case = Case(7, 7, True, 2, 8, FP32, sinks=FP32, cu_seqlens_q=ends, cu_seqlens_k=ends[::-1])
    *tensors, cu_q, cu_k = cases.make(case)
    dout, dlse = cases.incoming(case, "cpu", with_lse=True)
    want = check_memory(lambda *t: backward(case, t, dout, dlse), *tensors, cu_q, cu_k)
    given = (dout, dlse, ALL, cases.forward(case, *tensors, cu_q, cu_k))
    hidden = [t.as_subclass(Unreadable) for t in (cu_q, cu_k)]
    torch.testing.assert_close(backward(case, [*tensors, *hidden], *given), want)


@pytest.mark.parametrize("hidden", [False, True], ids=["loop", "mask"])
def test_tokens_of_no_sequence(hidden):
    """Whatever they and their gradients hold, they get none, and it spoils no other gradient."""
    places = {"cu_seqlens_q": (2, 4, 7), "cu_seqlens_k": (1, 5, 6)}
    case = Case(9, 8, True, 2, 8, FP32, sinks=FP32, **places)
    *tensors, sinks, cu_q, cu_k = cases.make(case)
    dout, _ = cases.incoming(case, "cpu", with_lse=False)
    o_and_lse = cases.forward(case, *tensors, sinks, cu_q, cu_k)
    if hidden:
        cu_q, cu_k = (t.as_subclass(Unreadable) for t in (cu_q, cu_k))
    want = backward(case, [*tensors, sinks, cu_q, cu_k], dout, None, ALL, o_and_lse)
    strays = [(0, 1, 7, 8), (0, 6, 7), (0, 6, 7)]
    for t, outside in zip([*tensors, dout], [*strays, strays[0]], strict=True):
        t[list(outside)] = math.nan
    got = backward(case, [*tensors, sinks, cu_q, cu_k], dout, None, ALL, o_and_lse)
    assert all(map(memory.bits_equal, got, want))
    for t, outside in zip(got, strays, strict=False):
        assert not t[list(outside)].any()


def test_rows_without_a_key():
    """Their lse is −inf, and what comes in through it is dropped, be it NaN; a sink's counts."""
    case = Case(6, 2, True, 2, 8, FP32)
    tensors = cases.make(case)
    dout, dlse = cases.incoming(case, "cpu", with_lse=True)
    spoilt = dlse.clone()
    spoilt[..., :4] = math.nan
    want, got = (backward(case, tensors, dout, d) for d in (dlse, spoilt))
    assert all(map(memory.bits_equal, got, want))
    assert not got[0][:, :4].any()
    with_sinks = dataclasses.replace(case, sinks=FP32)
    dlse[..., 4:] = 0
    *_, dsinks = backward(with_sinks, [*tensors, torch.randn(2)], torch.zeros_like(dout), dlse)
    assert_close(dsinks, dlse.double().sum((0, 2)), 8 * torch.finfo(FP32).eps)


@pytest.mark.parametrize("zero", ["rows", "keys", "key_heads", "batch", "head_dim", "value_dim"])
def test_empty(zero):
    case = dataclasses.replace(Case(3, 5, True, 2, 8, FP32, 2, 2, sinks=FP32), **{zero: 0})
    tensors = cases.make(case)
    dout, dlse = cases.incoming(case, "cpu", with_lse=True)
    for t, want in zip(
        backward(case, tensors, dout, dlse), by_autograd(case, tensors, dout, dlse), strict=True
    ):
        torch.testing.assert_close(t, want)


def test_heads_by_turns():
    """What is too large for one product of all heads gives what each head gives by itself.

    It takes o and lse as they come: numbers of their size, for the forward takes as long.
    """
    case = Case(4100, 4100, True, 1, 8, FP32, key_heads=4, window_left=300)
    tensors = cases.make(case)
    dout, dlse = cases.incoming(case, "cpu", with_lse=True)
    o, lse = torch.randn_like(dout), torch.full_like(dlse, math.log(300))
    got = backward(case, tensors, dout, dlse, ALL, (o, lse))
    last, one = dataclasses.replace(case, key_heads=1), slice(3, 4)
    alone = [t[:, :, one] for t in (*tensors, dout, o)]
    want = backward(last, alone[:3], alone[3], dlse[:, one], ALL, (alone[4], lse[:, one]))
    for t, head in zip(got[:3], want[:3], strict=True):
        torch.testing.assert_close(t[:, :, one], head)


@pytest.mark.parametrize("case", OPTIONS, ids=str)
def test_memory(case):
    """Within its tensors, which stay as they are, and the same bits with other neighbours."""
    tensors = cases.make(case)
    dout, dlse = cases.incoming(case, "cpu", with_lse=True)
    check_memory(
        lambda dout, dlse, *t: backward(case, t, dout, dlse), dout, dlse.double(), *tensors
    )


@pytest.mark.parametrize("layout", [layout for layout in layouts.LAYOUTS if layout != "packed"])
def test_strides(layout):
    """Other strides, the same bits; also of dout, o and lse."""
    case = Case(4, 6, True, 2, 8, FP32, 2, 2, sinks=FP32)
    tensors = cases.make(case)
    if layout == "expanded":
        tensors[1:3] = [t[:1].expand_as(t).contiguous() for t in tensors[1:3]]
    dout, _ = cases.incoming(case, "cpu", with_lse=False)
    o, lse = cases.forward(case, *tensors)
    want = backward(case, tensors, dout, None, ALL, (o, lse))
    moved = [*layouts.lay_out(tensors[:3], layout), tensors[3]]
    _, dout, o = layouts.lay_out([o, dout, o], "stepped" if layout == "expanded" else layout)
    lse = lse.repeat_interleave(2, -1)[..., ::2]
    assert all(map(memory.bits_equal, backward(case, moved, dout, None, ALL, (o, lse)), want))


# ---- The op --------------------------------------------------------------------------------------


def arguments(case: Case, tensors, dlse=True) -> tuple[tuple, dict]:
    """A call of the op."""
    o, lse = cases.forward(case, *tensors)
    q, k, v, *extra = tensors
    given = (torch.randn_like(o), torch.randn_like(lse) if dlse else None, q, k, v, o, lse)
    return (*given, case.causal, case.scale, ALL), keywords(case, extra)


@pytest.mark.parametrize(
    ("case", "dlse"), [(case, i % 2 == 1) for i, case in enumerate(OPTIONS)], ids=str
)
def test_opcheck(case, dlse):
    call = arguments(case, cases.make(case), dlse)
    torch.library.opcheck(torch.ops.thunderkittens.attention_backward.default, *call)


@pytest.mark.parametrize(
    ("case", "dynamic"), [*((case, False) for case in OPTIONS), (OPTIONS[-1], True)], ids=str
)
def test_compile(case, dynamic):
    """With dynamic sizes, of all options that meet: test_opcheck has them of each."""
    torch._dynamo.reset()
    op = torch.ops.thunderkittens.attention_backward.default
    compiled = torch.compile(op, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    given, options = arguments(case, cases.make(case))
    assert all(map(memory.bits_equal, compiled(*given, **options), op(*given, **options)))


@pytest.mark.parametrize("wanted", ["dout", "dlse", "q", "k", "v", "sinks"])
def test_double_backward_is_refused(wanted):
    given, options = arguments(OPTIONS[-1], cases.make(OPTIONS[-1]))
    names = ("dout", "dlse", "q", "k", "v")
    (options | dict(zip(names, given[:5], strict=True)))[wanted].requires_grad_()
    gradients = torch.ops.thunderkittens.attention_backward(*given, **options)
    with pytest.raises(NotImplementedError, match="^attention: double backward is not supported"):
        sum(t.sum() for t in gradients).backward()


def test_packed_options_go_together():
    given, options = arguments(OPTIONS[-1], cases.make(OPTIONS[-1]))
    places = [name for name in options if "seqlen" in name]
    assert len(places) == 4
    op = torch.ops.thunderkittens.attention_backward
    for name in places:
        message = f"attention_backward: {name} must be given with cu_seqlens_q, got None"
        if name == "cu_seqlens_q":
            message = "attention_backward: cu_seqlens_k must be None without cu_seqlens_q, got a t"
        with pytest.raises(ValueError, match=f"^{message}"):
            op(*given, **{n: v for n, v in options.items() if n != name})
    with pytest.raises(ValueError, match="^attention_backward: dout must have shape"):
        op(*given, **{n: v for n, v in options.items() if n not in places})
    given, options = arguments(OPTIONS[0], cases.make(OPTIONS[0]))
    with pytest.raises(ValueError, match="^attention_backward: max_seqlen_q must be None without"):
        op(*given, **options, max_seqlen_q=3)
    with pytest.raises(ValueError, match="^attention_backward: cu_seqlens_q must have shape"):
        empty = torch.zeros(0, dtype=torch.int32)
        packed = dataclasses.replace(OPTIONS[-2], cu_seqlens_q=(0,), cu_seqlens_k=(0,))
        given, options = arguments(packed, cases.make(packed))
        op(*given, **options | {"cu_seqlens_q": empty, "cu_seqlens_k": empty})


def test_every_feature_is_drawn():
    """Of the random cases, some have any two of these."""
    drawn = [case for _, case in RANDOM]
    features = {
        "causal": lambda c: c.causal,
        "group": lambda c: c.group > 1,
        "value_dim": lambda c: c.values != c.head_dim,
        "left": lambda c: c.window_left is not None,
        "right": lambda c: c.window_right is not None,
        "softcap": lambda c: c.softcap > 0,
        "sinks": lambda c: c.sinks is not None,
        "packed": lambda c: c.packed,
        "blind rows": lambda c: c.rows > 0 and not c.seen().any(1).all(),
        "empty sequence": lambda c: c.packed and any(r.stop == r.start for r, _ in c.sequences()),
    }
    for (a, has_a), (b, has_b) in itertools.combinations(features.items(), 2):
        assert any(has_a(c) and has_b(c) for c in drawn), (a, b)
