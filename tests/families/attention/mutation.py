"""Mutation of attention's kernel: targets, programs, and mutants that no run can notice."""

from tests.mutation.listing import LONGER, SAME, TUNING, Listed
from tests.mutation.program import Program

PROGRAMS = tuple(Program("attention", "attention", (f"CONFIGS={which}",)) for which in (0, 2, 1))
BLOCKS = Program("attention", "attention_blocks")
BACKWARD = tuple(Program("attention", "attention_backward", (f"CONFIGS={n}",)) for n in (0, 1))
TARGETS = {
    "kernels/attention/attention_backward.cuh": BACKWARD,
    "kernels/attention/attention_backward_consumer.cuh": BACKWARD,
    "kernels/attention/attention_backward_producer.cuh": BACKWARD,
    "kernels/attention/attention_backward_rows.cuh": BACKWARD,
    "kernels/attention/attention_backward_tile.cuh": BACKWARD,
    "kernels/attention/attention_consumer.cuh": PROGRAMS,
    "kernels/attention/attention_forward.cuh": PROGRAMS,
    "kernels/attention/attention_producer.cuh": PROGRAMS,
    "kernels/attention/attention_softmax.cuh": PROGRAMS,
    "kernels/attention/attention_tile.cuh": (BLOCKS, *PROGRAMS),
}
LEFT_OUT = {}
HOST_SIDE = (
    "kernels/attention/attention_backward_launch.cuh",
    "kernels/attention/attention_launch.cuh",
)

TILE, PRODUCER = "attention_tile.cuh", "attention_producer.cuh"
CONSUMER, ATTENTION = "attention_consumer.cuh", "attention_forward.cuh"
SOFTMAX = "attention_softmax.cuh"
ANOTHER = "another thread of the same warpgroup does it"
SHARER = "another lane of the same row has the same"
WHOLE = "nobody asks a whole block where it begins"
ONLINE = "with the online maximum it is right as well, and slower"
NOT_READ = "nobody reads it there"
NO_COLUMN = "row() does not look at the column"
NO_KEYS = "both are no keys"
SUM_AGAIN = "a row's sum, which stands there once more, or zeros"

BACKWARD_ROWS = "attention_backward_rows.cuh"

