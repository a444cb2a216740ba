"""What is repeated on a GPU of based_attention: many streams of chunks, and segments of few."""

import dataclasses

from tests.families.based_attention import cases
from tests.families.based_attention.cases import FP16, Case
from tests.stress.problem import Stress


@dataclasses.dataclass(frozen=True)
class Problem(Stress):
    """One of based_attention's."""

    def small(self) -> Stress:
        """The same with few tokens, for a CPU."""
        return dataclasses.replace(self, case=dataclasses.replace(self.case, length=70, batch=1))


SOME = (
    Case(16, 1000, 16),
    Case(9, 700, 16, dtype=FP16, normalize=False),
    Case(1, 4099, 4),
    Case(1, 5000, 1, layout="fused"),
)
CASES = (
    *(Problem("based_attention", each, cases) for each in SOME),
    *(
        Problem("based_attention_generic", dataclasses.replace(each, generic=True), cases)
        for each in SOME
    ),
)
