"""Numbers between host and device. A GPU is not waited for, and may be steps behind."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


def sent(numbers: Sequence, dtype: torch.dtype, device: torch.device) -> Tensor:
    """A tensor on the device of the host's numbers, from memory that is its own until it is there.

    (torch.tensor(…, device=…) waits for all that is queued.)
    """
    host = torch.tensor(numbers, dtype=dtype, pin_memory=device.type == "cuda")
    return host.to(device, non_blocking=True)


def fetched(numbers: Tensor) -> Callable[[], list[int]]:
    """Starts the numbers' way to the host; the result waits for them, and for nothing behind."""
    if numbers.device.type != "cuda":
        values = numbers.tolist()
        return lambda: values
    host = torch.empty(numbers.shape, dtype=numbers.dtype, pin_memory=True)
    host.copy_(numbers, non_blocking=True)
    event = torch.cuda.Event()
    event.record(torch.cuda.current_stream(numbers.device))

    def wait() -> list[int]:
        event.synchronize()
        return host.tolist()

    return wait
