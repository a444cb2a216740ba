"""What a recorded call leaves in autograd's graph, of every op, and when it goes without the
dispatcher."""

import itertools

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode

import thunderkittens

ops = torch.ops.thunderkittens
TARGETS = torch.tensor([2, -100, 7])


def turned(q, k):
    return thunderkittens.rotary(q, k, torch.ones(5, 2), torch.zeros(5, 2))


# name -> (function, shapes of the inputs, whether a double backward is refused)
CALLS = {
    "layer_norm": (thunderkittens.layer_norm, [(3, 8), (8,), (8,)], True),
    "rms_norm": (thunderkittens.rms_norm, [(3, 8), (8,)], True),
    "add_layer_norm": (thunderkittens.add_layer_norm, [(3, 8), (3, 8), (8,), (8,)], True),
    "add_rms_norm": (thunderkittens.add_rms_norm, [(3, 8), (3, 8), (8,)], True),
    "gelu": (thunderkittens.gelu, [(3, 8)], True),
    "geglu": (thunderkittens.geglu, [(3, 8), (3, 8)], True),
    "swiglu": (thunderkittens.swiglu, [(3, 8), (3, 8)], True),
    "rotary": (turned, [(1, 5, 2, 4), (1, 5, 1, 4)], False),
    "cross_entropy": (lambda x: thunderkittens.cross_entropy(x, TARGETS), [(3, 8)], True),
    "linear_cross_entropy": (
        lambda x, w, b: thunderkittens.linear_cross_entropy(x, w, TARGETS, bias=b),
        [(3, 4), (8, 4), (8,)],
        True,
    ),
    "linear_cross_entropy of rows": (
        lambda x, w, b: thunderkittens.linear_cross_entropy(
            x, w, TARGETS, bias=b, reduction="none"
        ),
        [(3, 4), (8, 4), (8,)],
        True,
    ),
}
every_call = pytest.mark.parametrize("name", CALLS)


def inputs_of(name: str) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = CALLS[name][1]
    return [torch.randn(s, generator=generator).requires_grad_() for s in shapes]


def outputs_of(name: str, inputs) -> list[torch.Tensor]:
    outputs = CALLS[name][0](*inputs)
    return list(outputs) if isinstance(outputs, tuple) else [outputs]


def gradients(outputs, inputs, **options) -> list[torch.Tensor]:
    """Of all outputs, each with a gradient of its own."""
    arriving = [torch.full_like(t, 1.0 + i) for i, t in enumerate(outputs)]
    return list(torch.autograd.grad(outputs, inputs, arriving, **options))


def equal(got, want) -> bool:
    return all(torch.equal(a, b) for a, b in zip(got, want, strict=True))


@every_call
def test_a_kept_graph_gives_the_same_again_and_a_used_one_an_error(name):
    inputs = inputs_of(name)
    outputs = outputs_of(name, inputs)
    first = [t.clone() for t in gradients(outputs, inputs, retain_graph=True)]
    assert equal(gradients(outputs, inputs, retain_graph=True), first)
    assert equal(gradients(outputs, inputs), first)
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        gradients(outputs, inputs)


@every_call
def test_each_gradient_alone_is_what_it_is_among_all(name):
    inputs = inputs_of(name)
    want = gradients(outputs_of(name, inputs), inputs)
    for count in range(1, len(inputs)):
        for some in itertools.combinations(range(len(inputs)), count):
            asked = gradients(outputs_of(name, inputs), [inputs[i] for i in some])
            assert equal(asked, [want[i] for i in some]), some
            given = [t if i in some else t.detach() for i, t in enumerate(inputs)]
            outputs = [t for t in outputs_of(name, given) if t.requires_grad]
            if len(outputs) == len(outputs_of(name, inputs)):
                assert equal(gradients(outputs, [given[i] for i in some]), asked), some


@every_call
def test_each_output_alone_adds_up_to_all(name):
    inputs = inputs_of(name)
    outputs = outputs_of(name, inputs)
    want = gradients(outputs, inputs, retain_graph=True)
    parts = [
        torch.autograd.grad(
            output, inputs, torch.full_like(output, 1.0 + i), retain_graph=True, allow_unused=True
        )
        for i, output in enumerate(outputs)
    ]
    for i, total in enumerate(want):
        some = [part[i] for part in parts if part[i] is not None]
        torch.testing.assert_close(sum(some), total)


@every_call
def test_hooks_pack_what_is_saved(name):
    """`saved_tensors_hooks` see all of it, and what they give back is used."""
    inputs = inputs_of(name)
    want = gradients(outputs_of(name, inputs), inputs)
    packed, unpacked = [], []

    def pack(t):
        packed.append(t.shape)
        return t.detach().clone()

    def unpack(t):
        unpacked.append(t.shape)
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        outputs = outputs_of(name, inputs)
    assert packed and not unpacked
    assert equal(gradients(outputs, inputs), want)
    assert sorted(unpacked) == sorted(packed)


SAVES = ["layer_norm", "rms_norm", "gelu", "geglu", "swiglu", "linear_cross_entropy of rows"]


