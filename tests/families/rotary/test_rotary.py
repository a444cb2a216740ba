"""rotary on the CPU (ATen backend), and what holds on every backend alike."""

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

import thunderkittens
from tests.families.rotary import cases
from tests.families.rotary.cases import BF16, FP16, FP32, FP64, Case
from thunderkittens.testing import check_memory, memory

ALL = [
    *cases.widths(dtypes=(FP32, FP16, BF16, FP64)),
    *cases.options(),
    Case(dtype=FP64, table=FP32),
    *cases.heads(),
    *cases.packings(),
    *cases.layouts(),
    Case(head_dim=1500, rotated=1200),
]


def call(case: Case, **options):
    """A function of q and k, and those as leaves."""
    q, k, cos, sin, offsets, cu_seqlens, *_ = cases.make(case)
    given = cases.keywords(case, offsets, cu_seqlens) | options
    leaves = [t.detach().clone().requires_grad_() for t in (q, k)]
    return lambda q, k: thunderkittens.rotary(q, k, cos, sin, **given), leaves


@pytest.mark.parametrize("case", ALL, ids=str)
def test_against_float64(case):
    inputs = cases.make(case)
    cases.check_case(case, inputs, cases.run_case(case, inputs))


@pytest.mark.parametrize("case", [*cases.layouts(6), *cases.packings()], ids=str)
def test_memory(case):
    """Inputs and guards stay as they were, and nothing outside the tensors shows in the results."""
    inputs = cases.make(case)
    results = check_memory(lambda *t: cases.run_case(case, t), *inputs)
    cases.check_case(case, inputs, results)


@pytest.mark.parametrize("check", (cases.check_not_finite, cases.check_wrong_lengths))
def test_numbers_at_the_edge(check):
    check("cpu")


@pytest.mark.parametrize("interleaved", [False, True])
def test_turning_back_gives_what_was_there(interleaved):
    q, k, cos, sin, *_ = cases.make(Case(dtype=FP64, rotated=32, interleaved=interleaved))
    there = thunderkittens.rotary(q, k, cos, sin, interleaved=interleaved)
    back = thunderkittens.rotary(*there, cos, -sin, interleaved=interleaved)
    torch.testing.assert_close(back, (q, k))


def test_scores_depend_on_the_distance_alone():
    """What rotary is for: q at position i times k at position j is a function of i − j."""
    angle = torch.arange(20, dtype=FP64).unsqueeze(1) * 10.0 ** -torch.arange(4, dtype=FP64)
    q, k = torch.randn(2, 8, dtype=FP64)
    turned = thunderkittens.rotary(
        q.expand(1, 20, 1, 8), k.expand(1, 20, 1, 8), angle.cos(), angle.sin()
    )
    scores = turned[0][0, :, 0] @ turned[1][0, :, 0].T
    for distance in range(-19, 20):
        diagonal = scores.diagonal(distance)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal))


# ---- Autograd -----------------------------------------------------------------------------------


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("lengths", [(), (2, 1)], ids=["batch", "packed"])
def test_gradcheck(interleaved, lengths):
    case = Case(2, 2, 2, 1, 8, 6, FP64, interleaved=interleaved, lengths=lengths, offsets="int32")
    function, leaves = call(case)
    assert torch.autograd.gradcheck(function, leaves)
    assert torch.autograd.gradgradcheck(function, leaves)


@pytest.mark.parametrize("needs", [(True, False), (False, True), (False, False)], ids=str)
@pytest.mark.parametrize("used", [0, 1])
def test_gradients_that_are_wanted(needs, used):
    """Also where one of the results is not used."""
    function, leaves = call(Case(dtype=FP32))
    full = torch.autograd.grad(function(*leaves)[used].sin().sum(), leaves[used])[0]
    parts = [t.detach().requires_grad_(n) for t, n in zip(leaves, needs, strict=True)]
    turned = function(*parts)
    assert [t.requires_grad for t in turned] == [any(needs)] * 2
    if not any(needs):
        return
    turned[used].sin().sum().backward()
    assert needs[used] == (parts[used].grad is not None)
    assert not needs[used] or torch.equal(parts[used].grad, full)
    assert parts[1 - used].grad is None


