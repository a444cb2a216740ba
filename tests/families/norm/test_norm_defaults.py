"""eps=None is torch's, dtype by dtype; residual=None is a model's first block."""

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

import thunderkittens
from thunderkittens.testing import memory

FP32, FP16, BF16, FP64 = torch.float32, torch.float16, torch.bfloat16, torch.float64
DTYPES = (FP32, FP16, BF16, FP64)
WEIGHTS = [
    *((dtype, weight) for dtype in DTYPES for weight in (None, dtype)),
    *((dtype, FP32) for dtype in (FP16, BF16)),
]
every_pair = pytest.mark.parametrize(("dtype", "weight"), WEIGHTS, ids=str)
every_add = pytest.mark.parametrize(
    "op", [thunderkittens.add_layer_norm, thunderkittens.add_rms_norm], ids=lambda op: op.__name__
)


def scale(y: torch.Tensor, x: torch.Tensor) -> float:
    """By what a row of equal elements was multiplied: 1 / sqrt(x² + eps)."""
    return (y.double() / x.double())[0, 0].item()


@every_pair
@pytest.mark.parametrize("size", [1e-4, 3e-4, 1e-2, 1.0])
@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_eps_is_torchs(dtype, weight, size, autocast, device):
    """At 1e-4, where x² is 1e-8, 2⁻²³ and 1e-6 differ by a factor of 3 in the result."""
    x = torch.full((2, 16), size, dtype=dtype, device=device)
    w = None if weight is None else torch.ones(16, dtype=weight, device=device)
    with torch.autocast(device, BF16, enabled=autocast):
        want = torch.nn.functional.rms_norm(x, (16,), w)
        given = thunderkittens.rms_norm(x, w), thunderkittens.rms_norm(x, w, None)
        summed = thunderkittens.add_rms_norm(x, torch.zeros_like(x), w)[0]
    for y in (*given, summed):
        assert y.dtype == want.dtype == dtype
        # Each rounds its result once, "llama" twice; float32's own sums are off by less than that.
        assert abs(scale(y, x) / scale(want, x) - 1) <= 3 * torch.finfo(dtype).eps


@every_pair
def test_eps_is_that_number(dtype, weight):
    """So that a result is that of the number given, bit for bit."""
    x = 1e-3 * torch.randn(5, 40, dtype=FP64).to(dtype)
    w = None if weight is None else torch.randn(40, dtype=weight)
    eps = torch.finfo(FP64 if dtype == FP64 else FP32).eps
    for op in (thunderkittens.rms_norm, lambda *t, **o: thunderkittens.add_rms_norm(t[0], *t, **o)):
        given, default = op(x, w, eps=eps), op(x, w)
        given, default = ((t,) if torch.is_tensor(t) else t for t in (given, default))
        assert all(map(memory.bits_equal, given, default))
        # The other dtype's would be seen.
        other = op(x, w, eps=0.0 if dtype == FP64 else torch.finfo(FP16).eps)
        other = other if torch.is_tensor(other) else other[0]
        assert dtype == FP64 or not torch.equal(other, default[0])


@every_pair
def test_gradients_are_torchs(dtype, weight):
    """Of rows so small that eps decides."""
    size = 1e-8 if dtype == FP64 else 1e-3
    leaves = [
        [
            (size * torch.linspace(-1, 1, 24, dtype=FP64)).to(dtype).expand(3, 24).clone(),
            None if weight is None else torch.linspace(0.5, 1, 24, dtype=weight),
        ]
        for _ in range(2)
    ]
    for x, w in leaves:
        x.requires_grad_()
        if w is not None:
            w.requires_grad_()
    (x, w), (x2, w2) = leaves
    thunderkittens.rms_norm(x, w).square().sum().backward()
    torch.nn.functional.rms_norm(x2, (24,), w2).square().sum().backward()
    # dy = 2 y and a few factors, each rounded to the dtype.
    bound = 8 * torch.finfo(dtype).eps
    for mine, theirs in ((x.grad, x2.grad), (None, None) if w is None else (w.grad, w2.grad)):
        if mine is not None:
            largest = theirs.abs().max().double()
            assert (mine.double() - theirs.double()).abs().max() <= bound * largest


# ---- Without residual ----------------------------------------------------------------------------


