"""How mutants are listed that no run can notice, and the reasons that several kernels share."""

import re
from dataclasses import dataclass

from tests.mutation.mutant import Mutant

TUNING = "the kernel is right with any such number; this one is the fastest"
SAME = "both sides are equal there, and so is what is chosen"
SAME_SUMS = "the sums are the same in all threads of a row, which store the same"
ANY_BARRIER = "any barrier but the whole block's would do"
UNWATCHED = "races in global memory are not watched"
NOT_BOUNDED = "no element stands there: the compiler ends the loop before it"


@dataclass(frozen=True)
class Listed:
    """Mutants that are alike.

    Nothing of it is a line or the name of a variable. Of how many places a name says that it is one
    (`limit 2/3 more`), so a place more or less of its kind in the function asks for another look.

    Attributes:
        file: The end of the source's name.
        function: The function or class, with its classes; "" outside of all.
        names: A regular expression for their names in it, all of each (Mutant.name).
        reason: Why they cannot be noticed.
    """

    file: str
    function: str
    names: str
    reason: str

    def covers(self, mutant: Mutant) -> bool:
        """Whether a mutant is one of these."""
        return (
            mutant.file.endswith(self.file)
            and mutant.function == self.function
            and re.fullmatch(self.names, mutant.name) is not None
        )
