"""What is repeated on a GPU of attention_decode: long contexts of few workers, and split ones."""

import dataclasses

from tests.families.attention_decode import cases
from tests.families.attention_decode.cases import FP8, FP16, FP32, Case
from tests.stress.problem import Stress


@dataclasses.dataclass(frozen=True)
class Problem(Stress):
    """One of attention_decode's."""

    def small(self) -> Stress:
        """The same with short contexts, for a CPU."""
        return dataclasses.replace(self, case=dataclasses.replace(self.case, lengths=(70, 0, 40)))


SOME = (
    Case((8192, 3000, 1, 5000), 1, 32, 8, 128),
    Case((4096,) * 16, 4, 32, 8, 64, page=64, dtype=FP16, sinks=FP32),
    Case((20000,), 16, 8, 1, 128, window=(5000, None)),
    Case((20000, 9000), 1, 8, 1, 128),
    Case((8192, 3000, 1, 5000), 1, 32, 8, 128, cache=FP8),
    Case((8192, 3000, 1, 5000), 1, 16, 8, 256),
)
CASES = tuple(Problem("attention_decode", each, cases) for each in SOME)
