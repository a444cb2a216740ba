"""Which modules of transformers take which recipe: known by the forward that they run.

A forward is known by module and name, so that a class that inherits it is known too, and one whose
forward somebody else has replaced is not.
"""

import types
from typing import cast

from torch import nn

from thunderkittens.integrations.transformers import _forwards
from thunderkittens.integrations.transformers._swap import keeps_forward

# folder of transformers.models: the first part of its classes' names
_LLAMA_LIKE = {
    "llama": "Llama",
    "mistral": "Mistral",
    "phi3": "Phi3",
    "qwen2": "Qwen2",
    "qwen3": "Qwen3",
}
_GEMMA_LIKE = {"gemma2": "Gemma2", "gemma3": "Gemma3"}


def _forward(model: str, name: str) -> str:
    return f"transformers.models.{model}.modeling_{model}.{name}.forward"


_NORMS = {
    **{_forward(m, f"{name}RMSNorm"): "llama_rms_norm" for m, name in _LLAMA_LIKE.items()},
    **{_forward(m, f"{name}RMSNorm"): "gemma_rms_norm" for m, name in _GEMMA_LIKE.items()},
}
_BOTH = {**_LLAMA_LIKE, **_GEMMA_LIKE}
_MLPS = {  # recipe, and where the activation is
    **{_forward(m, f"{name}MLP"): ("gated_mlp", "act_fn") for m, name in _BOTH.items()},
    _forward("phi3", "Phi3MLP"): ("fused_gated_mlp", "activation_fn"),
    _forward("gpt2", "GPT2MLP"): ("plain_mlp", "act"),
}
_ATTENTION = {_forward(m, f"{name}Attention") for m, name in _BOTH.items()}

_ACTIVATIONS = {
    "torch.nn.modules.activation.SiLU": "silu",
    "transformers.activations.SiLUActivation": "silu",
    "transformers.activations.GELUTanh": "tanh",
    "transformers.activations.NewGELUActivation": "tanh",
    "transformers.activations.GELUActivation": "none",
}
_HEADED = {_forward(m, f"{name}ForCausalLM") for m, name in _BOTH.items()}
_HEADED.add(_forward("gpt2", "GPT2LMHeadModel"))

PARTS = {  # recipe: the part of a model that it is for, and the op
    "llama_rms_norm": ("norm", "rms_norm"),
    "gemma_rms_norm": ("norm", "rms_norm"),
    "torch_layer_norm": ("norm", "layer_norm"),
    "gated_mlp": ("mlp", "geglu"),
    "fused_gated_mlp": ("mlp", "geglu"),
    "plain_mlp": ("mlp", "mlp"),
    "rotary_attention": ("rotary", "rotary"),
    "linear_loss": ("loss", "linear_cross_entropy"),
}


class LeftAlone(Exception):
    """Why a module keeps its forward."""


def part_of(module: nn.Module) -> str | None:
    """One of norm, mlp and rotary, for what is known and for what looks like one."""
    name, forward = type(module).__name__, _name_of(module)
    if forward in _NORMS or "RMSNorm" in name or "LayerNorm" in name:
        return "norm"
    if forward in _MLPS or name.endswith("MLP"):
        return "mlp"
    called = getattr(getattr(type(module).forward, "__code__", None), "co_names", ())
    return "rotary" if forward in _ATTENTION or _forwards.ROTARY in called else None


def recipe_for(module: nn.Module, part: str) -> tuple[str, ...]:
    """The recipe and its options; raises LeftAlone."""
    if keeps_forward(module):
        raise LeftAlone("another library has given it a forward of its own")
    if type(module).forward is nn.LayerNorm.forward:
        if len(cast(nn.LayerNorm, module).normalized_shape) != 1:
            raise LeftAlone("it normalises more than one dimension")
        return ("torch_layer_norm",)
    forward = _name_of(module)
    if part == "norm" and forward in _NORMS:
        return (_NORMS[forward],)
    if part == "mlp" and forward in _MLPS:
        name, place = _MLPS[forward]
        return name, _activation(name, getattr(module, place))
    if part == "rotary" and forward in _ATTENTION:
        function = type(module).forward
        called = getattr(getattr(function, "__code__", None), "co_names", ())
        if not isinstance(function, types.FunctionType) or _forwards.ROTARY not in called:
            raise LeftAlone(f"its forward does not call {_forwards.ROTARY} by this name")
        return ("rotary_attention",)
    if forward.startswith("transformers.") or forward.startswith(type(module).__module__):
        raise LeftAlone("it is not one of the classes that are known")
    raise LeftAlone(f"its forward is {forward}, which is not known")


def not_linear(model: nn.Module) -> str:
    """Why the head and the loss of a model cannot be one; "" where they can."""
    if _name_of(model) not in _HEADED:
        return "it is not one of the classes that are known"
    if getattr(model.config, "final_logit_softcapping", None) is not None:
        return "it caps its logits"
    return "another library has given it a forward of its own" if keeps_forward(model) else ""


def _activation(name: str, act: nn.Module) -> str:
    """The option of a recipe that stands for an activation of transformers."""
    found = _ACTIVATIONS.get(f"{type(act).__module__}.{type(act).__qualname__}")
    if found is None or (name == "plain_mlp" and found == "silu"):
        raise LeftAlone(f"there is no op for its activation, {type(act).__name__}")
    if act._forward_hooks or act._forward_pre_hooks or "forward" in vars(act):
        raise LeftAlone("its activation has hooks or a forward of its own, to be met as before")
    return found


def _name_of(module: nn.Module) -> str:
    forward = type(module).forward
    return f"{getattr(forward, '__module__', '')}.{getattr(forward, '__qualname__', '')}"
