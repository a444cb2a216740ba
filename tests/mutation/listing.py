"""How mutants are listed that no run can notice, and the reasons that several kernels share."""

import re
from dataclasses import dataclass

from build_tools.settings import ROOT
from tests.mutation.operators import Mutant

TUNING = "the kernel is right with any such number; this one is the fastest"
SAME = "both sides are equal there, and so is what is chosen"
SAME_SUMS = "the sums are the same in all threads of a row, which store the same"
ANY_BARRIER = "any barrier but the whole block's would do"
LONGER = "an array with one element more, which nobody uses"
NOT_BOUNDED = "no element stands there: the compiler ends the loop before it"


@dataclass(frozen=True)
class Listed:
    """Mutants that are alike.

    Attributes:
        file: The end of the source's name.
        line: A part of the line that they change; where it has «», of where they change it.
        change: Their change, as a regular expression for all of `operator: before → after`.
        reason: Why it cannot be noticed.
        above: A part of the line above, where several lines are alike.
    """

    file: str
    line: str
    change: str
    reason: str
    above: str = ""

    def covers(self, mutant: Mutant) -> bool:
        """Whether a mutant is one of these."""
        return (
            mutant.file.endswith(self.file)
            and self.line in (mutant.context if "«" in self.line else mutant.plain_line)
            and re.fullmatch(self.change, mutant.change, re.DOTALL) is not None
            and (not self.above or self.above in _line_above(mutant))
        )


def _line_above(mutant: Mutant) -> str:
    return (ROOT / "csrc" / mutant.file).read_text().splitlines()[mutant.line - 2]
