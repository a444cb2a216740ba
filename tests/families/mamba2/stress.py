"""What is repeated on a GPU of mamba2: pairs of many heads, of few, and parts of few."""

import dataclasses

from tests.families.mamba2 import cases
from tests.families.mamba2.cases import FP16, FP32, Case
from tests.stress.problem import Stress


@dataclasses.dataclass(frozen=True)
class Problem(Stress):
    """One of mamba2's."""

    def small(self) -> Stress:
        """The same with few tokens, for a CPU."""
        return dataclasses.replace(self, case=dataclasses.replace(self.case, length=70, batch=1))


CASES = (
    Problem("linear_attention_chunkwise", Case(20, 500, 32, steps=-4.0), cases),
    Problem("linear_attention_chunkwise", Case(4, 1000, 16, 4, dtype=FP16, steps=-4.0), cases),
    Problem("linear_attention_warp_specialized", Case(8, 1000, 32, steps=-4.0), cases),
    Problem("linear_attention_warp_specialized", Case(5, 700, 16, 4, 40, 24, steps=-2.0), cases),
    Problem("linear_attention_part_states", Case(2, 4099, 8, 4, steps=-4.0), cases),
    Problem("linear_attention_part_states", Case(1, 5000, 2, dt_dtype=FP32, steps=-4.0), cases),
)
