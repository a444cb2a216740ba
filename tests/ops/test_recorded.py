"""What a recorded call leaves in autograd's graph, of every op, and when it goes without the
dispatcher."""

import itertools

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode

from tests.tools import families
from tests.tools.calls import Call, Recorded

MODULES = families.each("calls.py")
CALLS = [call for module in MODULES for call in getattr(module, "RECORDED", ())]


def each(calls: list[Recorded]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("call", calls, ids=str)


every_call = each(CALLS)


def inputs_of(call: Call) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(s, generator=generator).requires_grad_() for s in call.shapes]


def outputs_of(call: Call, inputs) -> list[torch.Tensor]:
    outputs = call.call(*inputs)
    return list(outputs) if isinstance(outputs, tuple) else [outputs]


def gradients(outputs, inputs, **options) -> list[torch.Tensor]:
    """Of all outputs, each with a gradient of its own."""
    arriving = [torch.full_like(t, 1.0 + i) for i, t in enumerate(outputs)]
    return list(torch.autograd.grad(outputs, inputs, arriving, **options))


def equal(got, want) -> bool:
    return all(torch.equal(a, b) for a, b in zip(got, want, strict=True))


def names_of_nodes(tensors) -> set[str]:
    """Of the graph behind the tensors."""
    nodes, found = [t.grad_fn for t in tensors], set()
    while nodes:
        node = nodes.pop()
        if node is not None:
            found.add(node.name())
            nodes += [following for following, _ in node.next_functions]
    return found


def test_every_op_that_records_a_node_of_ours_is_covered():
    ours = set()
    for call in [call for module in MODULES for call in module.CALLS]:
        names = names_of_nodes(outputs_of(call, inputs_of(call)))
        if any(name.startswith("thunderkittens::") for name in names):
            ours.add(call.op)
    assert ours == {call.op for call in CALLS}


@every_call
def test_a_kept_graph_gives_the_same_again_and_a_used_one_an_error(call):
    inputs = inputs_of(call)
    outputs = outputs_of(call, inputs)
    first = [t.clone() for t in gradients(outputs, inputs, retain_graph=True)]
    assert equal(gradients(outputs, inputs, retain_graph=True), first)
    assert equal(gradients(outputs, inputs), first)
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        gradients(outputs, inputs)


@every_call
def test_each_gradient_alone_is_what_it_is_among_all(call):
    inputs = inputs_of(call)
    want = gradients(outputs_of(call, inputs), inputs)
    for count in range(1, len(inputs)):
        for some in itertools.combinations(range(len(inputs)), count):
            asked = gradients(outputs_of(call, inputs), [inputs[i] for i in some])
            assert equal(asked, [want[i] for i in some]), some
            given = [t if i in some else t.detach() for i, t in enumerate(inputs)]
            outputs = [t for t in outputs_of(call, given) if t.requires_grad]
            if len(outputs) == len(outputs_of(call, inputs)):
                assert equal(gradients(outputs, [given[i] for i in some]), asked), some


@every_call
def test_each_output_alone_adds_up_to_all(call):
    inputs = inputs_of(call)
    outputs = outputs_of(call, inputs)
    want = gradients(outputs, inputs, retain_graph=True)
    parts = [
        torch.autograd.grad(
            output, inputs, torch.full_like(output, 1.0 + i), retain_graph=True, allow_unused=True
        )
        for i, output in enumerate(outputs)
    ]
    for i, total in enumerate(want):
        some = [part[i] for part in parts if part[i] is not None]
        # Terms as large as the largest were rounded, one after the other.
        rounding = 4 * torch.finfo(total.dtype).eps * total.abs().max().item()
        torch.testing.assert_close(sum(some), total, rtol=1.3e-6, atol=max(1e-5, rounding))


@every_call
def test_hooks_pack_what_is_saved(call):
    """`saved_tensors_hooks` see all of it, and what they give back is used."""
    inputs = inputs_of(call)
    want = gradients(outputs_of(call, inputs), inputs)
    packed, unpacked = [], []

    def pack(t):
        packed.append(t.shape)
        return t.detach().clone()

    def unpack(t):
        unpacked.append(t.shape)
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        outputs = outputs_of(call, inputs)
    assert packed and not unpacked
    assert equal(gradients(outputs, inputs), want)
    assert sorted(unpacked) == sorted(packed)


@each([call for call in CALLS if call.saved_inputs])
def test_a_saved_input_that_is_written_is_noticed(call):
    for i in call.saved_inputs:
        inputs = inputs_of(call)
        given = [t * 1 for t in inputs]
        outputs = outputs_of(call, given)
        with torch.no_grad():
            given[i].mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            gradients(outputs, inputs)


