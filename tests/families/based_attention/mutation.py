"""Mutation of based_attention's kernel: targets, programs, and mutants that no run can notice."""

from tests.mutation.listing import SAME, Listed
from tests.mutation.program import Program

PROGRAM = Program("based_attention", "based_attention")
TARGETS = {
    f"kernels/based_attention/based_attention{part}.cuh": (PROGRAM,)
    for part in (
        "",
        "_contraction",
        "_features",
        "_forward",
        "_gradient",
        "_sums",
        "_tile",
        "_walk",
    )
}
LEFT_OUT = {
    "kernels/based_attention/based_attention_tile.cuh": ("blocks_per_multiprocessor", "stages"),
}
HOST_SIDE = ("kernels/based_attention/based_attention_launch.cuh",)

LISTED: tuple[Listed, ...] = (
    Listed(
        "based_attention/based_attention_contraction.cuh",
        "feature_contraction::turn_back",
        "guard 1/2 never",
        "turned by 0 it stays what it is",
    ),
    Listed(
        "based_attention/based_attention_features.cuh",
        "row_features",
        "subscript 1/2 next",
        "turned by all of its lanes it is what it was, once more",
    ),
    Listed(
        "based_attention/based_attention_features.cuh",
        "feature_column::row",
        "limit 1/2 more",
        "the formula gives a column that is nothing a negative row, too",
    ),
    Listed("based_attention/based_attention_sums.cuh", "key_sums::store", "limit more", SAME),
)
