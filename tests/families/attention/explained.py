"""Who computes a call of attention, as `explain` says it."""

from __future__ import annotations

import thunderkittens

BY_TORCH = "its backward is computed by torch"


def is_differentiated_by_us(q, k, v, **options) -> bool:
    """Whether a kernel of ours computes the gradients of a call, by the backend in force."""
    leaf = q.detach().requires_grad_()
    found = thunderkittens.explain("attention", leaf, k, v, **options)
    return found.backend != "torch" and not any(BY_TORCH in note for note in found.notes)
