"""Mutation of linear's kernel: its target, program, and mutants that no run can notice."""

from tests.mutation.listing import Listed
from tests.mutation.program import Program

PROGRAM = Program("linear", "linear")
_FOLDER = "kernels/linear"
TARGETS = {f"{_FOLDER}/linear.cuh": (PROGRAM,)}
LEFT_OUT: dict[str, tuple[str, ...]] = {}
HOST_SIDE = (f"{_FOLDER}/linear_launch.cuh",)

LISTED: tuple[Listed, ...] = ()
