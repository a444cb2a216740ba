"""One module's forward, and no other's: its class becomes a subclass of what it was.

Parameters, buffers, hooks, names and `isinstance` stay what they were. The subclass has the name
and the module of the original too, by which FSDP's policies, PEFT's targets and transformers itself
find classes; only the printed model says whose it is.
"""

import functools
import types
from collections.abc import Callable
from typing import Any

from torch import nn

MARK = (
    "_thunderkittens_swap"  # of a subclass: the class it replaces, and the recipe with its options
)

# name: of a class that a recipe fits, the members of its subclass; the other arguments are strings
RECIPES: dict[str, Callable[..., dict[str, object]]] = {}


def recipe(function: Callable[..., dict[str, object]]) -> Callable[..., dict[str, object]]:
    """Enters a recipe by its name; with that and strings, a pickle finds it again."""
    RECIPES[function.__name__] = function
    return function


@functools.cache
def subclass(original: type[nn.Module], name: str, *options: str) -> type[nn.Module]:
    """The class that replaces `original`; the same one for all modules, so that code is shared."""

    def reduce(self: nn.Module, protocol: int) -> str | tuple[Any, ...]:
        made = original.__reduce_ex__(self, max(2, int(protocol)))
        if type(self) is not cls:  # a class of somebody else's over ours
            return made
        return (_new, (original, name, *options), *made[2:])

    def get_name(self: nn.Module) -> str:
        return f"thunderkittens.{original.__name__}"

    members = {
        "__module__": original.__module__,
        "__qualname__": original.__qualname__,
        "__doc__": original.__doc__,
        "__reduce_ex__": reduce,
        "_get_name": get_name,
        MARK: (original, (name, *options)),
    }
    metaclass: Callable[..., type[nn.Module]] = type(original)
    cls = metaclass(
        original.__name__, (original,), {**members, **RECIPES[name](original, *options)}
    )
    return cls


def _new(original: type[nn.Module], name: str, *options: str) -> nn.Module:
    """An empty module for `copy` and `pickle` to fill."""
    # mypy takes Module.__hash__ for that of the class, here and in swap
    cls = subclass(original, name, *options)  # type: ignore[arg-type]
    return cls.__new__(cls)


def is_swapped(module: nn.Module) -> bool:
    """Whether the module's own class is one of ours."""
    return MARK in vars(type(module))


def is_swapped_below(module: nn.Module) -> bool:
    """Whether a class of somebody else's lies over one of ours."""
    return not is_swapped(module) and hasattr(type(module), MARK)


def original_class(module: nn.Module) -> type[nn.Module]:
    """What `put_back` gives the module."""
    original: type[nn.Module] = getattr(type(module), MARK)[0]
    return original


def recipe_of(module: nn.Module) -> tuple[str, ...]:
    """The recipe that the module has now, with its options."""
    now: tuple[str, ...] = getattr(type(module), MARK)[1]
    return now


def swap(module: nn.Module, name: str, *options: str) -> None:
    """Gives the module the forward of a recipe."""
    _become(module, subclass(type(module), name, *options))  # type: ignore[arg-type]


def put_back(module: nn.Module) -> None:
    """Gives the module its class again."""
    _become(module, original_class(module))


def keeps_forward(module: nn.Module) -> bool:
    """Whether the module has a forward of its own that is not its class's, or leads to it."""
    return "forward" in vars(module) and not _bound(module)


def _become(module: nn.Module, cls: type[nn.Module]) -> None:
    names = _bound(module)
    module.__class__ = cls
    for name in names:
        vars(module)[name] = types.MethodType(cls.forward, module)


def _bound(module: nn.Module) -> list[str]:
    """Where the module itself holds its class's forward: accelerate's hooks call `_old_forward`."""
    forward, own = type(module).forward, vars(module)
    names = [name for name in ("_old_forward", "forward") if name in own]
    return [name for name in names if getattr(own[name], "__func__", None) is forward]