LISTED: tuple[Listed, ...] = (
    Listed(BACKWARD_ROWS, "if («lane != 0») continue;", "condition: .*false", SHARER),
    Listed(BACKWARD_ROWS, "bounds.add_lanes(«16»)", "constant: 16 → 32", "a lane meets itself"),
    # How the work is cut.
    Listed(
        TILE,
        "int consumers = ",
        "constant: 64 → .*|constant: 3 → 2",
        TUNING,
    ),
    Listed(TILE, "int keys = HeadDim", "comparison: .*", TUNING),
    Listed(TILE, "keys = HeadDim <= «128»", "constant: 128 → 12[79]", TUNING),
    Listed(TILE, "HeadDim <= «192» ?", "constant: 192 → .*", TUNING),
    Listed(TILE, "int large_head_keys = (HeadDim", "comparison: .*", TUNING),
    Listed(TILE, "112 : «80»)", "constant: .*", TUNING),
    Listed(TILE, "(Capped ? «16» :", "constant: .*", TUNING),
    Listed(TILE, "bool fixed_reference = HeadDim", "comparison: .*|constant: 128 → 12[79]", ONLINE),
    Listed(
        TILE,
        "int q_stages = HeadDim",
        "comparison: .*|constant: 128 → 12[79]|constant: 2 → 1",
        TUNING,
    ),
    Listed(TILE, "struct alignas(«16»)", "constant: 16 → 32", TUNING),
    Listed(TILE, "int kEnd = -«1»", "constant: 1 → 2", "no tile has such a number either"),
    Listed(TILE, "int kNotPacked = -«1»", "constant: 1 → 2", "a name for what is no number"),
    Listed(TILE, "attention_item items[«2»]", "constant: 2 → 3", LONGER),
    Listed(TILE, "uint32_t overflowed[«2»]", "constant: 2 → 3", LONGER),
    Listed(TILE, "semaphore overflow_checked[«2»]", "constant: 2 → 3", LONGER),
    # One thread of a group, whichever it is, and those that have nothing to wait for.
    Listed(CONSUMER, "signals() const", "constant: 128 → 12[79]|constant: 0 → 1", ANOTHER),
    Listed(CONSUMER, "arch::lane_id() == «0») {", "constant: 0 → 1", ANOTHER),
    Listed(ATTENTION, "arch::thread_id() == «0») {", "constant: 0 → 1", ANOTHER),
    Listed(ATTENTION, "arch::warp_id() == «0» &&", "constant: 0 → 1", ANOTHER),
    Listed(
        CONSUMER,
        "if («signals()») tma::store_async_",
        "condition: .* → true",
        "a thread that has stored nothing waits for nothing",
    ),
    Listed(
        CONSUMER, "order::finish(w)", "delete: .*", "the block ends: nobody wants the last turn"
    ),
    Listed(
        ATTENTION,
        "raise_registers",
        "delete: .*",
        "how many registers ptxas may use; tier 4 would see it spill",
    ),
    # What makes no difference to the numbers.
    Listed(TILE, "diagonal + steps «>» p.left", "comparison: > → >=", SAME),
    Listed(TILE, "diagonal «>» p.left", "comparison: > → >=", SAME),
    Listed(TILE, "_start = diagonal", "constant: 0 → -1", "its block is the first one too"),
    Listed(TILE, "last_end «<=» first_start", "comparison: <= → <", "both are 0 there"),
    Listed(TILE, "return x «<» y", "comparison: < → <=", SAME),
    Listed(TILE, "return n ", "comparison: .*", SAME),
    Listed(CONSUMER, "uint32_t overflow_bits = «0»", "constant: 0 → -?1", NOT_READ),
    Listed(CONSUMER, "again == «0» ? 0", "constant: 0 → -1", NOT_READ),
    Listed(CONSUMER, "again == 0 ? «0»", "constant: 0 → -?1", NOT_READ),
    Listed(CONSUMER, "mine.end_fixed = mine.first_fixed", "condition: .* → true", ONLINE),
    Listed(CONSUMER, "again «>» 0", "comparison: > → >=", ONLINE),
    Listed(CONSUMER, "again > «0»", "constant: 0 → -1", ONLINE),
    Listed(CONSUMER, "j «>=» blocks.first_fixed", "comparison: >= → >", ONLINE),
    Listed(
        CONSUMER,
        "«shared.k_ring.wait_full(k_at)»;",
        "delete: .*",
        "the block's values, asked for later, are waited for; until then the stage is this block's",
        above="skip_block(Meet meet)",
    ),
    Listed(
        CONSUMER,
        "kFirstIsFree = ",
        "comparison: .*|constant: .*",
        "either way is right: which is faster, is measured",
    ),
    Listed(CONSUMER, "issue_qk_and_pv(s, «0»);", "constant: 0 → -?1", WHOLE),
    Listed(CONSUMER, "fixed_step(s, «0», ", "constant: 0 → -?1", WHOLE),
    Listed(
        CONSUMER,
        "if («Config::fixed_reference && blocks.low_half»)",
        "condition: .* → false",
        "the whole block is right as well, and slower",
    ),
    Listed(SOFTMAX, "x «<=» large", "comparison: <= → <", "either is small enough"),
    Listed(CONSUMER, "sum «<» 0x1p120f", "comparison: < → <=", "either is small enough"),
    Listed(CONSUMER, "reference «<» base::kFar", "comparison: < → <=", "either is near enough"),
    Listed(SOFTMAX, "«<» kFar", "comparison: < → <=", "either is near enough"),
    Listed(SOFTMAX, "largest «>=» kMaybeFar", "comparison: >= → >", "either is near enough"),
    Listed(
        SOFTMAX,
        "if («any_is_far(reference, correction)»)",
        "condition: .* → true",
        "rows that are near have the same bits either way",
    ),
    Listed(SOFTMAX, "y «>» 40.0f", "comparison: > → >=", "either is right"),
    Listed(SOFTMAX, "fabsf(x) «<» 0.45f", "comparison: < → <=", "either is right"),
    Listed(
        SOFTMAX,
        "if («arch::vote_any(is_large",
        "condition: .* → true",
        "the factor of a row that is not large is 1",
    ),
    Listed(
        SOFTMAX,
        "if («arch::vote_any(is_large",
        "condition: .* → false",
        "a row that is not rescaled is right, or overflows and is done again",
    ),
    Listed(SOFTMAX, "x «<» kInf", "comparison: < → <=", "it has overflowed either way"),
    Listed(CONSUMER, "float is_finite[«2»]", "constant: 2 → 3", LONGER),
    Listed(CONSUMER, "head_dim / 2 + «4»", "constant: 4 → [358]", SUM_AGAIN),
    Listed(CONSUMER, "i «<» Config::head_dim / 2 + 4", "comparison: < → <=", SUM_AGAIN),
    Listed(
        CONSUMER,
        "bad.data[0].words[0] != 0.0f ? 1 : «0»",
        "constant: 0 → 1",
        "rows that have not overflowed are done again too",
    ),
    Listed(
        CONSUMER, "for (int i = half", "comparison: < → <=|constant: 4 → 3", "o has no column there"
    ),
    Listed(CONSUMER, "to = p.o_rows.row({", "constant: 0 → -?1", NO_COLUMN),
    Listed(
        CONSUMER, "to = p.lse.row({tile.batch, tile.head, 0, «0»", "constant: 0 → -?1", NO_COLUMN
    ),
    Listed(CONSUMER, "lane % «4» != 0", "constant: 4 → 3", SHARER),
    Listed(CONSUMER, "lane % 4 «!=» 0", "comparison: != → ==", SHARER),
    Listed(CONSUMER, "lane % 4 != «0»", "constant: 0 → 1", SHARER),
    Listed(
        CONSUMER,
        "«warpgroup::sync(kBarrier + w)»;",
        "delete: .*|weaken: .*",
        "each warp stores over those queries that its own part of the product has read",
        above="auto& staging = ",
    ),
    Listed(
        PRODUCER,
        "attention_item::kEnd, 0, 0, 0, 0, 0, 0}, 0}",
        "constant: 0 → -?1",
        "of an item that is the end, nothing else is read",
    ),
    Listed(PRODUCER, "return {m, head, batch, 0, «0»,", "constant: 0 → -?1", NOT_READ),
    Listed(
        PRODUCER,
        "return sequence < p.sequences + 2;",
        "comparison: < → <=|constant: 2 → 3",
        "a sequence more, of no rows",
    ),
    Listed(PRODUCER, "sequence > 0 ? keys : «0»", "constant: 0 → -1", NO_KEYS),
    Listed(
        PRODUCER,
        "Config::rows - «1») / Config::rows",
        "constant: 1 → 0",
        "one tile more, which has no rows",
    ),
    Listed(
        PRODUCER,
        "(walk.valid() ? «1» : 0)",
        "constant: 1 → 0",
        "the producer waits for the flags before it goes on: right, and slower",
    ),
    Listed(ATTENTION, "group<Config::threads / «32»>", "constant: 32 → 31", SAME),
    Listed(
        CONSUMER,
        "for (int half = ",
        "constant: 0 → -1|comparison: < → <=|constant: 2 → 3",
        "no row has such a bit",
    ),
    Listed(PRODUCER, "- k_start : «0»;", "constant: 0 → -1", "fewer keys than none are none"),
)
