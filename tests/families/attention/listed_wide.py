"""Mutants that no run can notice: heads above 128 in attention's backward, and dq's kernel."""

from tests.mutation.listing import ANY_BARRIER, Listed

WIDE_CONSUMER, DQ = "attention_backward_wide_consumer.cuh", "attention_backward_dq.cuh"
ANOTHER = "another thread of the same warpgroup does it"
NOT_READ = "nobody reads it there"

LISTED: tuple[Listed, ...] = (
    Listed(
        WIDE_CONSUMER,
        "attention_backward_wide_consumer",
        "equality negated|limit less",
        "either consumer may have either part",
    ),
    Listed(WIDE_CONSUMER, "attention_backward_wide_consumer", "start more", ANY_BARRIER),
    Listed(WIDE_CONSUMER, "attention_backward_wide_consumer::step", "limit ./2 more", ANOTHER),
    Listed(
        WIDE_CONSUMER,
        "attention_backward_wide_consumer::store_tile",
        "barrier number ./2 .*|term 2/2 .*",
        ANY_BARRIER,
    ),
    Listed(
        WIDE_CONSUMER,
        "attention_backward_wide_consumer::store_tile",
        "limit 1/2 (less|more)|limit 2/2 more",
        ANOTHER,
    ),
    Listed(
        WIDE_CONSUMER,
        "attention_backward_wide_consumer::store_tile",
        "index 3/3 more",
        "the first stage of q is free, too: the producer goes on when all has been stored",
    ),
    Listed(DQ, "attention_backward_dq_config", "term 1/3 (less|more)", "nobody asks for halves"),
    Listed(
        DQ,
        "attention_backward_dq_config",
        "limit (1|2)/4 (less|more)|branch (4|5|7)/7 less",
        "with other blocks of keys, or fewer stages, it is right as well, and slower",
    ),
    Listed(DQ, "attention_backward_row_tile", "start more", "no tile has such a number either"),
    Listed(
        DQ,
        "attention_backward_dq_producer::produce",
        "guard always|argument 1/2 less|bound shifted",
        "a tile of no rows, of which nothing is stored",
    ),
    Listed(DQ, "attention_backward_dq_producer::produce", "argument 2/2 .*", NOT_READ),
    Listed(DQ, "attention_backward_dq_consumer", "start 1/2 more", ANY_BARRIER),
    Listed(DQ, "attention_backward_dq_consumer", "start 2/2 more", "that is no stage, either"),
    Listed(
        DQ,
        "attention_backward_dq_consumer::consume",
        "step 3/6 deleted",
        "the stage is given back when the next tile is stored, which is later",
    ),
    Listed(
        DQ,
        "attention_backward_dq_consumer::signals",
        "limit 1/2 (less|more)|limit 2/2 more",
        ANOTHER,
    ),
    Listed(
        DQ,
        "attention_backward_dq_consumer::softmax",
        "guard always|bound ./3 shifted|term less|limit (more|double)",
        "where nothing is to be hidden, what hides it looks once more",
    ),
    Listed(
        DQ,
        "attention_backward_dq_consumer::store_tile",
        "barrier 1/2 (deleted|weaker)",
        "each warp stores over those rows that its own part of the product has read",
    ),
    Listed(DQ, "attention_backward_dq", "limit (1|3)/3 more", ANOTHER),
    Listed(
        DQ,
        "attention_backward_dq",
        "registers 2/2 deleted",
        "how many registers ptxas may use; tier 4 would see it spill",
    ),
    Listed(
        "attention_backward_tile.cuh",
        "attention_backward_exchange::load",
        "term 2/3 double",
        "the first thread of the second consumer is number 256",
    ),
)
