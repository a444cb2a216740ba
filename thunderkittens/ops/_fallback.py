"""What a function that is composed in Python says when it leaves a call to torch."""

import functools
import os
import warnings

from thunderkittens._C import Backend, backend


def computed_by_torch(op: str, reason: str, on_gpu: bool, warns: bool = True) -> None:
    """Warns once per reason, or raises under THUNDERKITTENS_STRICT=1, as the ops do in C++.

    Silent where nothing falls back: under backend("torch"), and on the CPU but for the simulator.
    In compiled code it speaks while torch.compile traces.

    Args:
        op: The public function.
        reason: Why.
        on_gpu: Whether the tensors are there.
        warns: False: does not warn.
    """
    active = backend()
    if active == Backend.torch or (active == Backend.auto and not on_gpu):
        return
    sentence = f"{op}: computed by torch: {reason}"
    if os.environ.get("THUNDERKITTENS_STRICT", "") not in ("", "0"):
        raise RuntimeError(f"{sentence} (THUNDERKITTENS_STRICT=1 makes this an error)")
    if warns:
        _warn_once(sentence)


# What torch.compiler.assume_constant_result sets, without importing the compiler: two seconds.
computed_by_torch._dynamo_marked_constant = True  # type: ignore[attr-defined]


@functools.cache
def _warn_once(sentence: str) -> None:
    """Attributed to the caller of the public function; a warning made an error is raised again."""
    warnings.warn(sentence, stacklevel=4)
