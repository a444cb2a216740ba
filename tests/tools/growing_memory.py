"""Whether calls leave memory behind on the GPU."""

import gc
import time
from collections.abc import Callable

import torch


def check_memory_does_not_grow(call: Callable[[], object], times: int = 200) -> None:
    """Fails where torch has allocated more after the calls than before.

    Autograd's thread may hold the last call's tensors for a moment longer, so that one is waited
    for.
    """
    call()
    gc.collect()
    before = torch.cuda.memory_allocated()
    for _ in range(times):
        call()
    patience = time.monotonic() + 2
    while torch.cuda.memory_allocated() != before and time.monotonic() < patience:
        time.sleep(0.01)
    assert torch.cuda.memory_allocated() == before
