"""attention's gradients as cases: for tests/stress, and for what their kernels move."""

from collections.abc import Sequence

from torch import Tensor

from tests.families.attention import cases, gradients_reference
from tests.families.attention.cases import FP16, Case
from tests.families.attention.gradient_checks import run, tensors_of

# What tests/tools/budgets.py measures.
BUDGETS = {
    "attention backward, generic kernel": Case(70, 150, True, 2, 128, generic=True),
    "attention backward, generic kernel of large heads": Case(
        40, 70, False, 1, 256, FP16, generic=True
    ),
}


def make(case: Case, device: str = "cpu") -> list[Tensor]:
    """The gradient of o, and q, k, v and so on."""
    tensors, dout, _ = tensors_of(case, device, with_lse=False)
    return [dout, *tensors]


def run_case(case: Case, inputs: Sequence[Tensor]) -> list[Tensor]:
    """The gradients, by the backend in force."""
    with cases.kernels_of(case):
        return run(case, inputs[1:], inputs[0], None)


def check_case(case: Case, inputs: Sequence[Tensor], results: Sequence[Tensor]) -> None:
    """Asserts them against float64."""
    dout, *tensors = inputs
    with cases.kernels_of(case):
        found = gradients_reference.judged(case, tensors, dout, None)
    gradients_reference.check(found, list(results))
