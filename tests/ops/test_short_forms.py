"""The short forms of the ops: each is the op with its defaults."""

import pytest
import torch

from tests.tools import families
from tests.tools.calls import BF16, FP32

FORMS = {  # form -> inputs, of which `x` makes those that have gradients
    form: inputs
    for module in families.each("calls.py")
    for form, inputs in getattr(module, "SHORT_FORMS", {}).items()
}
every_form = pytest.mark.parametrize("op", FORMS, ids=lambda op: op.__name__)


def test_every_form_is_here():
    names = {op.__name__ for op in FORMS}
    schemas = torch._C._jit_get_all_schemas()
    short = [s.name for s in schemas if s.overload_name == "plain"]
    assert names == {s.split("::")[1] for s in short if s.startswith("thunderkittens::")}


def inputs_of(op, dtype: torch.dtype) -> tuple:
    """Example inputs of a form."""
    return FORMS[op](lambda *shape: torch.randn(*shape).to(dtype).requires_grad_())


@every_form
def test_it_is_the_op_with_its_defaults(op):
    """The same bits, and the same gradients."""
    inputs = inputs_of(op, BF16)
    leaves = [t for t in inputs if isinstance(t, torch.Tensor) and t.requires_grad]
    results = []
    for call in (op.plain, op.default):
        outputs = call(*inputs)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        total = sum(t.float().square().sum() for t in outputs)
        results.append([*outputs, *torch.autograd.grad(total, leaves)])
    for got, want in zip(*results, strict=True):
        assert torch.equal(got, want)


@every_form
def test_its_arguments_come_first(op):
    """Those of the op, in the op's order: some of the first are given, the others have defaults."""
    short, full = (form._schema.arguments for form in (op.plain, op.default))
    assert [a.name for a in short] == [a.name for a in full[: len(short)]]
    assert [str(a.type) for a in short] == [str(a.type) for a in full[: len(short)]]
    assert all(a.has_default_value() for a in full[len(short) :])


@every_form
def test_opcheck(op):
    torch.library.opcheck(op.plain, inputs_of(op, FP32))


@every_form
def test_nested_tensors_are_refused(op):
    """In the op's own words."""
    nested = torch.nested.nested_tensor([torch.randn(2, 8), torch.randn(3, 8)])
    _, *others = inputs_of(op, FP32)
    name = op.__name__.removesuffix("_forward")
    for mode in (torch.no_grad, torch.enable_grad, torch.inference_mode):
        with mode(), pytest.raises(NotImplementedError, match=f"^{name}: .* got a nested tensor"):
            op.plain(nested, *others)
