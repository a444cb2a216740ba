"""Our layers in `kernelize` of Hugging Face's kernels, which downloads nothing for them."""

import inspect

import pytest
import torch
from torch import nn

pytest.importorskip("transformers")

from transformers.activations import GELUActivation, GELUTanh, NewGELUActivation
from transformers.models.llama.modeling_llama import LlamaRMSNorm
from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5RMSNorm

from tests.integrations.models import Calls
from thunderkittens.integrations.kernels import mapping

LAYERS = {
    "RMSNorm": (LlamaRMSNorm, (64,), "rms_norm_forward"),
    "RMSNormZeroCentered": (Qwen3_5RMSNorm, (64,), "rms_norm_forward"),
    "GeLU": (GELUActivation, (), "gelu"),
    "GeluTanh": (GELUTanh, (), "gelu"),
    "NewGELU": (NewGELUActivation, (), "gelu"),
}


def test_a_mapping_is_complete_and_stateless():
    """What kernels asks of a layer: no state, no other member, the forward's parameters."""
    assert set(mapping()) == set(LAYERS)
    for name, devices in mapping().items():
        layer = devices["cuda"].load()
        own = {key for key in vars(layer) if not key.startswith("__")}
        assert issubclass(layer, nn.Module) and layer.__init__ is nn.Module.__init__
        assert own == {"can_torch_compile", "has_backward", "forward"}
        theirs = inspect.signature(LAYERS[name][0].forward).parameters
        assert len(inspect.signature(layer.forward).parameters) == len(theirs)
    assert mapping("cpu")["GeLU"]["cpu"] == mapping()["GeLU"]["cuda"]


@pytest.mark.parametrize("name", LAYERS)
def test_kernelize(name):
    kernels = pytest.importorskip("kernels")
    original, arguments, op = LAYERS[name]
    layer = type("Layer", (original,), {"forward": original.forward})
    kernels.replace_kernel_forward_from_hub(layer, name)
    module, x = layer(*arguments), torch.randn(3, 64, requires_grad=True)
    for parameter in module.parameters():
        nn.init.uniform_(parameter, 0.5, 2.0)
    expected = module(x)
    with kernels.use_kernel_mapping(mapping("cpu")):
        mode = kernels.Mode.TRAINING | kernels.Mode.TORCH_COMPILE
        kernels.kernelize(module, mode=mode, device="cpu", use_fallback=False)
    with Calls() as calls:
        made = module(x)
    assert calls.count[op] == 1 and torch.allclose(made, expected, rtol=1e-5, atol=1e-6)
    made.sum().backward()
