"""Mutation of hedgehog_attention's kernel: targets, programs, mutants that no run can notice."""

from tests.mutation.listing import NOT_BOUNDED, SAME, TUNING, Listed
from tests.mutation.program import Program

PROGRAM, GENERIC = (
    Program("hedgehog_attention", "hedgehog_attention", (f"GENERIC={i}",)) for i in (0, 1)
)
BACKWARD, GENERIC_BACKWARD = (
    Program("hedgehog_attention", "hedgehog_attention_backward", (f"GENERIC={i}",)) for i in (0, 1)
)
STEP = Program("hedgehog_attention", "hedgehog_attention_step")
_FOLDER = "kernels/hedgehog_attention/hedgehog_attention"
TARGETS = {
    f"{_FOLDER}_forward.cuh": (PROGRAM,),
    f"{_FOLDER}_consumer.cuh": (PROGRAM,),
    f"{_FOLDER}_features.cuh": (PROGRAM, BACKWARD),
    f"{_FOLDER}_tile.cuh": (PROGRAM, GENERIC),
    f"{_FOLDER}_generic.cuh": (GENERIC,),
    f"{_FOLDER}_generic_features.cuh": (GENERIC,),
    f"{_FOLDER}_generic_gradient.cuh": (GENERIC_BACKWARD,),
    f"{_FOLDER}_generic_gradient_tile.cuh": (GENERIC_BACKWARD,),
    f"{_FOLDER}_generic_tile.cuh": (GENERIC, GENERIC_BACKWARD),
    f"{_FOLDER}_gradient.cuh": (BACKWARD,),
    f"{_FOLDER}_gradient_base.cuh": (BACKWARD,),
    f"{_FOLDER}_gradient_rows.cuh": (BACKWARD, GENERIC_BACKWARD),
    f"{_FOLDER}_gradient_tile.cuh": (BACKWARD, GENERIC_BACKWARD),
    f"{_FOLDER}_gradient_elements.cuh": (BACKWARD, GENERIC_BACKWARD),
    f"{_FOLDER}_gradient_features.cuh": (BACKWARD,),
    f"{_FOLDER}_gradient_parts.cuh": (BACKWARD,),
    f"{_FOLDER}_gradient_window.cuh": (BACKWARD,),
    f"{_FOLDER}_state_passing.cuh": (PROGRAM, BACKWARD),
    f"{_FOLDER}_sums.cuh": (BACKWARD, GENERIC_BACKWARD),
    f"{_FOLDER}_step.cuh": (STEP,),
    f"{_FOLDER}_step_vectors.cuh": (STEP,),
}
LEFT_OUT: dict[str, tuple[str, ...]] = {
    f"{_FOLDER}_gradient_tile.cuh": ("blocks_per_multiprocessor",),
}
HOST_SIDE = (
    f"{_FOLDER}_arguments.cuh",
    f"{_FOLDER}_generic_launch.cuh",
    f"{_FOLDER}_launch.cuh",
    f"{_FOLDER}_backward_launch.cuh",
    f"{_FOLDER}_backward_passes.cuh",
    f"{_FOLDER}_generic_backward_launch.cuh",
    f"{_FOLDER}_step_launch.cuh",
)

_PASSING = f"{_FOLDER}_state_passing.cuh"
_VECTORS = f"{_FOLDER}_step_vectors.cuh"
_STEP = "hedgehog_vectors_step"
BUTTERFLY = "a step of 3 · lanes takes a lane to every other one, too"
ANY_WARP = "any warp may"
ALL_LANES = "all lanes have the sum"
FOUR_BYTES = "of float32, which the program has, all is as before"

SIGNALS = (
    "limit 1/2 (less|more)",
    "129 is a multiple of 129: one thread of each warpgroup, as before; and what thread 127"
    " stores besides thread 0 is the same tile, of which it waits for its own copy",
)