@each([call for call in CALLS if call.saved_outputs])
def test_a_saved_output_that_is_written_is_noticed(call):
    for i in call.saved_outputs:
        inputs = inputs_of(call)
        outputs = outputs_of(call, inputs)
        with torch.no_grad():
            outputs[i].mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            gradients(outputs[:i] + outputs[i + 1 :], inputs)


@each([call for call in CALLS if call.alone])
def test_an_output_needs_a_gradient_only_if_what_it_depends_on_does(call):
    for i, some in call.alone.items():
        inputs = [t.requires_grad_(j not in some) for j, t in enumerate(inputs_of(call))]
        outputs = outputs_of(call, inputs)
        assert not outputs.pop(i).requires_grad and all(t.requires_grad for t in outputs)
        sum(t.sum() for t in outputs).backward()
        assert all((t.grad is None) == (j in some) for j, t in enumerate(inputs))


@each([call for call in CALLS if call.refuses is not None])
def test_a_double_backward_is_refused(call):
    inputs = inputs_of(call)
    first = gradients(outputs_of(call, inputs), inputs, create_graph=True)
    assert any(t.requires_grad for t in first)
    op = call.refuses or call.op
    with pytest.raises(NotImplementedError, match=f"^{op}: double backward is not supported"):
        torch.autograd.grad([t.sum() for t in first if t.requires_grad], inputs)


@each([call for call in CALLS if call.refuses is None])
def test_a_double_backward_is_right(call):
    inputs = [t.double().detach().requires_grad_() for t in inputs_of(call)]
    assert torch.autograd.gradgradcheck(call.call, inputs)


# ---- The dispatcher ------------------------------------------------------------------------------


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
def test_a_mode_sees_the_ops(call):
    inputs = inputs_of(call)
    want = gradients(outputs_of(call, inputs), inputs)
    with Seen() as seen:
        outputs = outputs_of(call, inputs)
        forwards = list(seen.names)
        got = gradients(outputs, inputs)
    assert forwards == [call.forward]
    assert len(seen.names) > len(forwards), "no op in the backward"
    assert equal(got, want)


@every_call
def test_fake_tensors_stay_fake(call):
    inputs = inputs_of(call)
    real = outputs_of(call, inputs)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fakes = [mode.from_tensor(t) for t in inputs]
        outputs = outputs_of(call, fakes)
        results = gradients(outputs, fakes)
    for got, want in zip([*outputs, *results], [*real, *inputs], strict=True):
        assert type(got).__name__ == "FakeTensor"
        assert (got.shape, got.dtype) == (want.shape, want.dtype)


@every_call
def test_traced_code_holds_the_ops(call):
    inputs = inputs_of(call)

    def both(*given):
        given = [t.detach().requires_grad_() for t in given]
        return gradients(outputs_of(call, given), given)

    graph = make_fx(both)(*inputs)
    names = [str(node.target) for node in graph.graph.nodes if node.op == "call_function"]
    assert f"thunderkittens.{call.forward}.default" in names
    assert equal(graph(*inputs), both(*inputs))


@every_call
def test_the_compiled_call_gives_the_same(call):
    inputs = inputs_of(call)
    torch.compiler.reset()
    compiled = torch.compile(call.call, backend="aot_eager", fullgraph=True)
    outputs = compiled(*inputs)
    outputs = list(outputs) if isinstance(outputs, tuple) else [outputs]
    want = outputs_of(call, inputs)
    assert equal(outputs, want)
    assert equal(gradients(outputs, inputs), gradients(want, inputs))


@every_call
def test_compiled_autograd(call):
    compiled_autograd = pytest.importorskip("torch._dynamo.compiled_autograd")
    inputs = inputs_of(call)
    want = gradients(outputs_of(call, inputs), inputs)
    with compiled_autograd._enable(torch.compile(backend="eager")):
        assert equal(gradients(outputs_of(call, inputs), inputs), want)


@every_call
def test_eager_calls_go_without_it(call):
    """The profiler sees the op that is called, and no other of ours.

    With more than one result, the op that is called is the forward itself.
    """
    inputs = inputs_of(call)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        outputs = outputs_of(call, inputs)
        gradients(outputs, inputs)
    called = {call.op, call.forward} if len(outputs) > 1 else {call.op}
    seen = {
        e.name.split("::")[1] for e in profile.events() if e.name.startswith("thunderkittens::")
    }
    inner = {n for n in seen if n.removesuffix(".plain") not in called and "backward" not in n}
    assert not inner
