"""What is mutated, and the programs that have to notice it: what the families' mutation.py say."""

from build_tools.settings import ROOT
from tests.mutation.program import Program
from tests.tools import families

MODULES = families.each("mutation.py")
# Device code, as #include has it → the programs that run it, those first that find the most.
TARGETS: dict[str, tuple[Program, ...]] = {
    file: programs for module in MODULES for file, programs in module.TARGETS.items()
}
# What the host alone reads: it decides how many threads and blocks there are.
LEFT_OUT: dict[str, tuple[str, ...]] = {
    file: names for module in MODULES for file, names in module.LEFT_OUT.items()
}
# Sources of kernels that are run on the host alone.
HOST_SIDE: tuple[str, ...] = tuple(file for module in MODULES for file in module.HOST_SIDE)


def programs() -> list[Program]:
    """All of them, once."""
    return list(dict.fromkeys(program for some in TARGETS.values() for program in some))


def text(file: str) -> str:
    """A target's source."""
    return (ROOT / "csrc" / file).read_text()
