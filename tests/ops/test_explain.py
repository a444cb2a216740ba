"""explain: the same checks and the same decision as the call, without computing."""

import importlib
import inspect

import pytest
import torch
from torch.utils import _pytree as pytree

import configs
import thunderkittens
from tests.ops.described import arguments_of
from tests.tools import calls
from thunderkittens import _C, _explain


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
    names = ", ".join(sorted({*ops, _explain._COMPOSED, *_explain._OF_TORCH}))
    with pytest.raises(ValueError, match=f"explain: op must be one of {names}, got 'x'"):
        thunderkittens.explain("x")


def test_what_has_no_kernel_is_checked():
    q = torch.randn(1, 2, 16)
    assert str(thunderkittens.explain("based_features", q)) == (
        "based_features: torch (there is no kernel of it)"
    )
    with pytest.raises(ValueError, match="based_features: scale must be above 0"):
        thunderkittens.explain("based_features", q, scale=0.0)


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


PUBLIC = [*(op for family in configs.KERNELS for op in family.ops), "scaled_dot_product_attention"]


def test_every_public_function_is_explained():
    """All that is exported and called with tensors."""
    others = {"explain", "include_dir", "register_flash_attention"}
    others |= calls.of_torch()
    functions = {
        n for n in thunderkittens.__all__ if inspect.isfunction(getattr(thunderkittens, n))
    }
    others |= {n for n in functions if n.endswith("_log_decay")}
    assert functions - others == set(PUBLIC)


@pytest.mark.parametrize("op", PUBLIC[:-1])
def test_it_answers_in_the_name_that_it_was_asked_by(op):
    found = thunderkittens.explain(op, **arguments_of(op))
    assert (found.op, found.backend, found.reason) == (op, "torch", "the tensors are on the cpu")


@pytest.mark.parametrize("op", PUBLIC[:-1])
def test_what_would_be_written_stays_what_it_is(op):
    """Its version too: autograd would refuse what was saved of it."""
    arguments = arguments_of(op)
    tensors = [t for t in pytree.tree_leaves(arguments) if isinstance(t, torch.Tensor)]
    before = [(t._version, t.clone()) for t in tensors]
    with torch.no_grad():
        thunderkittens.explain(op, **arguments)
    for t, (version, value) in zip(tensors, before, strict=True):
        assert t._version == version
        torch.testing.assert_close(t, value, rtol=0, atol=0, equal_nan=True)


def test_of_a_first_block():
    assert thunderkittens.explain("add_rms_norm", torch.ones(2, 8), None).op == "add_rms_norm"


class TestComposed:
    """scaled_dot_product_attention, which is attention or torch's own."""

    q = torch.ones(2, 4, 3, 8)

    def explain(self, *args, **kwargs):
        return thunderkittens.explain("scaled_dot_product_attention", *args, **kwargs)

    @pytest.mark.parametrize("shape", [(2, 4, 3, 8), (3, 8), (2, 3, 8), (1, 2, 4, 3, 8)], ids=str)
    def test_ours(self, shape):
        q = torch.ones(shape)
        for options in ({}, {"is_causal": True}, {"scale": 0.5}):
            with thunderkittens.backend("torch"):
                found = self.explain(q, q, q, **options)
            assert str(found) == (
                "scaled_dot_product_attention: torch (backend('torch') is active)"
            )

    def test_torchs(self, recwarn):
        assert self.explain(self.q, self.q, self.q, dropout_p=0.5).reason == "dropout"
        assert self.explain(self.q, self.q, self.q, torch.ones(3, 3)).reason == "an attn_mask"
        assert self.explain(self.q[:1], self.q, self.q).reason == "broadcast shapes"
        assert not recwarn.list

    def test_nothing_is_computed(self, monkeypatch):
        module = importlib.import_module("thunderkittens.ops.scaled_dot_product_attention")
        monkeypatch.setattr(module, "_by_torch", None)
        self.explain(self.q, self.q, self.q, dropout_p=0.5)

    def test_refused(self):
        with pytest.raises(TypeError, match="^scaled_dot_product_attention: scale must be"):
            self.explain(self.q, self.q, self.q, scale="1")
        with pytest.raises(TypeError, match="missing a required argument: 'value'"):
            self.explain(self.q, self.q)

    def test_strict(self, monkeypatch):
        monkeypatch.setenv("THUNDERKITTENS_STRICT", "1")
        _C.set_backend(_C.Backend.simulator)
        try:
            with pytest.raises(RuntimeError, match="scaled_dot.*: computed by torch: dropout"):
                self.explain(self.q, self.q, self.q, dropout_p=0.5)
        finally:
            _C.set_backend(_C.Backend.auto)
