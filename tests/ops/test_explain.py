"""explain: the same checks and the same decision as the call, without computing."""

import pytest
import torch

import configs
import thunderkittens
from thunderkittens import _C


def test_cpu():
    found = thunderkittens.explain("layer_norm", torch.ones(2, 8), eps=1e-3)
    assert (found.op, found.backend) == ("layer_norm", "torch")
    assert str(found) == "layer_norm: torch (the tensors are on the cpu)"


def test_under_backend_torch():
    with thunderkittens.backend("torch"):
        found = thunderkittens.explain("layer_norm", torch.ones(2, 8))
    assert found.reason == "backend('torch') is active"


def test_attention():
    q = torch.ones(1, 2, 1, 8)
    assert thunderkittens.explain("attention", q, q, q, causal=True).backend == "torch"
    assert thunderkittens.explain("attention", q, q, q, return_lse=True).op == "attention"


def test_meta_tensors():
    found = thunderkittens.explain("layer_norm", torch.ones(2, 8, device="meta"))
    assert found.reason == "the tensors hold no data"


def test_a_call_that_would_be_refused_is_refused():
    with pytest.raises(ValueError, match="layer_norm: weight must have shape"):
        thunderkittens.explain("layer_norm", torch.ones(2, 8), torch.ones(9))
    thunderkittens.layer_norm(torch.ones(2, 8))  # and calls compute again
    assert thunderkittens.layer_norm(torch.ones(2, 8)).shape == (2, 8)


def test_unknown_op():
    ops = {op for family in configs.KERNELS for op in family.ops}
    names = ", ".join(sorted({*ops, "scaled_dot_product_attention"}))
    with pytest.raises(ValueError, match=f"explain: op must be one of {names}, got 'x'"):
        thunderkittens.explain("x")


def test_nothing_is_computed_or_recorded():
    x = torch.ones(2, 8, requires_grad=True)
    before = _C.launch_counts()
    with torch.profiler.profile() as profile:
        thunderkittens.explain("layer_norm", x)
    names = {event.key for event in profile.key_averages()}
    assert not any("native_layer_norm" in name for name in names)
    assert _C.launch_counts() == before


def test_fallback_reason_without_warning(recwarn):
    _C.set_backend(_C.Backend.simulator)
    try:
        found = thunderkittens.explain("layer_norm", torch.ones(2, 8, dtype=torch.float64))
    finally:
        _C.set_backend(_C.Backend.auto)
    assert (found.backend, found.reason) == ("torch", "float64 is computed by torch")
    assert not recwarn.list


def test_strict_raises_as_the_call_does(monkeypatch):
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "1")
    x = torch.ones(2, 8, dtype=torch.float64)
    _C.set_backend(_C.Backend.simulator)
    try:
        for ask in (thunderkittens.layer_norm, lambda x: thunderkittens.explain("layer_norm", x)):
            with pytest.raises(RuntimeError, match="layer_norm: .*float64.*THUNDERKITTENS_STRICT"):
                ask(x)
    finally:
        _C.set_backend(_C.Backend.auto)
    assert thunderkittens.explain("layer_norm", x).reason == "the tensors are on the cpu"