LISTED: tuple[Listed, ...] = (
    Listed(f"{_FOLDER}_generic_tile.cuh", "", "index 1/2 more", "a map more, which is none"),
    Listed(
        _VECTORS,
        "hedgehog_vectors_config",
        "start .*|equality negated|limit .*|branch .*|bound shifted",
        TUNING,
    ),
    Listed(
        f"{_FOLDER}_generic.cuh",
        "hedgehog_generic_block::for_each_element",
        "term 1/8 double",
        "where a tile's elements are does not depend on its rows",
    ),
    Listed(
        f"{_FOLDER}_generic.cuh",
        "hedgehog_generic_block::for_each_element",
        "term 4/8 double",
        "of the pair's number it matters whether it is odd: tile::across",
    ),
    Listed(
        f"{_FOLDER}_gradient_elements.cuh",
        "gradient_elements",
        "start 2/2 (less|more|double)",
        "a scale that products are divided by again: roundings alone differ",
    ),
    Listed(
        f"{_FOLDER}_sums.cuh",
        "hedgehog_attention_finish",
        "limit 2/2 more|guard 3/5 always|equality 2/4 negated",
        "any thread may, for all have the sum",
    ),
    Listed(f"{_FOLDER}_generic_tile.cuh", "request_rows", "term 1/2 more", "17 / 2 is 8"),
    Listed(
        f"{_FOLDER}_generic_tile.cuh",
        "store_rows",
        "term 7/18 less",
        "128 / 15 is 8, and 64 / 15 4",
    ),
    Listed(_VECTORS, "hedgehog_vectors_config", "term .*", FOUR_BYTES),
    Listed(_VECTORS, f"{_STEP}::run", "limit 2/2 (less|more)", ANY_WARP),
    Listed(_VECTORS, f"{_STEP}::add_rows", "term more", BUTTERFLY),
    Listed(_VECTORS, f"{_STEP}::exchange", "start 1/2 less", "no row of that number is a place"),
    Listed(_VECTORS, f"{_STEP}::exchange", "bound 1/3 shifted", NOT_BOUNDED),
    Listed(_VECTORS, f"{_STEP}::multiply_by_maps", "bound 2/4 shifted", NOT_BOUNDED),
    Listed(
        f"{_FOLDER}_step.cuh",
        "hedgehog_step::multiply_by_maps",
        "start 1/2 (less|more)",
        "all logits are off by the same, and their softmax is what it was",
    ),
    Listed(f"{_FOLDER}_step.cuh", "hedgehog_step::run", "limit more", ALL_LANES),
    Listed(_VECTORS, f"{_STEP}::score", "bound 1/5 shifted", NOT_BOUNDED),
    Listed(_VECTORS, f"{_STEP}::score", "bound 5/5 shifted", "a score that nobody reads"),
    Listed(_VECTORS, f"{_STEP}::soften_features", "term (less|more)", "the quotient is the same"),
    Listed(_VECTORS, f"{_STEP}::soften_features", "bound 3/4 shifted", NOT_BOUNDED),
    Listed(_VECTORS, f"{_STEP}::soften_scores", "limit more", ALL_LANES),
    Listed(_VECTORS, f"{_STEP}::add_up_window", "bound 1/3 shifted", NOT_BOUNDED),
    Listed(_VECTORS, f"{_STEP}::load_state", "bound shifted", NOT_BOUNDED),
    Listed(_VECTORS, f"{_STEP}::update_state", "bound 3/6 shifted", "a part without rows"),
    Listed(
        _VECTORS,
        f"{_STEP}::update_state",
        "guard 1/2 always|bound 4/6 shifted|limit (less|more)",
        "what has come is loaded again, and is the same",
    ),
    Listed(_VECTORS, f"{_STEP}::update_sum", "limit 2/2 more", ALL_LANES),
    Listed(
        f"{_FOLDER}_step.cuh",
        "hedgehog_step::score",
        "start (less|more)",
        "all scores are off by the same, and their softmax is what it was",
    ),
    Listed(
        f"{_FOLDER}_generic.cuh",
        "hedgehog_generic_block::score",
        "limit 6/6 more",
        "another lane of the same row has the same",
    ),
    Listed(
        f"{_FOLDER}_generic_gradient.cuh",
        "generic_gradient_walk::consume",
        "limit 1/2 less",
        "of no blocks nothing is stored",
    ),
    Listed(
        f"{_FOLDER}_generic_gradient.cuh",
        "generic_gradient_walk::request_state",
        "argument (less|more)",
        "the first two blocks have no state in front: zeros, whether they are read or not",
    ),
    Listed(f"{_FOLDER}_gradient_base.cuh", "gradient_base::signals", *SIGNALS),
    Listed(
        f"{_FOLDER}_gradient_base.cuh",
        "gradient_base::brings",
        "equality negated|limit more",
        "a thread of the other warpgroup of its kind may, which meets the same ones",
    ),
    Listed(f"{_FOLDER}_consumer.cuh", "hedgehog_consumer::signals", *SIGNALS),
    Listed(
        f"{_FOLDER}_consumer.cuh",
        "hedgehog_consumer::signals",
        "limit 2/2 more|equality negated",
        "any thread of the warpgroup may, or several: each stores the same tile, and waits for it",
    ),
    Listed(
        f"{_FOLDER}_consumer.cuh",
        "hedgehog_consumer::publish_state",
        "store unfenced",
        "features or outputs are stored next, with a fence, before the warpgroups meet",
    ),
    Listed(
        f"{_FOLDER}_gradient_window.cuh",
        "window_walk::consume",
        "guard 3/3 always",
        "who has asked for no copy waits for none",
    ),
    Listed(
        f"{_FOLDER}_gradient_window.cuh",
        "window_walk::differentiate",
        "guard [23]/4 always",
        "who has asked for no copy waits for none",
    ),
    Listed(
        f"{_FOLDER}_gradient_window.cuh",
        "window_walk::differentiate",
        "barrier number 1/2 more",
        "the barrier of features' warpgroups, at which none of them is then",
    ),
    Listed(
        f"{_FOLDER}_gradient_features.cuh",
        "feature_walk::differentiate",
        "barrier number 2/2 less",
        "the barrier of the window's warpgroups, at which none of them is then",
    ),
    Listed(
        f"{_FOLDER}_gradient_features.cuh",
        "feature_walk::find_features",
        "store unfenced",
        "the logits' gradient is stored next, with a fence, before the others read either",
    ),
    Listed(
        f"{_FOLDER}_generic.cuh",
        "hedgehog_generic_block::request_queries",
        "argument less",
        "no query has a number below 0",
    ),
    Listed(
        f"{_FOLDER}_tile.cuh",
        "block_stream::of",
        "term 2/4 less",
        "of a block behind the sequence nothing is stored, and nothing enters",
    ),
    Listed(f"{_FOLDER}_tile.cuh", "block_stream::of", "bound [12]/2 shifted", SAME),
    Listed(
        f"{_FOLDER}_tile.cuh",
        "hedgehog_attention_forward_shared",
        "length [14]/6 less",
        "without outputs there is neither a query nor a state to multiply by",
    ),
    Listed(f"{_FOLDER}_gradient_tile.cuh", "block_run::of", "bound shifted", SAME),
    Listed(
        f"{_FOLDER}_consumer.cuh",
        "hedgehog_consumer::load_state",
        "store unfenced",
        "nothing goes to shared memory",
    ),
    Listed(
        f"{_FOLDER}_consumer.cuh",
        "hedgehog_consumer::load_state",
        "equality [23]/3 negated|limit [13]/3 more",
        "either warpgroup's sums may begin with it",
    ),
    Listed(
        f"{_FOLDER}_consumer.cuh",
        "hedgehog_consumer::load_state",
        "limit 2/3 more",
        "of one part the first is the last",
    ),
    Listed(
        f"{_FOLDER}_features.cuh",
        "feature_sums::add",
        "term 2/6 more|term 6/6 double",
        "the same rows in another order, or by the other half's lanes",
    ),
    Listed(
        f"{_FOLDER}_features.cuh",
        "feature_sums::publish",
        "equality negated|limit more",
        "both halves have the sums",
    ),
    Listed(
        f"{_FOLDER}_gradient_base.cuh",
        "gradient_base::load_state",
        "limit more",
        "of one part the first is the last",
    ),
    Listed(
        f"{_FOLDER}_gradient_base.cuh",
        "gradient_base::load_state",
        "guard 1/2 always|bound 4/5 shifted",
        "the other threads' sums are nobody's",
    ),
    Listed(_PASSING, "", "start [12]/2 .*", TUNING),
    Listed(_PASSING, "hedgehog_attention_state_passing", "start 1/4 .*", TUNING),
    Listed(
        _PASSING,
        "hedgehog_attention_state_passing",
        "bound 3/7 shifted",
        "nothing is left to load or to add up",
    ),
    Listed(
        _PASSING,
        "hedgehog_attention_state_passing",
        "guard 4/4 always",
        "slots that nobody reads have their sums, too",
    ),
    Listed(
        f"{_FOLDER}_gradient_parts.cuh",
        "part_state_walk::full",
        "limit 2/2 more|equality negated",
        "of two barriers each stage has one, whichever it is",
    ),
)
