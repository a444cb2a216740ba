"""backward() inside autocast gives the bits that it gives outside, for every op and backend."""

import inspect

import pytest
import torch

import thunderkittens
from tests.tools import calls, families
from tests.tools.calls import BF16, FP32

# Of what is exported, that which is no differentiable op of its own; and classes.
OTHERS = {name for name in thunderkittens.__all__ if inspect.isclass(getattr(thunderkittens, name))}
OTHERS |= {
    "distributed",
    "__version__",
    "explain",
    "include_dir",
    "nn",
    "optim",
    "register_flash_attention",
}
CALLS = [call for module in families.each("calls.py") for call in module.CALLS]
DTYPES = pytest.mark.parametrize("dtype", [FP32, BF16], ids=str)
EVERY = pytest.mark.parametrize("call", CALLS, ids=str)
AROUND = pytest.mark.parametrize("forward", [False, True], ids=["backward alone", "forward too"])


def test_every_op_is_called():
    # Without a backward; and functions that make tensors of torch's own ops.
    steps = {name for name in thunderkittens.__all__ if name.endswith("_step")}
    steps |= {op for m in families.each("calls.py") for op in getattr(m, "NO_BACKWARD", ())}
    decays = {name for name in thunderkittens.__all__ if name.endswith("_log_decay")}
    others = OTHERS | steps | decays | calls.of_torch()
    assert {call.op for call in CALLS} == set(thunderkittens.__all__) - others


@EVERY
@DTYPES
@AROUND
def test_on_the_cpu(call, dtype, forward):
    calls.check(call, dtype, "cpu", forward)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:.*computed by torch")
@EVERY
@DTYPES
@AROUND
def test_on_a_gpu(call, dtype, forward, monkeypatch):
    """Deterministic algorithms: torch's FlashAttention adds up dq in any order."""
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "0")
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        calls.check(call, dtype, "cuda", forward)
    finally:
        torch.use_deterministic_algorithms(False)