def test_tables_that_require_gradients_are_refused():
    q, k, cos, sin, *_ = cases.make(Case(dtype=FP32))
    message = "rotary: cos and sin must not require a gradient, got sin that does"
    sin.requires_grad_()
    with pytest.raises(NotImplementedError, match=message):
        thunderkittens.rotary(q, k, cos, sin)
    with torch.no_grad():
        thunderkittens.rotary(q, k, cos, sin)


def test_forward_mode_raises():
    q, k, cos, sin, *_ = cases.make(Case(dtype=FP32))
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(k, torch.ones_like(k))
        with pytest.raises(NotImplementedError, match="rotary: forward-mode differentiation"):
            thunderkittens.rotary(q, dual, cos, sin)


# ---- In place -----------------------------------------------------------------------------------


def projection(dtype=FP64) -> torch.Tensor:
    return torch.randn(2, 3, 3, 2, 8, dtype=dtype, requires_grad=True)


def turned_in_place(qkv: torch.Tensor, cos, sin) -> tuple[torch.Tensor, ...]:
    """Two slices of a projection are turned in place; then all of it is used."""
    qkv = qkv * 1
    q, k = thunderkittens.rotary(qkv[:, :, 0], qkv[:, :, 1], cos, sin, inplace=True)
    return qkv.sin(), q.cos(), k


def test_in_place_gradcheck():
    """Of slices that share a projection, as torch's own functions allow it."""
    angle = torch.rand(4, 3, dtype=FP64)
    qkv = projection()
    assert torch.autograd.gradcheck(lambda x: turned_in_place(x, angle.cos(), angle.sin()), qkv)


