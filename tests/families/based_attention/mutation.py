"""Mutation of based_attention's kernels: targets, programs, and mutants that no run can notice."""

from tests.mutation.listing import NOT_BOUNDED, SAME, TUNING, Listed
from tests.mutation.program import Program

PROGRAM, GENERIC = (
    Program("based_attention", "based_attention", (f"GENERIC={i}",)) for i in (0, 1)
)
STEP = Program("based_attention", "based_attention_step")
TARGETS = {
    f"kernels/based_attention/based_attention{part}.cuh": programs
    for programs, parts in (
        ((PROGRAM,), ("", "_contraction", "_sums", "_walk")),
        ((GENERIC,), ("_generic", "_generic_walk", "_products")),
        (
            (PROGRAM, GENERIC),
            ("_features", "_forward", "_gradient", "_pass", "_state", "_states", "_tile"),
        ),
    )
    for part in parts
} | {"kernels/based_attention/based_attention_step.cuh": (STEP,)}
LEFT_OUT = {
    "kernels/based_attention/based_attention_step.cuh": ("min_blocks",),
    "kernels/based_attention/based_attention_tile.cuh": ("blocks_per_multiprocessor", "stages"),
}
HOST_SIDE = (
    "kernels/based_attention/based_attention_generic_launch.cuh",
    "kernels/based_attention/based_attention_launch.cuh",
    "kernels/based_attention/based_attention_pass_launch.cuh",
    "kernels/based_attention/based_attention_step_launch.cuh",
)

STEP_KERNEL = "based_attention_step.cuh"

LISTED: tuple[Listed, ...] = (
    Listed(STEP_KERNEL, "based_attention_step_config", "start double", TUNING),
    Listed(STEP_KERNEL, "step_feature::step_feature", "argument (1|2)/2 more", "below 0 is none"),
    Listed(STEP_KERNEL, "based_step::load_runs", "bound 1/3 shifted", NOT_BOUNDED),
    Listed(STEP_KERNEL, "based_step::update_runs", "branch more", "of a row that is not there"),
    Listed(STEP_KERNEL, "based_step::make_features", "limit more", SAME),
    Listed(STEP_KERNEL, "based_step::store_output", "term more", "48 leads to no other lane"),
    Listed(STEP_KERNEL, "based_step::run", "bound (1|4)/6 shifted", "a pass more, of nothing"),
    Listed(
        STEP_KERNEL,
        "based_step::run",
        "guard always|bound (5|6)/6 shifted|limit (less|more)",
        "what was loaded ahead is loaded once more",
    ),
    Listed(
        "based_attention/based_attention_gradient.cuh",
        "gradient_walk::contract",
        "limit 1/5 less",
        "where none is asked for ahead, the first slice is multiplied twice, to the same",
    ),
    Listed(
        "based_attention/based_attention_gradient.cuh",
        "gradient_walk::contract",
        "branch 1/2 more",
        "a generic product asked for a slice sooner is the same",
    ),
    Listed(
        "based_attention/based_attention_contraction.cuh",
        "feature_contraction::turn_back",
        "guard 1/2 never",
        "turned by 0 it stays what it is",
    ),
    Listed(
        "based_attention/based_attention_forward.cuh",
        "forward_walk::attend_at_once",
        "term 3/4 more",
        "the state is written behind a wait for this product, too: it is all warps' at once",
    ),
    Listed(
        "based_attention/based_attention_forward.cuh",
        "forward_walk::attend_at_once",
        "term 4/4 less|barrier number more",
        "it waits for more, or at a barrier that nobody else has",
    ),
    Listed(
        "based_attention/based_attention_features.cuh",
        "features_of",
        "subscript 1/2 next",
        "turned by all of its lanes it is what it was, once more",
    ),
    Listed(
        "based_attention/based_attention_features.cuh",
        "feature_column::row",
        "limit 1/2 more",
        "the formula gives a column that is nothing a negative row, too",
    ),
    Listed(
        "based_attention/based_attention_generic_walk.cuh",
        "row_pieces::load_async",
        "limit less",
        "a multiple of 2 below 16 is below 15",
    ),
    Listed("based_attention/based_attention_sums.cuh", "key_sums::store", "limit more", SAME),
    Listed(
        "based_attention/based_attention_sums.cuh", "key_sums::for_each", "term 9/11 less", SAME
    ),
)
