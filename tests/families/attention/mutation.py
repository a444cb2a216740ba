"""Mutation of attention's kernel: targets, programs, and mutants that no run can notice."""

from tests.families.attention import listed_rows, listed_wide
from tests.mutation.listing import SAME, Listed
from tests.mutation.program import Program

PROGRAMS = tuple(Program("attention", "attention", (f"CONFIGS={which}",)) for which in (0, 2, 1))
GENERIC = tuple(Program("attention", "attention_generic", (f"CONFIGS={i}",)) for i in (0, 1))
BLOCKS = Program("attention", "attention_blocks")
BACKWARD = tuple(Program("attention", "attention_backward", (f"CONFIGS={i}",)) for i in range(4))
NARROW, CAPPED, WIDE, DQ_APART = BACKWARD
GENERIC_BACKWARD = tuple(
    Program("attention", "attention_backward_generic", (f"CONFIGS={i}",), forms=(f"SHARED_KB={n}",))
    for n in (227, 99, 163)
    for i in range(3)
    if n != 163 or i == 2  # others have the forms of 227
)
# Of head dimension 256, where warps halve the work.
HALVES = (GENERIC_BACKWARD[2], GENERIC_BACKWARD[6])
TARGETS = {
    "kernels/attention/attention_consumer.cuh": PROGRAMS,
    "kernels/attention/attention_forward.cuh": PROGRAMS,
    "kernels/attention/attention_generic.cuh": GENERIC,
    "kernels/attention/attention_generic_tile.cuh": (*GENERIC, *GENERIC_BACKWARD),
    "kernels/attention/attention_producer.cuh": PROGRAMS,
    "kernels/attention/attention_softmax.cuh": PROGRAMS,
    "kernels/attention/attention_tile.cuh": (BLOCKS, *PROGRAMS),
    "kernels/attention/attention_walk.cuh": PROGRAMS,
    "kernels/attention/attention_backward.cuh": BACKWARD,
    "kernels/attention/attention_backward_generic.cuh": GENERIC_BACKWARD[:6],
    "kernels/attention/attention_backward_generic_halves.cuh": HALVES,
    "kernels/attention/attention_backward_generic_products.cuh": GENERIC_BACKWARD,
    "kernels/attention/attention_backward_consumer.cuh": (NARROW, CAPPED, DQ_APART),
    "kernels/attention/attention_backward_producer.cuh": BACKWARD,
    "kernels/attention/attention_backward_bounds.cuh": (NARROW, CAPPED),
    "kernels/attention/attention_backward_rows.cuh": BACKWARD,
    "kernels/attention/attention_backward_tile.cuh": BACKWARD,
    "kernels/attention/attention_backward_add_dq.cuh": (NARROW, CAPPED),
    "kernels/attention/attention_backward_sequences.cuh": BACKWARD,
    "kernels/attention/attention_backward_softmax.cuh": (*HALVES, *BACKWARD),
    "kernels/attention/attention_backward_wide_consumer.cuh": (WIDE,),
    "kernels/attention/attention_backward_dq.cuh": (WIDE, DQ_APART),
    "kernels/attention/attention_softcap.cuh": (CAPPED, *PROGRAMS),
}
LEFT_OUT = {}
HOST_SIDE = (
    "kernels/attention/attention_configs.cuh",
    "kernels/attention/attention_launch.cuh",
    "kernels/attention/attention_generic_launch.cuh",
    "kernels/attention/attention_backward_launch.cuh",
    "kernels/attention/attention_backward_generic_launch.cuh",
    "kernels/attention/attention_backward_rows_launch.cuh",
)

TILE, PRODUCER, WALK = "attention_tile.cuh", "attention_producer.cuh", "attention_walk.cuh"
CONSUMER, ATTENTION = "attention_consumer.cuh", "attention_forward.cuh"
OF_GENERIC, OF_GENERIC_TILE = "attention_generic.cuh", "attention_generic_tile.cuh"
OF_BACKWARD = "attention_backward_generic.cuh"
OF_PRODUCTS = "attention_backward_generic_products.cuh"
SOFTMAX, SOFTCAP = "attention_softmax.cuh", "attention_softcap.cuh"
BACKWARD_CONSUMER = "attention_backward_consumer.cuh"
SEQUENCES = "attention_backward_sequences.cuh"
ONE_SEQUENCE = "where sequences are not packed, nobody looks at its number"
ANOTHER = "another thread of the same warpgroup does it"
SHARER = "another lane of the same row has the same"
WHOLE = "nobody asks a whole block where it begins"
ALL_FINITE = listed_rows.ALL_FINITE
SPARE = "a tile more, which nobody asks for"
ONLINE = "with the online maximum it is right as well, and slower"
NOT_READ = "nobody reads it there"
FENCED, CURSOR = "the second store's fence is behind both", "a single stage has the same number"
NO_COLUMN = "row() does not look at the column"
NO_KEYS = "both are no keys"
SUM_AGAIN = "a row's sum, which stands there once more, or zeros"

