"""What torch.profiler and autograd's graph call our ops: by their names."""

import re

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from tests.tools import families
from tests.tools.calls import FP32, Call

CALLS = [call for module in families.each("calls.py") for call in module.CALLS]
# Of those whose calls torch serves by its own differentiable ops, forward alone: that op's name.
BY_TORCH = {
    "attention": "attention",
    "attention_qkvpacked": "attention_qkvpacked",
    "scaled_dot_product_attention": "attention",
}


@pytest.mark.parametrize("call", CALLS, ids=str)
def test_a_profile_of_a_step_names_the_op_and_its_backward(call: Call):
    leaves = [torch.randn(s, dtype=FP32, requires_grad=True) for s in call.shapes]
    with profile(activities=[ProfilerActivity.CPU]) as recorded:
        outputs = call.call(*leaves)
        outputs = [outputs] if isinstance(outputs, torch.Tensor) else outputs
        torch.autograd.backward(outputs, [torch.ones_like(o) for o in outputs])
    names = {event.name for event in recorded.events()}
    op = BY_TORCH.get(call.op, call.op)
    assert names & {f"thunderkittens::{op}{suffix}" for suffix in ("", "_", "_forward")}
    if call.op not in BY_TORCH:
        assert f"thunderkittens::{op}_backward" in names
    ours = {name for name in names if "thunderkittens" in name}
    plain = re.compile(
        r"(autograd::engine::evaluate_function: )?thunderkittens::[a-z0-9_]+(\.plain)?"
    )
    assert all(plain.fullmatch(name) for name in ours), ours
