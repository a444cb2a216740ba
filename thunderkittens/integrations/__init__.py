"""Other libraries' models on thunderkittens ops; a library is imported where it is needed first.

- `thunderkittens.integrations.transformers`: `apply` to a model of Hugging Face's transformers.
- `thunderkittens.integrations.kernels`: a mapping for `kernelize` of Hugging Face's kernels.
"""

import importlib
import types

__all__ = ["kernels", "transformers"]


def __getattr__(name: str) -> types.ModuleType:
    if name in __all__:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
