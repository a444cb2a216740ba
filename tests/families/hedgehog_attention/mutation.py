"""Mutation of hedgehog_attention's kernel: targets, programs, mutants that no run can notice."""

from tests.mutation.listing import Listed
from tests.mutation.program import Program

PROGRAM = Program("hedgehog_attention", "hedgehog_attention")
BACKWARD = Program("hedgehog_attention", "hedgehog_attention_backward")
STEP = Program("hedgehog_attention", "hedgehog_attention_step")
_FOLDER = "kernels/hedgehog_attention/hedgehog_attention"
TARGETS = {
    f"{_FOLDER}_forward.cuh": (PROGRAM,),
    f"{_FOLDER}_consumer.cuh": (PROGRAM,),
    f"{_FOLDER}_features.cuh": (PROGRAM, BACKWARD),
    f"{_FOLDER}_tile.cuh": (PROGRAM,),
    f"{_FOLDER}_gradient.cuh": (BACKWARD,),
    f"{_FOLDER}_gradient_base.cuh": (BACKWARD,),
    f"{_FOLDER}_gradient_tile.cuh": (BACKWARD,),
    f"{_FOLDER}_gradient_walk.cuh": (BACKWARD,),
    f"{_FOLDER}_sums.cuh": (BACKWARD,),
    f"{_FOLDER}_step.cuh": (STEP,),
}
LEFT_OUT: dict[str, tuple[str, ...]] = {
    f"{_FOLDER}_gradient_tile.cuh": ("blocks_per_multiprocessor",),
}
HOST_SIDE = (
    f"{_FOLDER}_launch.cuh",
    f"{_FOLDER}_backward_launch.cuh",
    f"{_FOLDER}_step_launch.cuh",
)

LISTED: tuple[Listed, ...] = (
    Listed(
        f"{_FOLDER}_step.cuh",
        "hedgehog_step::score",
        "start (less|more)",
        "all scores are off by the same, and their softmax is what it was",
    ),
    Listed(
        f"{_FOLDER}_features.cuh",
        "feature_sums::add",
        "equality 2/2 negated",
        "what either block's threads begin with is added up",
    ),
    Listed(
        f"{_FOLDER}_gradient_base.cuh",
        "gradient_base::signals",
        "limit 1/2 more",
        "129 is a multiple of 129: one thread of each warpgroup, as before",
    ),
)
