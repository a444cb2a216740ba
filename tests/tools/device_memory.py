"""The memory of a GPU that several processes of pytest share."""

import torch

KEPT = 1 << 30  # bytes that a process may keep: what most tests need, and allocate again and again


def give_back() -> None:
    """Gives back what torch's caching allocator holds, where that is much.

    It keeps what a test's tensors had. Ten processes, each with what its largest test took, do not
    fit in 80 GB. Nothing without a GPU, and nothing in a process that has not used one.
    """
    if torch.cuda.is_initialized() and torch.cuda.memory_reserved() > KEPT:
        torch.cuda.empty_cache()
