"""What is repeated on a GPU of linear_attention: many streams of chunks, and segments of few."""

import dataclasses

from tests.families.linear_attention import cases
from tests.families.linear_attention.cases import FP16, Case
from tests.stress.problem import Stress


@dataclasses.dataclass(frozen=True)
class Problem(Stress):
    """One of linear_attention's."""

    def small(self) -> Stress:
        """The same with few tokens, for a CPU."""
        return dataclasses.replace(
            self, case=dataclasses.replace(self.case, length=70, batch=1, ends=())
        )


SOME = (
    Case(16, 1000, 16, 16, 64, 64),
    Case(9, 700, 16, 4, 128, 128, dtype=FP16),
    Case(1, 4099, 4, 2, 128, 64),
    Case(1, 5000, 1, 1, 64, 64, decay="head", layout="fused"),
    Case(1, 5000, 4, 4, 64, 128, ends=(0, 3000, 3001, 5000)),
)
CASES = (
    *(Problem("linear_attention_chunkwise", each, cases) for each in SOME),
    *(
        Problem("linear_attention_generic", dataclasses.replace(each, generic=True), cases)
        for each in SOME
    ),
)
