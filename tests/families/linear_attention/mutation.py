"""Mutation of linear_attention's kernel: targets, programs, and mutants that no run can notice."""

from tests.mutation.listing import Listed
from tests.mutation.program import Program

PROGRAM = Program("linear_attention", "linear_attention")
TARGETS = {
    "kernels/linear_attention/linear_attention_chunkwise.cuh": (PROGRAM,),
    "kernels/linear_attention/linear_attention_consumer.cuh": (PROGRAM,),
    "kernels/linear_attention/linear_attention_decays.cuh": (PROGRAM,),
    "kernels/linear_attention/linear_attention_state.cuh": (PROGRAM,),
    "kernels/linear_attention/linear_attention_tile.cuh": (PROGRAM,),
}
LEFT_OUT = {
    "kernels/linear_attention/linear_attention_tile.cuh": ("blocks_per_multiprocessor", "stages"),
}
HOST_SIDE = ("kernels/linear_attention/linear_attention_launch.cuh",)

LISTED: tuple[Listed, ...] = ()
