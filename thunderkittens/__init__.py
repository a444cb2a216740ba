"""Fast GPU kernels for PyTorch: attention, norms and more, with autograd and `torch.compile`.

Importing loads the ops library and does nothing to CUDA.
"""

from typing import TYPE_CHECKING

from thunderkittens import _loader

if _loader.load():
    from thunderkittens import distributed, nn, optim
    from thunderkittens._backend import backend
    from thunderkittens._distributed import register_sharding_strategies
    from thunderkittens._explain import Explanation, explain
    from thunderkittens._flop_counter import register_flop_formulas
    from thunderkittens._inductor import register_fallbacks_with_inductor
    from thunderkittens._info import __version__
    from thunderkittens._loader import include_dir
    from thunderkittens.ops.activation import geglu, gelu, swiglu
    from thunderkittens.ops.adamw import adamw
    from thunderkittens.ops.attention import attention
    from thunderkittens.ops.attention_decode import attention_decode
    from thunderkittens.ops.attention_qkvpacked import attention_qkvpacked
    from thunderkittens.ops.based_attention import based_attention, based_features
    from thunderkittens.ops.based_attention_step import based_attention_step
    from thunderkittens.ops.cache_append import cache_append
    from thunderkittens.ops.cross_entropy import cross_entropy, linear_cross_entropy
    from thunderkittens.ops.flash_attention import register_flash_attention
    from thunderkittens.ops.hedgehog_attention import (
        HedgehogState,
        hedgehog_attention,
        hedgehog_attention_step,
    )
    from thunderkittens.ops.linear import linear
    from thunderkittens.ops.linear_attention import linear_attention
    from thunderkittens.ops.linear_attention_decay import (
        lightning_log_decay,
        minimax_log_decay,
        retention_log_decay,
    )
    from thunderkittens.ops.linear_attention_step import linear_attention_step
    from thunderkittens.ops.mamba2 import mamba2
    from thunderkittens.ops.mamba2_step import mamba2_step
    from thunderkittens.ops.mlp import mlp
    from thunderkittens.ops.norm import add_layer_norm, add_rms_norm, layer_norm, rms_norm
    from thunderkittens.ops.quantized_linear import (
        QuantizedWeight,
        dequantize_weight,
        pack_int4,
        quantize_weight,
        quantized_linear,
        unpack_int4,
    )
    from thunderkittens.ops.rotary import rotary
    from thunderkittens.ops.scaled_dot_product_attention import scaled_dot_product_attention

    register_fallbacks_with_inductor()
    register_flop_formulas()
    register_sharding_strategies()
    del register_fallbacks_with_inductor, register_flop_formulas, register_sharding_strategies

__all__ = [
    "Explanation",
    "HedgehogState",
    "QuantizedWeight",
    "__version__",
    "adamw",
    "add_layer_norm",
    "add_rms_norm",
    "attention",
    "attention_decode",
    "attention_qkvpacked",
    "backend",
    "based_attention",
    "based_attention_step",
    "based_features",
    "cache_append",
    "cross_entropy",
    "dequantize_weight",
    "distributed",
    "explain",
    "geglu",
    "gelu",
    "hedgehog_attention",
    "hedgehog_attention_step",
    "include_dir",
    "layer_norm",
    "lightning_log_decay",
    "linear",
    "linear_attention",
    "linear_attention_step",
    "linear_cross_entropy",
    "mamba2",
    "mamba2_step",
    "minimax_log_decay",
    "mlp",
    "nn",
    "optim",
    "pack_int4",
    "quantize_weight",
    "quantized_linear",
    "register_flash_attention",
    "retention_log_decay",
    "rms_norm",
    "rotary",
    "scaled_dot_product_attention",
    "swiglu",
    "unpack_int4",
]


if TYPE_CHECKING:
    from thunderkittens import integrations as integrations
    from thunderkittens import testing as testing
else:

    def __getattr__(name: str):
        """Imports `testing` and `integrations` at their first use: few programs need them."""
        if name in ("integrations", "testing"):
            import importlib

            return importlib.import_module(f"thunderkittens.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
