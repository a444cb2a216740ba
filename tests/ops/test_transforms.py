"""torch.func's transforms and batched gradients: what a Python loop gives, for every op.

One call does for all of the mapped dimension where rows or sequences have it; where a weight has
it, or a gradient of a weight is asked for, the op is called in turn. Both are here, as the mapped
inputs are all of the op's, each alone, and all but the first.
"""

import pytest
import torch
from torch import Tensor
from torch.func import grad, jacrev, vmap

import thunderkittens
from tests.tools import families
from tests.tools.calls import BF16, FP32, Call

CALLS = [call for module in families.each("calls.py") for call in module.CALLS]
EVERY = pytest.mark.parametrize("call", CALLS, ids=str)
DTYPES = pytest.mark.parametrize("dtype", [FP32, BF16], ids=str)
SIZE = 2  # of the mapped dimension
# Of sums whose order differs: products of several samples' rows at a time.
CLOSE = {FP32: {"rtol": 1e-5, "atol": 1e-5}, BF16: {"rtol": 2**-6, "atol": 2**-6}}


def _inputs(call: Call, dtype: torch.dtype, mapped: tuple[bool, ...]) -> list[Tensor]:
    """The op's inputs; the mapped dimension is the first, the last, and so on in turn."""
    torch.manual_seed(0)
    inputs = []
    for i, (shape, m) in enumerate(zip(call.shapes, mapped, strict=True)):
        x = torch.randn(SIZE, *shape) if m else torch.randn(shape)
        inputs.append((x.movedim(0, -1).contiguous() if m and i % 2 else x).to(dtype))
    return inputs


def _dims(mapped: tuple[bool, ...]) -> tuple[int | None, ...]:
    return tuple((-1 if i % 2 else 0) if m else None for i, m in enumerate(mapped))


def _in_turn(function, inputs: list[Tensor], dims: tuple[int | None, ...]) -> list[Tensor]:
    results = []
    for i in range(SIZE):
        one = [x if d is None else x.select(d, i) for x, d in zip(inputs, dims, strict=True)]
        results.append(_listed(function(*one)))
    return [torch.stack(list(r)) for r in zip(*results, strict=True)]


def _listed(results: Tensor | tuple[Tensor, ...]) -> list[Tensor]:
    return [results] if isinstance(results, Tensor) else list(results)


def _mappings(call: Call) -> list[tuple[bool, ...]]:
    """All inputs, each alone, and all but the first; in place all are written, so all must be."""
    count = len(call.shapes)
    if call.kind == "in place":
        return [(True,) * count]
    alone = [tuple(i == j for i in range(count)) for j in range(count)]
    several = [(False,) + (True,) * (count - 1)] if count > 1 else []
    return list(dict.fromkeys([(True,) * count, *alone, *several]))


def _loss(call: Call):
    """A number that depends on all of the op's results, each element of its own weight."""

    def loss(*inputs: Tensor) -> Tensor:
        total = 0
        for r in _listed(call.call(*inputs)):
            weights = torch.linspace(-1, 1, r.numel(), device=r.device).view(r.shape)
            total = total + (r.float() * weights).sum()
        return total

    return loss


def _agree(got: list[Tensor], want: list[Tensor], dtype: torch.dtype) -> None:
    for g, w in zip(got, want, strict=True):
        assert g.dtype == w.dtype
        torch.testing.assert_close(g, w, **CLOSE[dtype])


@EVERY
@DTYPES
def test_vmap(call, dtype):
    for mapped in _mappings(call)[: None if dtype == FP32 else 1]:
        inputs, dims = _inputs(call, dtype, mapped), _dims(mapped)
        want = _in_turn(call.call, inputs, dims)
        _agree(_listed(vmap(call.call, in_dims=dims)(*inputs)), want, dtype)


@EVERY
@DTYPES
def test_grad(call, dtype):
    inputs = _inputs(call, dtype, (False,) * len(call.shapes))
    leaves = [x.clone().requires_grad_() for x in inputs]
    want = torch.autograd.grad(_loss(call)(*leaves), leaves)
    got = grad(_loss(call), argnums=tuple(range(len(inputs))))(*inputs)
    if "attention" in call.op:  # which may be one op here, where torch's ops are its parts there
        _agree(list(got), list(want), dtype)
    else:
        assert all(map(torch.equal, got, want))


@EVERY
def test_vmap_of_grad(call):
    function = grad(_loss(call), argnums=tuple(range(len(call.shapes))))
    for mapped in _mappings(call):
        inputs, dims = _inputs(call, FP32, mapped), _dims(mapped)
        want = _in_turn(function, inputs, dims)
        _agree(_listed(vmap(function, in_dims=dims)(*inputs)), want, FP32)


@EVERY
def test_grad_of_vmap(call):
    mapped = (True,) * len(call.shapes)
    inputs, dims = _inputs(call, FP32, mapped), _dims(mapped)
    places = tuple(range(len(inputs)))
    want = grad(lambda *t: sum(r.sum() for r in _in_turn(_loss(call), t, dims)), places)(*inputs)
    got = grad(lambda *t: vmap(_loss(call), in_dims=dims)(*t).sum(), places)(*inputs)
    _agree(list(got), list(want), FP32)


@EVERY
def test_batched_gradients(call):
    inputs = _inputs(call, FP32, (False,) * len(call.shapes))
    leaves = [x.requires_grad_() for x in inputs]
    outputs = _listed(call.call(*leaves))
    given = [torch.randn(SIZE, *o.shape) for o in outputs]
    each = [
        torch.autograd.grad(outputs, leaves, [g[i] for g in given], retain_graph=True)
        for i in range(SIZE)
    ]
    want = [torch.stack(list(w)) for w in zip(*each, strict=True)]
    for keep_graph in (True, False):
        got = torch.autograd.grad(
            outputs, leaves, given, is_grads_batched=True, retain_graph=keep_graph
        )
        _agree(list(got), want, FP32)


