"""Mutants that no run can notice, each with the reason: they are as right as the kernel."""

from tests.mutation.listing import Listed
from tests.mutation.mutant import Mutant
from tests.tools import families

# Those of all families, from their mutation.py.
LISTED: tuple[Listed, ...] = tuple(
    entry for module in families.each("mutation.py") for entry in module.LISTED
)


def find(mutant: Mutant) -> Listed | None:
    """The entry that a mutant is listed in, if any."""
    return next((entry for entry in LISTED if entry.covers(mutant)), None)