def test_in_place_returns_its_arguments_and_counts_versions():
    q, k, cos, sin, *_ = cases.make(Case(dtype=FP32))
    for scope in (torch.no_grad(), torch.enable_grad(), torch.inference_mode()):
        versions = q._version, k._version
        with scope:
            turned = thunderkittens.rotary(q, k, cos, sin, inplace=True)
        assert turned[0] is q
        assert turned[1] is k
        assert (q._version, k._version) == (versions[0] + 1, versions[1] + 1)
    x = q.clone().requires_grad_()
    y = x * 1
    z = y.square()  # saves y
    thunderkittens.rotary(y, k, cos, sin, inplace=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()


def test_in_place_on_leaves_is_refused_before_anything_is_written():
    q, k, cos, sin, *_ = cases.make(Case(dtype=FP32))
    before = q.clone(), k.clone()
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        thunderkittens.rotary(q, k.requires_grad_(), cos, sin, inplace=True)
    assert torch.equal(q, before[0])
    assert torch.equal(k, before[1])
    with torch.no_grad():
        thunderkittens.rotary(q, k, cos, sin, inplace=True)


# ---- What is refused ----------------------------------------------------------------------------


def test_tables_that_are_too_short():
    q, k, cos, sin, *_ = cases.make(Case(tokens=5, dtype=FP32))  # 8 rows
    offsets = torch.tensor([9, -9])
    thunderkittens.rotary(q, k, cos, sin, offsets=3)
    message = r"cos.size\(0\) must be at least 9 \(q.size\(1\) \+ offset\), got 8"
    with pytest.raises(ValueError, match=message):
        thunderkittens.rotary(q, k, cos, sin, offsets=4)
    most = torch.iinfo(torch.int64).max  # their sum wraps
    for far, sum_of in (
        (most, rf"5 \+ {most}"),
        (most - 5, str(most)),
        (most - 4, rf"5 \+ {most - 4}"),
    ):
        with pytest.raises(
            ValueError, match=rf"at least {sum_of} \(q.size\(1\) \+ offset\), got 8"
        ):
            thunderkittens.rotary(q, k, cos, sin, offsets=far)
    with pytest.raises(ValueError, match=r"at least 5 \(q.size\(1\) \+ offset\), got 4"):
        thunderkittens.rotary(q, k, cos[:4], sin[:4], offsets=offsets)
    with pytest.raises(ValueError, match="offset must be an integer >= 0, got -1"):
        thunderkittens.rotary(q, k, cos, sin, offsets=-1)
    packed = [t.flatten(0, 1) for t in (q, k)]
    ends = torch.tensor([0, 10])
    message = r"at least 10 \(max_seqlen \+ offset\), got 8"
    with pytest.raises(ValueError, match=message):
        thunderkittens.rotary(*packed, cos, sin, cu_seqlens=ends, max_seqlen=10)
    with pytest.raises(ValueError, match=rf"at least {most} \+ 1 \(max_seqlen \+ offset\), got 8"):
        thunderkittens.rotary(*packed, cos, sin, offsets=1, cu_seqlens=ends, max_seqlen=most)
    with pytest.raises(ValueError, match=r"at least 1 \(max_seqlen \+ offset\), got 0"):
        thunderkittens.rotary(*packed, cos[:0], sin[:0], cu_seqlens=ends, max_seqlen=0)


def test_arguments_that_do_not_go_together():
    q, k, cos, sin, *_ = cases.make(Case(dtype=FP32))
    packed = [t.flatten(0, 1) for t in (q, k)]
    ends = torch.tensor([0, 3, 6])
    with pytest.raises(ValueError, match=r"cos.size\(1\) must be at most 31 \(half of q.size\(-1"):
        thunderkittens.rotary(q[..., :62], k[..., :62], cos, sin)
    with pytest.raises(TypeError, match="sin must have the dtype of cos, BFloat16, got Float"):
        thunderkittens.rotary(q.bfloat16(), k.bfloat16(), cos.bfloat16(), sin)
    with pytest.raises(ValueError, match="max_seqlen must be given with cu_seqlens, got None"):
        thunderkittens.rotary(*packed, cos, sin, cu_seqlens=ends)
    with pytest.raises(ValueError, match="max_seqlen must be None without cu_seqlens, got a num"):
        thunderkittens.rotary(q, k, cos, sin, max_seqlen=3)
    with pytest.raises(ValueError, match=r"q must have shape \[N, Hq, D\], got \[2, 3, 4, 64\]"):
        thunderkittens.rotary(q, k, cos, sin, cu_seqlens=ends, max_seqlen=3)
    given = {"cu_seqlens": ends, "max_seqlen": 3}
    with pytest.raises(ValueError, match=r"offsets must have shape \[2\] \(cu_seqlens.size\(0\) -"):
        thunderkittens.rotary(*packed, cos, sin, offsets=ends, **given)
    with pytest.raises(ValueError, match=r"cu_seqlens must have shape \[sequences \+ 1\], got"):
        thunderkittens.rotary(*packed, cos, sin, cu_seqlens=ends[:0], max_seqlen=3)


@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize(
    "sizes", [(0, 3, 4, 64), (2, 0, 4, 64), (2, 3, 0, 64), (2, 3, 4, 0)], ids=str
)
def test_empty(sizes, inplace):
    q = torch.randn(sizes, requires_grad=not inplace)
    angle = torch.rand(3, sizes[3] // 2)
    q_out, k_out = thunderkittens.rotary(q, q.detach(), angle, angle, inplace=inplace)
    assert q_out.shape == k_out.shape == sizes
    if not inplace:
        (q_out.sum() + k_out.sum()).backward()
        assert q.grad.shape == sizes


@pytest.mark.parametrize("dtype", [BF16, FP16])
def test_autocast_casts_nothing(dtype):
    q, k, cos, sin, *_ = cases.make(Case(dtype=FP32))
    with torch.autocast("cpu", dtype=dtype):
        assert thunderkittens.rotary(q, k, cos, sin)[0].dtype == FP32
        assert thunderkittens.rotary(q.to(dtype), k.to(dtype), cos, sin)[1].dtype == dtype


# ---- torch.library.opcheck and torch.compile -----------------------------------------------------

CHECKED = [
    Case(head_dim=8),
    Case(head_dim=7, rotated=4, interleaved=True, dtype=FP32, layout="transposed"),
    Case(head_dim=8, dtype=FP64, offsets="int64", layout="stepped"),
    Case(head_dim=8, table=FP32, lengths=(2, 1), offsets="int32", layout="fused"),
    Case(1, 1, 1, 0, 2, dtype=FP16, offsets="integer"),
]


def positional(case: Case, inputs) -> tuple[tuple, dict]:
    """The arguments as the ops have them."""
    q, k, cos, sin, offsets, cu_seqlens, *_ = inputs
    given = cases.keywords(case, offsets, cu_seqlens)
    offset, offsets = (2, None) if case.offsets == "integer" else (0, offsets)
    given.pop("offsets", None)
    return (q, k, cos, sin, offset, offsets, given.pop("interleaved")), given


@pytest.mark.parametrize("case", CHECKED, ids=str)
def test_opcheck(case):
    arguments, given = positional(case, cases.make(case))
    ops = torch.ops.thunderkittens
    torch.library.opcheck(ops.rotary_.default, arguments, given)
    leaves = [t.requires_grad_() for t in arguments[:2]]
    torch.library.opcheck(ops.rotary.default, (*leaves, *arguments[2:]), given)


def test_inductor_writes_each_view_at_its_place():
    """Inductor takes 0 for the place of a view that an op writes, if sizes are dynamic."""

    def model(qkv, cos, sin):
        qkv = qkv * 1
        q, k = thunderkittens.rotary(qkv[:, :, 0], qkv[:, :, 1], cos, sin, inplace=True)
        return q * 1, k * 1, qkv * 1

    torch._dynamo.reset()
    qkv, angle = torch.randn(2, 7, 3, 4, 16), torch.rand(8, 8)
    with torch.no_grad():
        wants = model(qkv, angle.cos(), angle.sin())
        gots = torch.compile(model, fullgraph=True, dynamic=True)(qkv, angle.cos(), angle.sin())
    for got, want in zip(gots, wants, strict=True):
        assert memory.bits_equal(got, want)


@pytest.mark.parametrize("offsets", [None, 2, torch.tensor([4, 5])], ids=["none", "int", "tensor"])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("inplace", [False, True])
def test_compile(dynamic, inplace, offsets):
    """No graph break, one graph for all shapes when dynamic, and the bits of eager."""

    def model(qkv, cos, sin):
        qkv = qkv * 1
        q, k = thunderkittens.rotary(
            qkv[:, :, 0], qkv[:, :, 1], cos, sin, offsets=offsets, inplace=inplace
        )
        return q * k, qkv

    torch._dynamo.reset()
    graphs = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(model, fullgraph=True, dynamic=dynamic, backend=graphs)
    angle = torch.rand(32, 4)
    for tokens in (5, 7, 9):  # 3 would be the size that a projection has
        qkv = torch.randn(2, tokens, 3, 2, 8, requires_grad=True)
        results = []
        for function in (model, compiled):
            outputs = function(qkv, angle.cos(), angle.sin())
            results.append([*outputs, *torch.autograd.grad(sum(o.sum() for o in outputs), qkv)])
        for got, want in zip(*results, strict=True):
            assert memory.bits_equal(got, want)
    assert not dynamic or graphs.frame_count == 1
    with torch.no_grad():
        for got, want in zip(*(f(qkv, angle, angle) for f in (compiled, model)), strict=True):
            assert memory.bits_equal(got, want)


def test_a_decode_loop_compiles_for_no_step_by_itself():
    """The offset of each step is a symbol, not a constant of the graph."""
    torch._dynamo.reset()
    count = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(thunderkittens.rotary, fullgraph=True, backend=count)
    q, k, cos, sin, *_ = cases.make(Case(tokens=9, dtype=FP32))
    for step in range(8):
        now = q[:, step : step + 1], k[:, step : step + 1], cos, sin
        got = compiled(*now, offsets=step)
        assert torch.equal(got[0], thunderkittens.rotary(*now, offsets=step)[0])
    assert count.frame_count <= 3  # 0 and 1 are constants to dynamo


def test_compile_with_inductor():
    function, (q, k) = call(Case(dtype=FP32, layout="transposed"))
    compiled = torch.compile(function, fullgraph=True)
    with torch.no_grad():
        for got, want in zip(compiled(q, k), function(q, k), strict=True):
            assert torch.equal(got, want)


def test_export():
    class Model(torch.nn.Module):
        def forward(self, q, k, cos, sin):
            return thunderkittens.rotary(q, k, cos, sin)

    q, k, cos, sin, *_ = cases.make(Case(tokens=5, dtype=FP32))
    tokens = torch.export.Dim("tokens", min=2, max=8)
    shapes = ({1: tokens}, {1: tokens}, None, None)
    exported = torch.export.export(Model(), (q, k, cos, sin), dynamic_shapes=shapes)
    q, k = q[:, :3], k[:, :3]
    assert torch.equal(exported.module()(q, k, cos, sin)[1], Model()(q, k, cos, sin)[1])