@EVERY
def test_jacrev(call):
    """Of the sums over the last dimension, which are fewer."""
    inputs = _inputs(call, FP32, (False,) * len(call.shapes))

    def few(x: Tensor) -> Tensor:
        return torch.cat([r.flatten()[:4] for r in _listed(call.call(x, *inputs[1:]))])

    want = torch.autograd.functional.jacobian(few, inputs[0])
    _agree([jacrev(few)(inputs[0])], [want], FP32)


@EVERY
def test_vmap_in_vmap(call):
    torch.manual_seed(0)
    inputs = [torch.randn(2, SIZE, *shape) for shape in call.shapes]
    got = _listed(vmap(vmap(call.call))(*inputs))
    want = [_in_turn(call.call, [x[i] for x in inputs], (0,) * len(inputs)) for i in range(2)]
    _agree(got, [torch.stack(list(w)) for w in zip(*want, strict=True)], FP32)


@EVERY
def test_nothing_is_mapped(call):
    """vmap over a dimension of size 0 gives results of size 0."""
    inputs = [torch.randn(0, *shape) for shape in call.shapes]
    want = _listed(call.call(*(torch.randn(shape) for shape in call.shapes)))
    got = _listed(vmap(call.call)(*inputs))
    assert [g.shape for g in got] == [(0, *w.shape) for w in want]


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:.*computed by torch", "ignore:There is a performance drop")
@EVERY
@DTYPES
def test_on_a_gpu(call, dtype, monkeypatch):
    """By the kernels, whose bits may depend on how many rows there are."""
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "0")
    function = grad(_loss(call), argnums=tuple(range(len(call.shapes))))
    for mapped in _mappings(call):
        inputs = [x.cuda() for x in _inputs(call, dtype, mapped)]
        for each in (call.call, function):
            want = _in_turn(each, inputs, _dims(mapped))
            _agree(_listed(vmap(each, in_dims=_dims(mapped))(*inputs)), want, dtype)


@pytest.mark.parametrize("op", ["add_layer_norm", "add_rms_norm"])
def test_randomness_of_dropout(op):
    x, residual = torch.ones(SIZE, 4, 64), torch.zeros(SIZE, 4, 64)

    def dropped(x: Tensor, residual: Tensor) -> Tensor:
        return getattr(thunderkittens, op)(x, residual, dropout_p=0.5)[1] == 0

    with pytest.raises(RuntimeError, match="randomness"):
        vmap(dropped)(x, residual)
    same = vmap(dropped, randomness="same")(x, residual)
    assert torch.equal(same[0], same[1])
    different = vmap(dropped, randomness="different")(x, residual)
    assert not torch.equal(different[0], different[1])


def test_one_seed_for_all():
    """A seed that is given is no randomness: each sample gets the mask that it gets alone."""
    x, seed = torch.randn(SIZE, 4, 64), torch.tensor([7])

    def call(x: Tensor, seed: Tensor) -> Tensor:
        return thunderkittens.add_rms_norm(x, x, dropout_p=0.5, seed=seed)[1]

    want = torch.stack([call(one, seed) for one in x])
    assert torch.equal(vmap(call, in_dims=(0, None))(x, seed), want)
    seeds = torch.tensor([[7], [8]])
    want = torch.stack([call(one, s) for one, s in zip(x, seeds, strict=True)])
    assert torch.equal(vmap(call)(x, seeds), want)


def test_what_is_written_in_place_must_be_mapped():
    q, k, table = torch.randn(SIZE, 1, 2, 2, 4), torch.randn(1, 2, 2, 4), torch.ones(2, 2)

    def turned(q: Tensor, k: Tensor) -> Tensor:
        return thunderkittens.rotary(q, k, table, table, inplace=True)[0]

    with pytest.raises(RuntimeError, match="rotary: k must be mapped"):
        vmap(turned, in_dims=(0, None))(q.clone(), k)


def test_mixed_dtypes_in_autocast():
    """Autocast comes after vmap, and promotes before the op checks its dtypes."""
    gate, up, q = torch.randn(SIZE, 4, 8), torch.randn(SIZE, 4, 8), torch.randn(SIZE, 1, 4, 2, 8)
    with torch.autocast("cpu", BF16):
        assert vmap(thunderkittens.swiglu)(gate, up.to(BF16)).dtype == FP32
        assert vmap(lambda q: thunderkittens.attention(q, q, q))(q).dtype == BF16


def test_messages_name_the_sizes_of_one_call():
    x, weight = torch.ones(SIZE, 4, 8), torch.ones(5)
    with pytest.raises(ValueError, match=r"weight must have shape \[8\] .*, got \[5\]"):
        vmap(thunderkittens.layer_norm, in_dims=(0, None))(x, weight)


def test_double_backward_is_refused_here_too():
    def norm(x: Tensor) -> Tensor:
        return thunderkittens.layer_norm(x).square().sum()

    with pytest.raises(NotImplementedError, match="layer_norm: double backward"):
        grad(lambda x: grad(norm)(x).square().sum())(torch.randn(2, 8))


def test_gradients_of_gradients_of_rotary():
    """The one op that is differentiable to any order."""
    q, angles = torch.randn(1, 3, 2, 4), torch.randn(3, 2)

    def turned(q: Tensor) -> Tensor:
        return thunderkittens.rotary(q, q, angles.cos(), angles.sin())[0].pow(3).sum()

    assert torch.autograd.gradgradcheck(turned, q.double().requires_grad_())
    got = jacrev(grad(turned))(q)
    torch.testing.assert_close(got, torch.autograd.functional.hessian(turned, q))
