"""rms_norm, add_layer_norm and add_rms_norm on the CPU (ATen), and what holds everywhere."""

import itertools
import math

import pytest
import torch

import thunderkittens
from tests.families.norm import rms_add_cases as cases
from tests.families.norm.rms_add_cases import ADDS, BF16, FP16, FP32, FP64, OPS, Case
from thunderkittens.testing import check_memory, memory

ALL = [
    *cases.widths(dtypes=(FP32, BF16, FP64)),
    *cases.widths((65, 70000), (FP16,), p=0.2),
    *cases.options(129),
    *cases.layouts(33),
    *(
        Case(op, 64, (9,), d, d, d, scale=s)
        for op in OPS
        for d in (FP32, BF16)
        for s in (1e-4, 1e3)
    ),
    *(Case(op, 5, (), FP32) for op in OPS),
]


@pytest.mark.parametrize("case", ALL, ids=str)
def test_against_float64(case):
    inputs = cases.make(case)
    cases.check(case, inputs, cases.run(case, *inputs))


@pytest.mark.parametrize("case", [*cases.layouts(9), *cases.options(9)], ids=str)
def test_memory(case):
    """Inputs and guards stay as they were, and nothing outside the tensors shows in the results."""
    inputs = cases.make(case)
    cases.check(case, inputs, check_memory(lambda *t: cases.run(case, *t), *inputs))


@pytest.mark.parametrize(("op", "p"), [*((op, 0.0) for op in OPS), *((op, 0.4) for op in ADDS)])
@pytest.mark.parametrize("weight", [FP64, None])
def test_gradcheck(op, p, weight):
    case = Case(op, 7, (3, 2), FP64, weight, FP64, offset=0.0 if "layer" in op else 0.5, p=p)
    *tensors, _, _, seed = cases.make(case)
    leaves = [t if t is None else t.requires_grad_() for t in tensors]

    def run(*_):
        return cases.call(case, *leaves, seed)

    assert torch.autograd.gradcheck(run, [t for t in leaves if t is not None])


@pytest.mark.parametrize("op", OPS)
def test_gradients_that_are_wanted(op):
    """Every subset of requires_grad gives the same numbers as all of them together."""
    for p in (0.0, 0.5) if op in ADDS else (0.0,):
        case = Case(op, 40, p=p)
        *tensors, dy, dsum, seed = inputs = cases.make(case)
        full = cases.run(case, *inputs)[2:]
        for needs in itertools.product([False, True], repeat=4):
            leaves = [
                None if t is None else t.clone().requires_grad_(n)
                for t, n in zip(tensors, needs, strict=True)
            ]
            outputs = cases.call(case, *leaves, seed)
            wanted = [t is not None and t.requires_grad for t in leaves]
            assert outputs[0].requires_grad == any(wanted)
            assert all(total.requires_grad == any(wanted[:2]) for total in outputs[1:])
            arriving = [
                (y, d) for y, d in zip(outputs, (dy, dsum), strict=False) if y.requires_grad
            ]
            if arriving:
                torch.autograd.backward(*zip(*arriving, strict=True))
            for leaf, want in zip(leaves, full, strict=True):
                if leaf is not None:
                    assert (leaf.grad is not None) == leaf.requires_grad
                    assert leaf.grad is None or torch.equal(leaf.grad, want)


@pytest.mark.parametrize("op", ADDS)
@pytest.mark.parametrize("p", [0.0, 0.5])
def test_a_gradient_at_one_output_alone(op, p):
    case = Case(op, 40, p=p)
    *tensors, dy, dsum, seed = cases.make(case)
    leaves = [None if t is None else t.requires_grad_() for t in tensors]
    y, total = cases.call(case, *leaves, seed)
    dx, dresidual = torch.autograd.grad(total, leaves[:2], dsum, retain_graph=True)
    assert torch.equal(dresidual, dsum)
    factor = cases.factor_of(case, leaves[0], seed)
    torch.testing.assert_close(dx, (dsum * factor).float())
    both = torch.autograd.grad(
        [y, total], leaves[0], [dy, torch.zeros_like(dsum)], retain_graph=True
    )
    alone = torch.autograd.grad(y, leaves[0], dy)
    assert torch.equal(both[0], alone[0])


