"""Mutation of mamba2's own kernels: targets, programs, and mutants that no run can notice."""

from tests.mutation.listing import Listed
from tests.mutation.program import Program

PROGRAM = Program("mamba2", "mamba2")
TARGETS = {
    "kernels/mamba2/mamba2_gates.cuh": (PROGRAM,),
    "kernels/mamba2/mamba2_step.cuh": (PROGRAM,),
}
LEFT_OUT: dict[str, tuple[str, ...]] = {}
HOST_SIDE = ("kernels/mamba2/mamba2_step_launch.cuh",)

LISTED: tuple[Listed, ...] = (
    Listed(
        "mamba2/mamba2_gates.cuh",
        "softplus",
        "term 2/3 double",
        "the last term of the series, below a rounding of the sum",
    ),
)
