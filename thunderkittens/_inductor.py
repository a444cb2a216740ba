"""What Inductor, the compiler behind `torch.compile`, has to be told before it meets our ops.

For an op that it does not know it makes a fallback by itself, and first formats a message of all
that the op's inputs come from: twice as much with each op whose two results both go into the next.
A model of twelve layers never ends. So each op's fallback is registered when Inductor's table of
lowerings is there, which is long after `import thunderkittens` in a program that never compiles.

And torch keeps what it has compiled on disk, graphs of our inner ops among it, under a key that
knows torch's version but not ours: after an upgrade it would call ops that are no more. So the key
is told which library the ops are of.
"""

import hashlib
from collections.abc import Iterator
from types import ModuleType

import torch

from thunderkittens._loader import LIBRARY
from thunderkittens._when_imported import when_imported

_NAMESPACE = "thunderkittens"


def register_fallbacks_with_inductor() -> None:
    """Registers all our ops' fallbacks: now, if Inductor is there, or else when it is imported."""
    when_imported("torch._inductor.lowering", _register, needs="make_fallback")


def _overloads() -> Iterator[torch._ops.OpOverload]:
    """All ops of our namespace, out of torch's own list: a new one is among them."""
    for full_name in torch._C._dispatch_get_all_op_names():
        namespace, _, name = full_name.partition("::")
        if namespace == _NAMESPACE:
            name, _, overload = name.partition(".")
            yield getattr(getattr(torch.ops.thunderkittens, name), overload or "default")


def _tag_of_caches() -> str:
    """What torch's caches are to know of us: the contents of the library of our ops."""
    return f"{_NAMESPACE}-{hashlib.sha256(LIBRARY.read_bytes()).hexdigest()[:16]}"


def _register(lowering: ModuleType) -> None:
    """As Inductor would do it by itself: the op sees the strides that eager code would give it.

    What is made of other ops, as the short forms are, is taken apart before Inductor sees it.
    """
    from torch._library.utils import get_layout_constraint_tag

    for op in _overloads():
        if op not in lowering.lowerings and op not in lowering.decompositions:
            constraint = lowering.tag_to_layout_constraint(get_layout_constraint_tag(op))
            lowering.make_fallback(op, layout_constraint=constraint, warn=False)

    import torch.compiler.config as caches

    tag, given = _tag_of_caches(), getattr(caches, "cache_key_tag", None)
    if given is not None and tag not in given:  # older versions of torch have none
        caches.cache_key_tag = f"{given}+{tag}" if given else tag
