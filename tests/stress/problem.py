"""What is repeated on a GPU: a case of a family's tests, of one of its kernels."""

import dataclasses
import types
from collections.abc import Sequence
from typing import Any

from torch import Tensor

Results = Sequence[Tensor | None]


@dataclasses.dataclass(frozen=True)
class Stress:
    """One problem of a kernel.

    Attributes:
        kernel: Its name in csrc/kernels.
        case: A case of the tests of its family.
        module: What makes the case's tensors, runs and checks it.
    """

    kernel: str
    case: Any
    module: types.ModuleType

    def __str__(self) -> str:
        return f"{self.kernel}-{self.case}"

    def make(self, device: str) -> Sequence[Tensor | None]:
        """Its tensors."""
        return self.module.make(self.case, device)

    def run(self, inputs: Sequence[Tensor | None]) -> Results:
        """Its calls: forward and, where a kernel computes it, backward."""
        return self.module.run_case(self.case, inputs)

    def check(self, inputs: Sequence[Tensor | None], results: Results) -> None:
        """Asserts the results against float64."""
        self.module.check_case(self.case, inputs, results)

    def small(self) -> "Stress":
        """The same with few rows, for a CPU."""
        return dataclasses.replace(self, case=dataclasses.replace(self.case, leading=(2,)))
