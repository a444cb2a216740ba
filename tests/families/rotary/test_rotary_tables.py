"""Tables with a column for each element, as Hugging Face's models have them; and q alone."""

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

import thunderkittens
from tests.families.rotary import cases
from tests.families.rotary.cases import BF16, FP32, FP64
from thunderkittens.testing import check_memory, memory

WIDTHS = [64, 80, 6, 2]  # of a head


def hugging_face(x, cos, sin):
    """As Llama's model turns x [B, S, H, R], with tables [S, R] of two equal halves."""
    x1, x2 = x.chunk(2, dim=-1)
    return x * cos.unsqueeze(1) + torch.cat([-x2, x1], -1) * sin.unsqueeze(1)


def tables(positions: int, rotated: int, dtype=FP32) -> tuple[torch.Tensor, torch.Tensor]:
    angles = torch.randn(positions, rotated // 2, dtype=FP64)
    return angles.cos().to(dtype), angles.sin().to(dtype)


def full(*halves: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return tuple(torch.cat([half, half], -1) for half in halves)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dtype", [FP32, BF16, FP64], ids=str)
@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_full_tables_are_their_halves(width, dtype, inplace, device):
    q, k = (torch.randn(2, 5, heads, width, dtype=dtype, device=device) for heads in (3, 1))
    halves = tuple(table.to(device) for table in tables(9, width, dtype))
    results = [
        thunderkittens.rotary(q.clone(), k.clone(), *given, offsets=2, inplace=inplace)
        for given in (halves, full(*halves))
    ]
    assert all(map(memory.bits_equal, *results))
    turned = hugging_face(q.double(), *full(*(t[2:7].double() for t in halves)))
    error = (results[1][0].double() - turned).abs()
    assert (error <= 4 * torch.finfo(dtype).eps * (1 + q.abs().max())).all()


def test_the_second_halves_are_never_read():
    q, halves = torch.randn(1, 4, 2, 8), tables(4, 8)
    spoiled = (torch.cat([half, torch.full_like(half, torch.nan)], -1) for half in halves)
    want = thunderkittens.rotary(q, q, *halves)
    assert all(map(torch.equal, thunderkittens.rotary(q, q, *spoiled), want))


def test_a_narrower_table_is_one_of_pairs():
    """4 columns are 4 pairs of a head of 8, and never 2 pairs twice."""
    q, (cos, sin) = torch.randn(1, 4, 2, 8), tables(4, 4)
    read_as_pairs = thunderkittens.rotary(q, q, *full(cos, sin))[0]
    assert not torch.allclose(read_as_pairs, thunderkittens.rotary(q, q, cos, sin)[0])


@pytest.mark.parametrize("columns", [33, 48, 63, 65, 66, 128])
def test_widths_that_are_neither(columns):
    q, table = torch.ones(1, 4, 2, 64), torch.ones(4, columns)
    message = (
        r"^rotary: cos.size\(1\) must be at most 32 \(half of q.size\(-1\)\), or 64 where cos and "
        rf"sin have two equal halves, got {columns}$"
    )
    for inplace in (False, True):
        with pytest.raises(ValueError, match=message):
            thunderkittens.rotary(q, q.clone(), table, table, inplace=inplace)


def test_an_odd_head_has_no_halves():
    q, table = torch.ones(1, 4, 2, 7), torch.ones(4, 7)
    with pytest.raises(ValueError, match=r"must be at most 3 \(half of q.size\(-1\)\), got 7$"):
        thunderkittens.rotary(q, q, table, table)


def test_interleaved_tables_are_never_full():
    """Both kinds are in use: halves that are equal, and neighbours."""
    q, table = torch.ones(1, 4, 2, 64), torch.ones(4, 64)
    message = (
        r"^rotary: cos.size\(1\) must be at most 32 .*interleaved, got 64: give cos\[..., :32\]"
    )
    with pytest.raises(ValueError, match=message) as raised:
        thunderkittens.rotary(q, q, table, table, interleaved=True)
    assert "cos[..., ::2]" in str(raised.value)


def test_explain_says_which_columns():
    q, halves = torch.ones(1, 4, 2, 8), tables(4, 8)
    note = "cos and sin have 8 columns: the first halves, cos[..., :4] and sin[..., :4], are read"
    assert thunderkittens.explain("rotary", q, q, *full(*halves)).notes == (note,)
    assert thunderkittens.explain("rotary", q, q, *halves).notes == ()


def test_full_tables_in_a_graph():
    """Gradients of both orders, packed sequences, and one compilation for all lengths."""
    torch.compiler.reset()
    halves = tables(9, 8, FP64)
    q = torch.randn(7, 2, 8, dtype=FP64, requires_grad=True)
    packed = {"cu_seqlens": torch.tensor([0, 3, 7]), "max_seqlen": 4}
    call = lambda q: thunderkittens.rotary(q, q, *full(*halves), **packed)  # noqa: E731
    assert torch.autograd.gradcheck(call, q) and torch.autograd.gradgradcheck(call, q)
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(thunderkittens.rotary, fullgraph=True, dynamic=True, backend=counter)
    for tokens in (5, 6, 9):
        x = torch.randn(2, tokens, 2, 8, dtype=FP64)
        got, want = compiled(x, x, *full(*halves)), thunderkittens.rotary(x, x, *halves)
        assert all(map(torch.equal, got, want))
    assert counter.frame_count == 1


# ---- q alone -------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", [*cases.options(), *cases.packings(), *cases.layouts()], ids=str)
@pytest.mark.parametrize("inplace", [False, True])
def test_q_alone(case, inplace):
    q, k, cos, sin, offsets, cu_seqlens, *_ = cases.make(case)
    given = cases.keywords(case, offsets, cu_seqlens) | {"inplace": inplace}
    want, _ = thunderkittens.rotary(q.clone(), k.clone(), cos, sin, **given)
    alone = q.clone()
    got, none = thunderkittens.rotary(alone, None, cos, sin, **given)
    assert none is None and memory.bits_equal(got, want)
    assert (got is alone) == inplace


def test_q_alone_has_gradients():
    q = torch.randn(1, 4, 2, 8, dtype=FP64, requires_grad=True)
    table = torch.randn(4, 4, dtype=FP64)
    assert torch.autograd.gradcheck(lambda q: thunderkittens.rotary(q, None, table, table)[0], q)


def test_q_alone_compiles():
    torch.compiler.reset()
    q, halves = torch.randn(1, 4, 2, 8), tables(4, 8)
    turn = torch.compile(thunderkittens.rotary, fullgraph=True, backend="aot_eager")
    for inplace in (False, True):
        got, none = turn(q.clone(), None, *halves, inplace=inplace)
        want, _ = thunderkittens.rotary(q, None, *halves)
        assert none is None and torch.equal(got, want)


def test_a_module_turns_q_alone():
    rotary, q = thunderkittens.nn.Rotary(8, 4), torch.randn(1, 4, 2, 8)
    assert torch.equal(rotary(q, None)[0], rotary(q, q)[0]) and rotary(q, None)[1] is None


def test_memory_of_full_tables():
    inputs = (torch.randn(1, 5, 2, 8), torch.randn(1, 5, 1, 8), *full(*tables(5, 8)))
    check_memory(lambda *t: thunderkittens.rotary(*t), *inputs)


def test_settings_of_a_module():
    for wrong in (True, 8.0, "8", None):
        with pytest.raises(TypeError, match="^Rotary: dim must be an integer, got"):
            thunderkittens.nn.Rotary(wrong, 4)
    with pytest.raises(TypeError, match="^Rotary: base must be a number, got str"):
        thunderkittens.nn.Rotary(8, 4, base="10000")
    with pytest.raises(ValueError, match="^Rotary: max_positions must be >= 0, got -1$"):
        thunderkittens.nn.Rotary(8, -1)


@pytest.mark.gpu
@pytest.mark.parametrize("inplace", [False, True])
def test_q_alone_on_a_gpu(inplace):
    q, halves = torch.randn(2, 5, 3, 64, device="cuda"), (t.cuda() for t in tables(5, 64))
    cos, sin = halves
    want, _ = thunderkittens.rotary(q, q, cos, sin)
    got, none = thunderkittens.rotary(q, None, cos, sin, inplace=inplace)
    assert none is None and memory.bits_equal(got, want)