LISTED: tuple[Listed, ...] = (
    Listed(
        OF_GENERIC_TILE,
        "load_all_rows",
        "bound shifted",
        "NaN behind a head alone shows it: test_what_lies_behind_a_heads_columns_is_not_read",
    ),
    Listed(
        "attention/attention_backward_consumer.cuh",
        "attention_backward_consumer::step",
        "limit more",
        "any lane may, for all have met",
    ),
    Listed(
        "attention/attention_backward_bounds.cuh",
        "add_keys",
        "branch [12]/2 less",
        "there is no key before the first either",
    ),
    Listed(TILE, "attention_item", "start more", "no tile has such a number either"),
    Listed(TILE, "", "start more", "a name for what is no number"),
    # One thread of a group, whichever it is, and those that have nothing to wait for.
    Listed(
        CONSUMER, "attention_consumer::signals", "limit 1/2 (less|more)|limit 2/2 more", ANOTHER
    ),
    Listed(CONSUMER, "attention_consumer::check_overflow", "limit 2/2 more", ANOTHER),
    Listed(ATTENTION, "attention_forward", "limit 1/3 more", ANOTHER),
    Listed(ATTENTION, "attention_forward", "limit 3/3 more", ANOTHER),
    Listed(
        CONSUMER,
        "attention_consumer::consume",
        "guard 8/8 always",
        "a thread that has stored nothing waits for nothing",
    ),
    Listed(
        CONSUMER,
        "attention_consumer::store_rows",
        "guard 1/3 always",
        "a thread that has stored nothing waits for nothing",
    ),
    Listed(
        CONSUMER,
        "attention_consumer::consume",
        "barrier 2/2 deleted|barrier number 3/3 more",
        "the block ends: nobody wants the last turn",
    ),
    Listed(
        ATTENTION,
        "attention_forward",
        "guard 2/5 always|bound (1|2)/3 shifted",
        "of a head that fills its tile, no column is set",
    ),
    Listed(
        ATTENTION,
        "attention_forward",
        "registers 2/2 deleted",
        "how many registers ptxas may use; tier 4 would see it spill",
    ),
    # What makes no difference to the numbers.
    Listed(TILE, "key_blocks::of", "bound 2/8 shifted", SAME),
    Listed(TILE, "key_blocks::of", "bound 1/8 shifted", SAME),
    Listed(TILE, "key_blocks::of", "branch (1|2)/2 less", "its block is the first one too"),
    Listed(TILE, "key_blocks::of", "bound 4/8 shifted", "both are 0 there"),
    Listed(TILE, "key_blocks::least", "bound shifted", SAME),
    Listed(TILE, "sequence_ends::at", "bound (1|2)/2 shifted", SAME),
    Listed(CONSUMER, "attention_consumer::consume", "start (less|more)", NOT_READ),
    Listed(CONSUMER, "attention_consumer::consume", "limit 4/6 less", NOT_READ),
    Listed(CONSUMER, "attention_consumer::consume", "branch (less|more)", NOT_READ),
    Listed(CONSUMER, "attention_consumer::consume", "guard 3/8 always", ONLINE),
    Listed(CONSUMER, "attention_consumer::consume", "bound 1/8 shifted", ONLINE),
    Listed(CONSUMER, "attention_consumer::consume", "limit 1/6 less", ONLINE),
    Listed(CONSUMER, "attention_consumer::attend", "bound 5/7 shifted", ONLINE),
    Listed(
        CONSUMER,
        "attention_consumer::skip_block",
        "wait 1/2 deleted",
        "the block's values, asked for later, are waited for; until then the stage is this block's",
    ),
    Listed(
        CONSUMER,
        "attention_consumer",
        "equality negated|limit (less|more)",
        "either way is right: which is faster, is measured",
    ),
    Listed(CONSUMER, "attention_consumer::online_step", "argument (less|more)", WHOLE),
    Listed(CONSUMER, "attention_consumer::fixed_step", "argument (less|more)", WHOLE),
    Listed(
        CONSUMER,
        "attention_consumer::attend",
        "guard 1/4 never",
        "the whole block is right as well, and slower",
    ),
    Listed(
        BACKWARD_CONSUMER,
        "attention_backward_consumer::dq_columns",
        "limit (less|more)",
        "columns that are not there are zeros, which add nothing, and take time",
    ),
    Listed(
        SOFTMAX, "attention_softmax::rescale_if_large", "bound shifted", "either is small enough"
    ),
    Listed(SOFTMAX, "attention_softmax::overflowed", "bound 2/3 shifted", "either is small enough"),
    Listed(SOFTMAX, "attention_softmax::overflowed", "bound 3/3 shifted", "either is near enough"),
    Listed(SOFTMAX, "attention_softmax::fix_reference", "bound shifted", "either is near enough"),
    Listed(SOFTMAX, "attention_softmax::take_far_rows", "bound shifted", "either is near enough"),
    Listed(SOFTMAX, "attention_softmax::any_is_far", "bound 2/2 shifted", "either is near enough"),
    Listed(
        SOFTMAX,
        "attention_softmax::raise",
        "guard always",
        "rows that are near have the same bits either way",
    ),
    Listed(SOFTMAX, "attention_softmax::count_sinks", "bound shifted", "either is right"),
    Listed(SOFTCAP, "accurate_tanh", "bound shifted", "either is right"),
    Listed(
        SOFTMAX,
        "attention_softmax::rescale_if_large",
        "guard always",
        "the factor of a row that is not large is 1",
    ),
    Listed(
        SOFTMAX,
        "attention_softmax::rescale_if_large",
        "guard never",
        "a row that is not rescaled is right, or overflows and is done again",
    ),
    Listed(
        SOFTMAX, "attention_softmax::rebase", "bound 2/2 shifted", "it has overflowed either way"
    ),
    Listed(SOFTMAX, "attention_softmax::overflowed", "term 2/6 .*", SUM_AGAIN),
    Listed(SOFTMAX, "attention_softmax::overflowed", "bound 1/3 shifted", SUM_AGAIN),
    Listed(
        SOFTMAX,
        "attention_softmax::overflowed",
        "branch 2/4 more",
        "rows that have not overflowed are done again too",
    ),
    Listed(
        CONSUMER,
        "attention_consumer::store_rows",
        "bound 3/4 shifted|term 4/9 less",
        "o has no column there",
    ),
    Listed(CONSUMER, "attention_consumer::store_rows", "argument (less|more)", NO_COLUMN),
    Listed(CONSUMER, "attention_consumer::store_lse", "argument 2/2 (less|more)", NO_COLUMN),
    Listed(CONSUMER, "attention_consumer::store_lse", "limit 1/4 less", SHARER),
    Listed(CONSUMER, "attention_consumer::store_lse", "equality 2/3 negated", SHARER),
    Listed(CONSUMER, "attention_consumer::store_lse", "limit 2/4 more", SHARER),
    Listed(
        CONSUMER,
        "attention_consumer::store_tile",
        "barrier 1/2 (deleted|weaker)",
        "each warp stores over those queries that its own part of the product has read",
    ),
    Listed(
        PRODUCER,
        "attention_producer::choose",
        "argument (1|2|3|4|5|6|7)/8 (less|more)",
        "of an item that is the end, nothing else is read",
    ),
    Listed(TILE, "attention_key_ranges::of", "argument 1/2 less", NO_KEYS),
    Listed(WALK, "packed_walk::valid", "bound shifted|term more", "a sequence more, of no rows"),
    Listed(WALK, "packed_walk::tile", "branch less", NO_KEYS),
    Listed(WALK, "packed_walk::row_tiles", "term less", "one tile more, which has no rows"),
    Listed(
        PRODUCER,
        "attention_producer::choose",
        "branch 1/2 less",
        "the producer waits for the flags before it goes on: right, and slower",
    ),
    Listed(ATTENTION, "attention_forward", "term 2/3 less", SAME),
    Listed(
        CONSUMER,
        "attention_consumer::store_rows",
        "start less|bound 1/4 shifted|limit 1/2 more",
        "no row has such a bit",
    ),
    Listed(
        CONSUMER,
        "attention_consumer::store_lse",
        "start less|bound 1/2 shifted|limit 3/4 more",
        "no row has such a bit",
    ),
    *(
        Listed(SEQUENCES, f"attention_sequences::{name}", "branch (less|more)", ONE_SEQUENCE)
        for name in ("of_row_block", "of_key_block")
    ),
    Listed(SEQUENCES, "attention_backward_starts", "start 2/7 less", "no number is less than 0"),
    Listed(SEQUENCES, "attention_backward_starts", "start 1/7 less", "any count of a lane will do"),
    Listed(
        SEQUENCES,
        "attention_backward_starts",
        "guard (1|5)/5 always|equality (2|4)/4 negated",
        "each lane of the warp stores the same there",
    ),
    Listed(WALK, "packed_walk::enter", "branch less", "fewer keys than none are none"),
    Listed(OF_GENERIC, "attention_generic_config", "term (less|more)", "nobody asks for halves"),
    Listed(
        OF_GENERIC, "attention_generic_block::weigh", "subscript 6/10 next", "a static function"
    ),
    Listed(
        OF_GENERIC,
        "attention_generic_block::compute",
        "bound 2/3 shifted",
        "a block that the warp's rows do not see is hidden, and changes nothing",
    ),
    Listed(OF_GENERIC, "attention_generic_block", "length less", "there nobody reads an element"),
    Listed(OF_GENERIC, "attention_generic_block::attend", "bound 2/5 shifted", ONLINE),
    Listed(
        OF_GENERIC,
        "attention_generic_block::finish",
        "barrier 1/2 deleted",
        "ldmatrix reads for all lanes at once",
    ),
    Listed(OF_GENERIC, "attention_generic_block::store_lse", "argument 2/2 .*", NO_COLUMN),
    Listed(
        OF_GENERIC,
        "attention_generic_block::store_lse",
        "limit 1/3 less|equality 2/2 negated|limit 2/3 more",
        SHARER,
    ),
    Listed(
        OF_PRODUCTS,
        "attention_backward_generic_config",
        "bound 1/2 shifted|limit 1/2 less",
        "through shared memory p and ds come out the same, and slower",
    ),
    Listed(
        OF_PRODUCTS,
        "attention_backward_generic_config",
        "bound 2/2 shifted|limit 2/2 (less|more)|branch (2|3)/3 double",
        "more or fewer columns of dq at a time",
    ),
    Listed(
        "attention_backward_add_dq.cuh",
        "attention_dq_rows::is_checked",
        "bound ./2 shifted",
        "no factor is 0",
    ),
    *(
        Listed("attention_backward_tile.cuh", f"query_blocks::{name}", "bound shifted", SAME)
        for name in ("least", "most")
    ),
    Listed(
        "attention_backward_tile.cuh",
        "attention_backward_config",
        "limit 2/3 (less|more)",
        "whether consumers share their code changes no number",
    ),
    Listed(OF_PRODUCTS, "attention_backward_generic_shared", "subscript 1/2 next", SPARE),
    Listed(
        OF_BACKWARD,
        "attention_backward_generic_block::step",
        "guard always",
        "nobody reads a dq that was not wanted: it costs a product",
    ),
    Listed(
        OF_PRODUCTS,
        "attention_backward_generic_products::dq_pairs_of",
        "term (2|3|5)/6 less",
        "of multiples of 32 below 256, 64 or 63 makes no difference there",
    ),
    Listed(
        OF_BACKWARD,
        "attention_backward_generic_block::step",
        "limit (3|4)/4 less",
        "where keys are shared, q and do have as many stages",
    ),
    Listed(OF_PRODUCTS, "attention_backward_generic_products::add_dq", "guard always", ALL_FINITE),
    Listed(
        BACKWARD_CONSUMER,
        "attention_backward_consumer",
        "start 2/3 less",
        "the first block sets it before it is read",
    ),
    Listed(
        BACKWARD_CONSUMER,
        "attention_backward_consumer::consume",
        "step 2/11 deleted",
        "the stage is given back behind the tile's last step, which is later",
    ),
    Listed(
        BACKWARD_CONSUMER,
        "attention_backward_consumer::store_tile",
        "barrier 2/3 (deleted|weaker)",
        "each warp stores over those rows that its own part of the products has read",
    ),
    Listed(BACKWARD_CONSUMER, "attention_backward_consumer::store_tile", "store 1/2 un.*", FENCED),
    Listed(BACKWARD_CONSUMER, "attention_backward_consumer::kv_stage", "limit less", CURSOR),
    Listed(BACKWARD_CONSUMER, "attention_backward_consumer::show_ds", "limit more", ANOTHER),
    Listed(
        "attention_backward_softmax.cuh",
        "attention_backward_softmax::mask",
        "guard never|bound ./3 shifted|limit less|term less",
        "where nothing is to be hidden, what hides it looks once more",
    ),
    Listed(
        OF_BACKWARD,
        "attention_backward_generic",
        "guard never|bound shifted",
        "a tile of no keys, which adds zeros up and stores nothing",
    ),
    *listed_rows.LISTED,
    *listed_wide.LISTED,
)
