"""What is repeated on a GPU of hedgehog_attention: many streams of blocks, and segments of few."""

import dataclasses

from tests.families.hedgehog_attention import cases, gradient_cases
from tests.families.hedgehog_attention.cases import FP16, Case
from tests.stress.problem import Stress


@dataclasses.dataclass(frozen=True)
class Problem(Stress):
    """One of hedgehog_attention's."""

    def small(self) -> Stress:
        """The same with few tokens, for a CPU."""
        return dataclasses.replace(self, case=dataclasses.replace(self.case, length=70, batch=1))


SOME = (
    Case(16, 1000, 16, states=False),
    Case(9, 700, 16, dtype=FP16),
    Case(1, 4099, 4),
    Case(1, 5000, 1, layout="fused"),
)
TRAINING = (
    Case(16, 1000, 16, states=False),
    Case(9, 700, 16, dtype=FP16, states=False),
    Case(1, 4099, 4, states=False),
    Case(1, 5000, 1, layout="fused", states=False),
)
CASES = (
    *(Problem("hedgehog_attention_forward", each, cases) for each in SOME),
    *(
        Problem("hedgehog_attention_generic", dataclasses.replace(each, generic=True), cases)
        for each in SOME
    ),
    *(Problem("hedgehog_attention_gradient", each, gradient_cases) for each in TRAINING),
    *(
        Problem(
            "hedgehog_attention_generic_gradient",
            dataclasses.replace(each, generic=True),
            gradient_cases,
        )
        for each in TRAINING
    ),
)
