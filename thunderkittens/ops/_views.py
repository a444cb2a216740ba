"""Views that an op writes in place, in compiled code."""

import torch
from torch import Tensor


def writes_views(*written: Tensor) -> bool:
    """Whether compiled code is traced in which a tensor that an op writes is a view.

    Inductor loses where such a view begins, always where there are several and with dynamic sizes
    where there is one (pytorch/pytorch#198068). It knows what copy_ writes: so the op's functional
    form is called, and what it returns copied.
    """
    return torch.compiler.is_compiling() and any(t._base is not None for t in written)