@pytest.mark.parametrize("name", SAVES)
def test_a_saved_input_that_is_written_is_noticed(name):
    for i in range(1 if name in ("layer_norm", "rms_norm") else len(CALLS[name][1])):
        inputs = [t.detach().clone().requires_grad_() for t in inputs_of(name)]
        given = [t * 1 for t in inputs]
        outputs = outputs_of(name, given)
        if i == len(inputs) - 1 and name.startswith("linear"):
            continue  # the bias is saved for its shape as well, but this is no promise
        with torch.no_grad():
            given[i].mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            gradients(outputs, inputs)


@pytest.mark.parametrize("name", ["add_layer_norm", "add_rms_norm"])
def test_a_saved_output_that_is_written_is_noticed(name):
    inputs = inputs_of(name)
    y, total = outputs_of(name, inputs)
    with torch.no_grad():
        total.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        gradients([y], inputs)


@pytest.mark.parametrize("name", ["add_layer_norm", "add_rms_norm"])
def test_the_sum_needs_a_gradient_only_if_what_is_added_does(name):
    inputs = [t.detach() for t in inputs_of(name)]
    inputs[2].requires_grad_()
    y, total = outputs_of(name, inputs)
    assert y.requires_grad and not total.requires_grad
    y.sum().backward()
    assert inputs[2].grad is not None


@pytest.mark.parametrize("name", [name for name, call in CALLS.items() if call[2]])
def test_a_double_backward_is_refused(name):
    inputs = inputs_of(name)
    first = gradients(outputs_of(name, inputs), inputs, create_graph=True)
    assert any(t.requires_grad for t in first)
    op = name.split()[0]
    wanted = {"linear_cross_entropy": "(linear_)?cross_entropy"}.get(op, op)
    with pytest.raises(NotImplementedError, match=f"^{wanted}: double backward is not supported"):
        torch.autograd.grad([t.sum() for t in first if t.requires_grad], inputs)


def test_a_rotation_is_differentiable_twice():
    inputs = inputs_of("rotary")
    assert torch.autograd.gradgradcheck(
        turned, [t.double().detach().requires_grad_() for t in inputs]
    )


# ---- The dispatcher ------------------------------------------------------------------------------

FORWARD_OF = {"gelu": "gelu", "geglu": "geglu", "swiglu": "swiglu", "rotary": "rotary"}
FORWARD_OF |= {"linear_cross_entropy of rows": "linear_cross_entropy"}


def forward_of(name: str) -> str:
    """The op that a recorded call runs below autograd."""
    return FORWARD_OF.get(name, f"{name}_forward")


class Seen(TorchDispatchMode):
    """The ops of ours that reach it."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        if op.namespace == "thunderkittens":
            self.names.append(op._schema.name.split("::")[1])
        return op(*args, **(kwargs or {}))


@every_call
def test_a_mode_sees_the_ops(name):
    inputs = inputs_of(name)
    want = gradients(outputs_of(name, inputs), inputs)
    with Seen() as seen:
        outputs = outputs_of(name, inputs)
        forwards = list(seen.names)
        got = gradients(outputs, inputs)
    assert forwards == [forward_of(name)]
    assert len(seen.names) > len(forwards), "no op in the backward"
    assert equal(got, want)


@every_call
def test_fake_tensors_stay_fake(name):
    inputs = inputs_of(name)
    real = outputs_of(name, inputs)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fakes = [mode.from_tensor(t) for t in inputs]
        outputs = outputs_of(name, fakes)
        results = gradients(outputs, fakes)
    for got, want in zip([*outputs, *results], [*real, *inputs], strict=True):
        assert type(got).__name__ == "FakeTensor"
        assert (got.shape, got.dtype) == (want.shape, want.dtype)


@every_call
def test_traced_code_holds_the_ops(name):
    inputs = inputs_of(name)

    def both(*given):
        given = [t.detach().requires_grad_() for t in given]
        return gradients(outputs_of(name, given), given)

    graph = make_fx(both)(*inputs)
    names = [str(node.target) for node in graph.graph.nodes if node.op == "call_function"]
    assert f"thunderkittens.{forward_of(name)}.default" in names
    assert equal(graph(*inputs), both(*inputs))


@every_call
def test_the_compiled_call_gives_the_same(name):
    inputs = inputs_of(name)
    torch.compiler.reset()
    compiled = torch.compile(CALLS[name][0], backend="aot_eager", fullgraph=True)
    outputs = compiled(*inputs)
    outputs = list(outputs) if isinstance(outputs, tuple) else [outputs]
    want = outputs_of(name, inputs)
    assert equal(outputs, want)
    assert equal(gradients(outputs, inputs), gradients(want, inputs))


@pytest.mark.parametrize("name", ["layer_norm", "add_rms_norm", "geglu", "linear_cross_entropy"])
def test_compiled_autograd(name):
    compiled_autograd = pytest.importorskip("torch._dynamo.compiled_autograd")
    inputs = inputs_of(name)
    want = gradients(outputs_of(name, inputs), inputs)
    with compiled_autograd._enable(torch.compile(backend="eager")):
        assert equal(gradients(outputs_of(name, inputs), inputs), want)


@every_call
def test_eager_calls_go_without_it(name):
    """The profiler sees the op that is called, and no other of ours."""
    inputs = inputs_of(name)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        gradients(outputs_of(name, inputs), inputs)
    seen = {
        e.name.split("::")[1] for e in profile.events() if e.name.startswith("thunderkittens::")
    }
    inner = {n for n in seen if n.removesuffix(".plain") != name.split()[0] and "backward" not in n}
    assert not inner
