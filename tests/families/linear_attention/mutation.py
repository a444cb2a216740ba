"""Mutation of linear_attention's kernels: targets, programs, and mutants that no run can notice."""

from tests.mutation.listing import NOT_BOUNDED, SAME, TUNING, Listed
from tests.mutation.program import Program

PROGRAM, GENERIC = (
    Program("linear_attention", "linear_attention", (f"GENERIC={i}",)) for i in (0, 1)
)
ANCHORS, GENERIC_ANCHORS = (
    Program("linear_attention", "linear_attention_anchors", one.defines, of=one.stem)
    for one in (PROGRAM, GENERIC)
)
PAIRS = Program("linear_attention", "linear_attention_pairs", PROGRAM.defines, of=PROGRAM.stem)
STEP = Program("linear_attention", "linear_attention_step")
DECAY_GRADIENT = Program("linear_attention", "linear_attention_decay_gradient")
TARGETS = {
    "kernels/linear_attention/linear_attention_anchors.cuh": (ANCHORS, DECAY_GRADIENT),
    "kernels/linear_attention/linear_attention_chunkwise.cuh": (PROGRAM, PAIRS, ANCHORS),
    "kernels/linear_attention/linear_attention_consumer.cuh": (PROGRAM, PAIRS, ANCHORS),
    "kernels/linear_attention/linear_attention_decayed_values.cuh": (PROGRAM, PAIRS),
    "kernels/linear_attention/linear_attention_decays.cuh": (PROGRAM, GENERIC),
    "kernels/linear_attention/linear_attention_gates.cuh": (PAIRS, PROGRAM, GENERIC),
    "kernels/linear_attention/linear_attention_generic.cuh": (GENERIC, GENERIC_ANCHORS),
    "kernels/linear_attention/linear_attention_generic_copies.cuh": (GENERIC,),
    "kernels/linear_attention/linear_attention_generic_tile.cuh": (GENERIC, GENERIC_ANCHORS),
    "kernels/linear_attention/linear_attention_part_states.cuh": (PAIRS,),
    "kernels/linear_attention/linear_attention_scores.cuh": (PROGRAM,),
    "kernels/linear_attention/linear_attention_state.cuh": (PROGRAM, PAIRS),
    "kernels/linear_attention/linear_attention_stream.cuh": (PROGRAM, PAIRS),
    "kernels/linear_attention/linear_attention_tile.cuh": (PROGRAM, PAIRS),
    "kernels/linear_attention/linear_attention_values.cuh": (GENERIC,),
    "kernels/linear_attention/linear_attention_warp_specialized.cuh": (PAIRS,),
    "kernels/linear_attention/linear_attention_step.cuh": (STEP,),
    "kernels/linear_attention/linear_attention_decay_gradient.cuh": (DECAY_GRADIENT,),
}
LEFT_OUT = {
    "kernels/linear_attention/linear_attention_generic_tile.cuh": ("blocks_per_multiprocessor",),
    "kernels/linear_attention/linear_attention_tile.cuh": ("blocks_per_multiprocessor", "stages"),
    "kernels/linear_attention/linear_attention_step.cuh": ("min_blocks",),
}
HOST_SIDE = (
    "kernels/linear_attention/linear_attention_decay_gradient_launch.cuh",
    "kernels/linear_attention/linear_attention_generic_launch.cuh",
    "kernels/linear_attention/linear_attention_launch.cuh",
    "kernels/linear_attention/linear_attention_step_launch.cuh",
    "kernels/linear_attention/linear_attention_stream_launch.cuh",
)

STEP_KERNEL = "linear_attention_step.cuh"
GRADIENT = "linear_attention_decay_gradient.cuh"
OF_GENERIC, OF_DECAYS = "linear_attention_generic.cuh", "linear_attention_decays.cuh"
GENERIC_BLOCK = "linear_attention_generic_block"
OF_TILES = "64 / 15 is 4 too, and 32 / 15 is 2"