@pytest.mark.parametrize("op", OPS)
def test_double_backward_and_forward_mode_raise(op):
    case = Case(op, 8)
    *tensors, _, _, seed = cases.make(case)
    leaves = [None if t is None else t.requires_grad_() for t in tensors]
    (dx,) = torch.autograd.grad(
        cases.call(case, *leaves, seed)[0].sum(), leaves[0], create_graph=True
    )
    with pytest.raises(NotImplementedError, match=f"{op}: double backward is not supported"):
        dx.sum().backward()
    x = torch.randn(3, 8)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, torch.ones_like(x))
        with pytest.raises(NotImplementedError, match=f"{op}: forward-mode differentiation"):
            cases.call(case, dual, *leaves[1:], seed)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("shape", [(0, 8), (3, 0), (2, 0, 8), (0,)], ids=str)
def test_empty(op, shape):
    case = Case(op, shape[-1], shape[:-1], p=0.5 if op in ADDS else 0.0)
    with memory.poisoned_outputs():
        results = cases.run(case, *cases.make(case))
    assert results[0].shape == results[2].shape == shape
    assert torch.equal(results[4], torch.zeros(shape[-1]))


@pytest.mark.parametrize("op", OPS)
def test_nan_stays_in_its_row(op):
    case = Case(op, 16, (4,))
    x, *rest, _, _, seed = cases.make(case)
    clean = cases.call(case, x, *rest, seed)
    spoilt = x.clone()
    spoilt[2, 5] = math.nan
    for got, want in zip(cases.call(case, spoilt, *rest, seed), clean, strict=True):
        assert got[2].isnan().any()
        assert torch.equal(got[[0, 1, 3]], want[[0, 1, 3]])


# ---- Arguments -----------------------------------------------------------------------------------


def test_refused():
    x = torch.randn(2, 8)
    with pytest.raises(
        ValueError, match=r'rms_norm: casting must be "llama" or "gemma", got "fp32"'
    ):
        thunderkittens.rms_norm(x, casting="fp32")
    with pytest.raises(ValueError, match=r'add_rms_norm: casting must be .*, got ""'):
        thunderkittens.add_rms_norm(x, x, casting="")
    for op in ADDS:
        call = getattr(thunderkittens, op)
        with pytest.raises(ValueError, match=f"{op}: dropout_p must be < 1, got 1"):
            call(x, x, dropout_p=1.0)
        with pytest.raises(ValueError, match=f"{op}: dropout_p must be finite and >= 0, got -0.1"):
            call(x, x, dropout_p=-0.1)
        with pytest.raises(TypeError, match=f"{op}: seed must have dtype int64, got Int"):
            call(x, x, dropout_p=0.5, seed=torch.tensor([1], dtype=torch.int32))
        with pytest.raises(ValueError, match=rf"{op}: seed must have one element, got shape \[2\]"):
            call(x, x, dropout_p=0.5, seed=torch.tensor([1, 2]))
        with pytest.raises(
            ValueError, match=rf"{op}: seed must be on cpu \(x's device\), got meta"
        ):
            call(x, x, dropout_p=0.5, seed=torch.empty(1, dtype=torch.int64, device="meta"))
        with pytest.raises(TypeError, match=f"{op}: residual must have dtype bfloat16 or float32"):
            call(x.bfloat16(), x.half())


@pytest.mark.parametrize("casting", ["llama", "gemma"])
def test_castings_round_where_they_say(casting):
    x, weight = torch.randn(50, 64).bfloat16(), torch.randn(64).bfloat16()
    normal = x.float() * (x.float().square().mean(-1, keepdim=True) + 1e-6).rsqrt()
    normal = normal.bfloat16() if casting == "llama" else normal
    want = (normal.float() * (1 + weight.float())).bfloat16()
    got = thunderkittens.rms_norm(x, weight, 1e-6, weight_offset=1.0, casting=casting)
    assert (got == want).float().mean() > 0.999  # the reciprocal root may be another float