@every_add
@pytest.mark.parametrize("training", [True, False])
def test_without_residual_the_sum_is_x(op, training):
    x, weight = torch.randn(3, 5, 16).transpose(0, 1), torch.randn(16)
    y, total = op(x, None, weight, training=training)
    assert total is x
    want, _ = op(x, torch.zeros_like(x), weight)
    torch.testing.assert_close(y, want)


@every_add
def test_in_evaluation_dropout_is_none(op):
    x = torch.randn(3, 16)
    assert op(x, None, dropout_p=0.5, training=False)[1] is x


@every_add
@pytest.mark.parametrize("seed", [None, 7])
def test_dropout_without_residual(op, seed):
    """The same elements as with a residual of zeros."""
    x, seed = torch.randn(30, 16), None if seed is None else torch.tensor([seed])
    outputs = []
    for residual in (None, torch.zeros_like(x)):
        torch.manual_seed(3)
        outputs.append(op(x, residual, dropout_p=0.3, seed=seed))
    assert all(map(memory.bits_equal, *outputs))
    dropped = (outputs[0][1] == 0).float().mean()
    assert 0.2 < dropped < 0.4  # of 480: 0.3 ± 5 standard deviations of 0.021


@every_add
@pytest.mark.parametrize("dropout_p", [0.0, 0.5])
def test_gradients_without_residual(op, dropout_p):
    seed = torch.tensor([5]) if dropout_p else None
    x, dy, dsum = (torch.randn(4, 16) for _ in range(3))
    gradients = []
    for residual in (None, torch.zeros_like(x)):
        leaf = x.clone().requires_grad_()
        y, total = op(leaf, residual, dropout_p=dropout_p, seed=seed)
        gradients.append(torch.autograd.grad([y, total], leaf, [dy, dsum])[0])
    torch.testing.assert_close(*gradients)


@every_add
@pytest.mark.parametrize(
    ("arguments", "options", "error"),
    [
        ([torch.ones(3, 16), torch.ones(8)], {}, ValueError),
        ([torch.ones(3, 16), torch.ones(16, dtype=torch.float64)], {}, TypeError),
        ([torch.ones(3, 16)], {"eps": -1.0}, ValueError),
        ([torch.ones(3, 16)], {"eps": "1e-5"}, TypeError),
        ([torch.ones(3, 16, dtype=torch.int64)], {}, TypeError),
        ([torch.ones(3, 16).to_sparse()], {}, NotImplementedError),
        ([[1.0, 2.0]], {}, TypeError),
    ],
)
def test_a_refused_call_without_residual_names_the_op_called(op, arguments, options, error):
    x, *weight = arguments
    with pytest.raises(error, match=f"^{op.__name__}: "):
        op(x, None, *weight, **options)


@every_add
def test_compiled_without_residual(op):
    """Two blocks, the first of which has none; x's gradient meets itself from both."""
    torch.compiler.reset()
    weight = torch.randn(16)

    def blocks(x, h):
        y, total = op(x, None, weight)
        return op(torch.sin(y) + h, total, weight)

    inputs = [torch.randn(4, 16, requires_grad=True) for _ in range(2)]
    results = []
    counter = CompileCounterWithBackend("aot_eager")
    for function in (blocks, torch.compile(blocks, fullgraph=True, backend=counter)):
        outputs = function(*inputs)
        total = sum(t.square().sum() for t in outputs)
        results.append([*outputs, *torch.autograd.grad(total, inputs)])
    assert counter.frame_count == 1
    for mine, compiled in zip(*results, strict=True):
        torch.testing.assert_close(mine, compiled)


@every_add
def test_what_is_wrong_is_refused_without_residual_too(op):
    name, x = op.__name__, torch.randn(2, 8)
    for wrong in (-0.1, 1.0):
        for training in (True, False):
            with pytest.raises(ValueError, match=f"^{name}: dropout_p must be"):
                op(x, None, dropout_p=wrong, training=training)
    with pytest.raises(TypeError, match=f"^{name}: x must be a tensor, got None"):
        op(None, None)
    with pytest.raises(TypeError, match=f"^{name}: x must be a tensor, got list"):
        op([1.0], None)
    with pytest.raises(TypeError, match=f"^{name}: training must be True or False"):
        op(x, None, training="yes")
    with pytest.raises(TypeError, match=f"^{name}: seed must be a tensor or None"):
        op(x, None, seed=1)
    with pytest.raises(NotImplementedError, match=r"must be a dense \(strided\) tensor"):
        op(x.to_sparse(), None)