LISTED: tuple[Listed, ...] = (
    Listed(
        "linear_attention_state.cuh",
        "for_each_element",
        "term 4/10 double",
        "of the pair's number it matters whether it is odd: tile::across",
    ),
    Listed(
        "linear_attention_anchors.cuh",
        "places_of_anchors::of",
        "guard never",
        "places that nobody reads where no anchors are wanted",
    ),
    Listed(
        "linear_attention_state.cuh",
        "store_state",
        "limit 1/2 .*",
        "the first thread is one of them, and all have the same",
    ),
    Listed(
        "linear_attention_state.cuh",
        "load_state",
        "branch 1/2 more",
        "any of the state's numbers may be loaded where nothing is stored",
    ),
    Listed(OF_GENERIC, f"{GENERIC_BLOCK}::compute", "limit more", "any thread may"),
    Listed(OF_GENERIC, f"{GENERIC_BLOCK}::compute", "term 1/4 less", "it waits for more"),
    Listed(OF_GENERIC, f"{GENERIC_BLOCK}::leave_dots", "term less", "it waits for more"),
    Listed(OF_GENERIC, f"{GENERIC_BLOCK}::attend", "term 3/6 less", OF_TILES),
    Listed(OF_GENERIC, f"{GENERIC_BLOCK}::store_output", "term 2/7 less", OF_TILES),
    Listed(
        OF_GENERIC,
        f"{GENERIC_BLOCK}::store_output",
        "argument 4/4 (less|more)",
        "pairs 0 and 1 have the same columns",
    ),
    Listed("linear_attention_generic_tile.cuh", "generic_output_shared", "length less", OF_TILES),
    Listed(
        OF_GENERIC,
        f"{GENERIC_BLOCK}::attend",
        "guard 5/7 always",
        "sums that store_dots does not store where nobody wants them",
    ),
    Listed(
        "linear_attention_generic_tile.cuh",
        "linear_attention_generic_config",
        "start 4/4 more",
        TUNING,
    ),
    Listed("linear_attention_generic_copies.cuh", "chunk_copies", "term more", "17 / 2 is 8 too"),
    Listed(OF_DECAYS, "gates_of_lane::sum", "bound 1/2 shifted", "no lane has one 32 before it"),
    Listed(OF_DECAYS, "leave_decays", "limit 1/3 more", "all lanes have the total"),
    Listed(
        "linear_attention_part_states.cuh",
        "part_of_sequence::make_decays",
        "limit 2/2 more",
        "all lanes have the sum",
    ),
    Listed(
        "linear_attention_consumer.cuh",
        "linear_attention_consumer::store_own_scores",
        "term 5/11 less",
        "64 / 15 is 4 too",
    ),
    Listed(
        "linear_attention_consumer.cuh",
        "linear_attention_consumer::store_own_scores",
        "term 1/11 (more|double)",
        "of the first consumer alone, whose warps are 0 to 3",
    ),
    Listed(STEP_KERNEL, "linear_attention_step_config", "start double", TUNING),
    # Equal numbers, whichever is taken.
    Listed(STEP_KERNEL, "step_part::of", "bound 1/3 shifted", SAME),
    Listed(STEP_KERNEL, "step_part::of", "limit less|start more", "all that is below 0 is padding"),
    Listed(STEP_KERNEL, "step_runs::update", "branch more", "of a row that is not there"),
    Listed(STEP_KERNEL, "store_output", "term more", "24 leads to the other rows, as 16 does"),
    # Loops and what they do past an end.
    Listed(STEP_KERNEL, "step_runs::load", "bound 1/2 shifted", NOT_BOUNDED),
    Listed(STEP_KERNEL, "step_token::load", "bound 1/3 shifted", NOT_BOUNDED),
    Listed(STEP_KERNEL, "step_token::store", "bound 1/3 shifted", NOT_BOUNDED),
    Listed(
        STEP_KERNEL,
        "step_token::store",
        "guard 1/2 never|bound (2|3)/3 shifted",
        "there is room, and nobody reads it",
    ),
    Listed(STEP_KERNEL, "linear_attention_step", "bound 5/5 shifted", "a pass more, of no rows"),
)