# ---- Dropout -------------------------------------------------------------------------------------


def dropped(p, seed=None, shape=(1000, 100), **options) -> torch.Tensor:
    """Which elements of ones are dropped."""
    seed = None if seed is None else torch.tensor([seed])
    _, total = thunderkittens.add_layer_norm(
        torch.ones(shape), torch.zeros(shape), dropout_p=p, seed=seed, **options
    )
    kept = total[total != 0]
    torch.testing.assert_close(kept, torch.full_like(kept, 1 / (1 - p)))
    return total == 0


@pytest.mark.parametrize("p", [0.01, 0.1, 0.5, 0.9])
def test_rate(p):
    """Five standard deviations of the binomial distribution; so too of rows, columns and pairs."""
    drops = dropped(p, 5).double()

    def within(mean: torch.Tensor, trials: int, probability: float, count: int):
        deviation = math.sqrt(probability * (1 - probability) / trials)
        sigmas = 5 + math.sqrt(2 * math.log(count))  # the largest of `count`
        assert ((mean - probability).abs() <= sigmas * deviation).all()

    within(drops.mean(), drops.numel(), p, 1)
    within(drops.mean(0), 1000, p, 100) if p * 1000 > 50 else None
    for distance in (1, 2, 4, 100):  # neighbours, of one counter or two, and of two rows
        flat = drops.flatten()
        within((flat[distance:] * flat[:-distance]).mean(), flat.numel() // 2, p * p, 1)


def test_mask_follows_from_seed_and_element():
    want = torch.from_numpy(cases.mask(7, 100_000, 0.3)).logical_not()
    assert torch.equal(dropped(0.3, 7).flatten(), want)
    assert torch.equal(dropped(0.3, 7, (317, 5)).flatten(), want[: 317 * 5])
    assert not torch.equal(dropped(0.3, 8).flatten(), want)
    assert not torch.equal(dropped(0.3, 7 + 2**32).flatten(), want)
    negative = torch.from_numpy(cases.mask(-3 % 2**64, 400, 0.3)).logical_not()
    assert torch.equal(dropped(0.3, -3, (4, 100)).flatten(), negative)


def test_generator_is_philox():
    """The published answer for seven rounds of zeros (Random123, kat_vectors)."""
    numbers = [0x5F6FB709, 0x0D893F64, 0x4F121F81, 0x4F730A48]
    for which, number in enumerate(numbers):
        assert bool(cases.mask(0, 4, number / 2**32)[which])
        assert not bool(cases.mask(0, 4, (number + 1) / 2**32)[which])


def test_seed_from_the_generator():
    torch.manual_seed(3)
    first, second = dropped(0.5), dropped(0.5)
    assert not torch.equal(first, second)
    torch.manual_seed(3)
    assert torch.equal(dropped(0.5), first)
    state = torch.get_rng_state()
    (
        dropped(0.0),
        dropped(0.5, 3),
        thunderkittens.explain("add_rms_norm", torch.ones(2, 8), torch.ones(2, 8), dropout_p=0.5),
    )
    assert torch.equal(torch.get_rng_state(), state)


def test_no_dropout_outside_of_training():
    x, residual = torch.randn(3, 8), torch.randn(3, 8)
    want = thunderkittens.add_layer_norm(x, residual)
    got = thunderkittens.add_layer_norm(x, residual, dropout_p=0.9, training=False)
    assert all(map(torch.equal, got, want))
    assert torch.equal(want[1], x + residual)


def test_checkpoint_repeats_the_mask():
    x = torch.randn(30, 8, requires_grad=True)

    def block(x):
        return thunderkittens.add_rms_norm(x, x, dropout_p=0.5)[0]

    torch.manual_seed(1)
    want = torch.autograd.grad(block(x).sum(), x)[0]
    torch.manual_seed(1)
    again = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)
    torch.manual_seed(2)
    assert torch.equal(torch.autograd.grad(again.sum(), x)[0], want)


# ---- torch.library.opcheck and torch.compile -----------------------------------------------------

