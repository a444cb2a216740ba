"""Memory that shows what a kernel touched: guard bands, poison, a run with other neighbours."""

import contextlib
import ctypes
import math
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any

import torch
from torch import Tensor

from thunderkittens import _backend

GUARD = 4096  # bytes of guard on each side; keeps the alignment of what lies between
NEIGHBOURS = (math.nan, 1e4)  # what surrounds the tensors in the first and the second run


class Poisoned:
    """Puts tensors between guard bands, and poisons what torch allocates, for as long as it lasts.

    On leaving it asserts that no byte of any tensor's buffer has changed: neither the guards and
    gaps nor the tensors themselves. A kernel in the simulator that reads or writes the guards is
    reported at once, with its line, if the simulator was loaded before the tensor was guarded.

    Args:
        neighbours: The value of the guards, and of the gaps between strided elements.

    Example:
        >>> import torch
        >>> from thunderkittens.testing import Poisoned
        >>> with Poisoned() as memory:
        ...     x = memory.guard(torch.ones(3))
        ...     y = x + 1
    """

    def __init__(self, neighbours: float = math.nan) -> None:
        self.neighbours = neighbours
        self._buffers: list[tuple[Tensor, Tensor]] = []  # buffer, and its bytes as they must stay
        self._watched: list[tuple[ctypes.CDLL, int]] = []  # simulator, address known to it
        self._outputs = poisoned_outputs()

    def __enter__(self) -> "Poisoned":
        self._outputs.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._outputs.__exit__(kind, error, traceback)
        self._unwatch()
        if kind is None:
            self.check()
        self._buffers.clear()

    def guard(self, values: Tensor, offset: int = 0) -> Tensor:
        """Returns a tensor with the same values and strides between guard bands.

        Args:
            values: Any strided tensor; its requires_grad is kept.
            offset: Elements by which to shift it from the allocation's alignment.
        """
        values_only = values.detach()
        span = 1 + sum((s - 1) * d for s, d in zip(values.shape, values.stride(), strict=True))
        span = max(span, 0) if values.numel() else 0
        band = GUARD // values.element_size()
        buffer = torch.empty(2 * band + offset + span, dtype=values.dtype, device=values.device)
        if values.dtype.is_floating_point:  # (NaN is no less than the largest)
            buffer.fill_(min(self.neighbours, torch.finfo(values.dtype).max))
        else:
            buffer.fill_(0x55)
        inside = buffer.as_strided(values.shape, values.stride(), band + offset)
        if 0 in values.stride():  # expanded: the elements share memory, so copy each place once
            once = tuple(slice(0, 1) if d == 0 else slice(None) for d in values.stride())
            inside[once].copy_(values_only[once])
        else:
            inside.copy_(values_only)
        self._buffers.append((buffer, buffer.clone()))
        self._watch(inside, span)
        return inside.requires_grad_(values.requires_grad)

    def check(self) -> None:
        """Asserts that no guarded buffer has changed."""
        for index, (buffer, before) in enumerate(self._buffers):
            changed = (_bytes(buffer) != _bytes(before)).nonzero()
            assert len(changed) == 0, (
                f"tensor {index}: {len(changed)} bytes of it or its guards were changed, the first "
                f"at byte {int(changed[0]) - GUARD} of the tensor"
            )

    def _watch(self, inside: Tensor, span: int) -> None:
        if not inside.is_cpu or not inside.numel():
            return
        for simulator in _backend.loaded_simulators():
            simulator.kittens_sim_guard(inside.data_ptr(), span * inside.element_size(), GUARD)
            self._watched.append((simulator, inside.data_ptr()))

    def _unwatch(self) -> None:
        for simulator, address in self._watched:
            simulator.kittens_sim_release_guards(address)
        self._watched.clear()


@contextlib.contextmanager
def poisoned_outputs() -> Iterator[None]:
    """Makes torch fill everything it allocates with NaN, so that an unwritten element is seen."""
    deterministic = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    settings: Any = torch.utils.deterministic
    filling = settings.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True, warn_only=True)
    settings.fill_uninitialized_memory = True
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(deterministic, warn_only=warn_only)
        settings.fill_uninitialized_memory = filling


def check_memory(
    function: Callable[..., Sequence[Tensor | None]], *tensors: Tensor | None
) -> list[Tensor | None]:
    """Runs a function between guards twice, with different neighbours, and asserts equal bits.

    A difference means that it read outside its tensors, or returned memory it had not written.

    Args:
        function: From the tensors to its results.
        *tensors: Its arguments; None is passed on.

    Returns:
        The results of the first run.
    """
    runs = []
    for neighbours in NEIGHBOURS:
        with Poisoned(neighbours) as memory:
            guarded = [None if t is None else memory.guard(t) for t in tensors]
            runs.append(list(function(*guarded)))
    for index, (first, second) in enumerate(zip(*runs, strict=True)):
        assert bits_equal(first, second), f"result {index} depends on memory outside the tensors"
    return runs[0]


def bits_equal(a: Tensor | None, b: Tensor | None) -> bool:
    """Whether two results are the same to the bit, NaNs included."""
    if a is None or b is None:
        return a is b
    return a.shape == b.shape and a.dtype == b.dtype and torch.equal(_bytes(a), _bytes(b))


def _bytes(t: Tensor) -> Tensor:
    return t.detach().contiguous().flatten().view(torch.uint8)
