"""Mutation of AdamW's kernels: targets, programs, and mutants that no run can notice."""

from tests.mutation.listing import Listed
from tests.mutation.program import Program

PROGRAM = Program("adamw", "adamw")
_FOLDER = "kernels/adamw"
TARGETS = {
    f"{_FOLDER}/adamw_norm.cuh": (PROGRAM,),
    f"{_FOLDER}/adamw_table.cuh": (PROGRAM,),
    f"{_FOLDER}/adamw_update.cuh": (PROGRAM,),
    f"{_FOLDER}/stochastic_rounding.cuh": (PROGRAM,),
}
LEFT_OUT = {
    f"{_FOLDER}/adamw_norm.cuh": ("min_blocks",),
    f"{_FOLDER}/adamw_update.cuh": ("min_blocks",),
}
HOST_SIDE = (f"{_FOLDER}/adamw_launch.cuh",)
LISTED: tuple[Listed, ...] = (
    Listed("adamw_norm.cuh", "adamw_norm", "limit 4/4 more", "all lanes have the total"),
    Listed("adamw_table.cuh", "for_each_part", "bound 3/3 shifted", "a part of no elements"),
    Listed("adamw_update.cuh", "update_chunk", "bound shifted", "a pass of no elements"),
    Listed("adamw_table.cuh", "ends_last", "start (less|more)", "lane 0's alone is read"),
    Listed(
        "stochastic_rounding.cuh",
        "rounding_numbers::get",
        "limit 1/3 double",
        "a run is of 1 or of fours: of 4, either is 4",
    ),
    Listed(
        "stochastic_rounding.cuh",
        "round_stochastically",
        "guard never",
        "a processor's NaN, unlike a GPU's, has lower bits of zero, to which no carry comes",
    ),
)