CHECKED = [
    *(Case(op, 8) for op in OPS),
    *(Case(op, 7, (2, 3), BF16, FP32, FP32, layout="permuted") for op in OPS),
    *(Case(op, 16, (4,), FP64, None, FP64) for op in OPS),
    *(Case(op, 9, (2, 3), BF16, BF16, BF16, p=0.5) for op in ADDS),
]


@pytest.mark.parametrize("case", CHECKED, ids=str)
def test_opcheck(case):
    x, residual, weight, bias, _, _, seed = cases.make(case)
    leaves = [t if t is None else t.requires_grad_() for t in (x, residual, weight, bias)]
    options = {} if case.centred else {"weight_offset": 1.0, "casting": "gemma"}
    op = getattr(torch.ops.thunderkittens, case.op).default
    if case.adds:
        given = (leaves[0], leaves[1], *leaves[2 : 4 if case.centred else 3])
        torch.library.opcheck(op, given, {**options, "dropout_p": case.p, "seed": seed})
    else:
        torch.library.opcheck(op, (leaves[0], leaves[2], 1e-6), options)


@pytest.mark.parametrize("case", CHECKED[::3], ids=str)
def test_opcheck_of_the_inner_ops(case):
    x, residual, weight, bias, dy, dsum, seed = cases.make(case)
    ops = torch.ops.thunderkittens
    if not case.adds:
        arguments = (x, weight, 1e-6, 0.5, "llama")
        torch.library.opcheck(ops.rms_norm_forward.default, arguments)
        rstd = ops.rms_norm_forward(*arguments)[1]
        for needs in ([True, weight is not None], [False, False]):
            arguments = (dy, x, weight, rstd, 0.5, needs)
            torch.library.opcheck(ops.rms_norm_backward.default, arguments)
        return
    forward = getattr(ops, f"{case.op}_forward").default
    backward = getattr(ops, f"{case.op}_backward").default
    parameters = (weight, bias) if case.centred else (weight,)
    options = (1e-6,) if case.centred else (1e-6, 0.0, "llama")
    arguments = (x, residual, *parameters, *options, case.p, True, seed)
    torch.library.opcheck(forward, arguments)
    _, total, *statistics = forward(*arguments)
    dropped = seed if case.p > 0 else None
    options = (case.p, dropped) if case.centred else (0.0, case.p, dropped)
    given = [True, True, *(t is not None for t in parameters)]
    for needs in (given, [False] * len(given)):
        arguments = (dy, dsum, total, *parameters, *statistics, *options, needs)
        torch.library.opcheck(backward, arguments)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("op", OPS)
def test_compile(op, dynamic):
    """No graph break, one graph for all shapes when dynamic, and the bits of eager."""

    torch.compiler.reset()  # `function` is one code object for all parameters

    def function(case, *tensors):
        return cases.call(case, *tensors)

    compiled = torch.compile(function, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    for rows in (3, 5, 7):
        case = Case(op, 24, (rows,), p=0.5 if op in ADDS else 0.0)
        *tensors, dy, dsum, seed = inputs = cases.make(case)
        leaves = [None if t is None else t.clone().requires_grad_() for t in tensors]
        outputs = compiled(case, *leaves, seed)
        given = [t for t in leaves if t is not None]
        results = torch.autograd.grad(outputs, given, [dy, dsum][: len(outputs)])
        wants = [t for t in cases.run(case, *inputs) if t is not None]
        for got, want in zip((*outputs, *results), wants, strict=True):
            assert memory.bits_equal(got.detach(), want)


def test_compiled_dropout_is_drawn_at_each_call():
    """A graph holds the draw, not a seed, and its backward has the forward's mask."""
    compiled = torch.compile(
        lambda x, r: thunderkittens.add_layer_norm(x, r, dropout_p=0.5), fullgraph=True
    )
    residual = torch.zeros(20, 40)
    masks = []
    for _ in range(2):
        x = torch.ones(20, 40, requires_grad=True)
        _, total = compiled(x, residual)
        total.sum().backward()
        assert torch.equal(x.grad, total)
        masks.append(total == 0)
    assert not torch.equal(*masks)
