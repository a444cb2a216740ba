"""Mutation of the norms' kernels: targets, programs, and mutants that no run can notice."""

from tests.mutation.listing import (
    ANY_BARRIER,
    LONGER,
    NOT_BOUNDED,
    SAME,
    SAME_SUMS,
    TUNING,
    Listed,
)
from tests.mutation.program import Program

FORWARD_PROGRAM = Program("norm", "norm_forward")
BACKWARD_PROGRAMS = tuple(Program("norm", "norm_backward", (f"CONFIGS={i}",)) for i in (0, 1))
PIPELINED_PROGRAM = Program("norm", "norm_backward", ("CONFIGS=2",))
FEW_PROGRAM = Program("norm", "norm_backward", ("CONFIGS=3",))
NARROW_PROGRAM = Program("norm", "norm_narrow")
TARGETS = {
    "kernels/norm/any_element.cuh": (
        FORWARD_PROGRAM,
        BACKWARD_PROGRAMS[0],
        NARROW_PROGRAM,
        FEW_PROGRAM,
    ),
    "kernels/norm/dropout.cuh": (FORWARD_PROGRAM, NARROW_PROGRAM, *BACKWARD_PROGRAMS),
    "kernels/norm/narrow_row.cuh": (NARROW_PROGRAM,),
    "kernels/norm/norm_forward.cuh": (FORWARD_PROGRAM, NARROW_PROGRAM),
    "kernels/norm/norm_forward_any.cuh": (FORWARD_PROGRAM,),
    "kernels/norm/norm_forward_long.cuh": (FORWARD_PROGRAM,),
    "kernels/norm/norm_forward_narrow.cuh": (NARROW_PROGRAM,),
    "kernels/norm/norm_backward.cuh": (*BACKWARD_PROGRAMS, NARROW_PROGRAM, PIPELINED_PROGRAM),
    "kernels/norm/norm_backward_few.cuh": (FEW_PROGRAM,),
    "kernels/norm/norm_backward_long.cuh": (BACKWARD_PROGRAMS[0],),
    "kernels/norm/norm_backward_narrow.cuh": (NARROW_PROGRAM,),
    "kernels/norm/norm_backward_pipelined.cuh": (PIPELINED_PROGRAM,),
    "kernels/norm/norm_reduce.cuh": (*BACKWARD_PROGRAMS, FEW_PROGRAM),
    "kernels/norm/row.cuh": (*BACKWARD_PROGRAMS, FORWARD_PROGRAM, NARROW_PROGRAM),
}
LEFT_OUT = {
    "kernels/norm/norm_forward.cuh": ("max_threads", "max_width", "min_blocks"),
    "kernels/norm/norm_forward_any.cuh": ("max_threads",),
    "kernels/norm/norm_backward.cuh": ("max_threads",),
    "kernels/norm/norm_backward_narrow.cuh": ("min_blocks",),
}
HOST_SIDE = ("kernels/norm/norm_configs.cuh", "kernels/norm/norm_launch.cuh")

FORWARD, NARROW = "norm_forward.cuh", "norm_forward_narrow.cuh"
BACKWARD, NARROW_BACKWARD = "norm_backward.cuh", "norm_backward_narrow.cuh"
PIPELINED, FEW = "norm_backward_pipelined.cuh", "norm_backward_few.cuh"
ANY, FORWARD_ANY, LONG = "any_element.cuh", "norm_forward_any.cuh", "norm_backward_long.cuh"
REDUCE, ROW, DROPOUT = "norm_reduce.cuh", "norm/row.cuh", "dropout.cuh"
NARROW_ROW = "norm/narrow_row.cuh"
FORWARD_LONG = "norm_forward_long.cuh"
PIECES = "pieces of a row are larger or smaller"
NO_MORE = "where each row has a block, there is none too many"
PAST = "one slice of a row more, which has no columns"
NO_ROWS = "a step past the last row finds none"
NO_SUCH_ROW = "there is no such row either"
ROWS_OF_VIEW = "a view's number of rows, which no load or store of a vector looks at"
ANY_THREAD = "any single thread may do it"
FACTORS = "where nothing drops, the factors are 1; where there is no dx, nobody reads them"
KNOWN = "a view whose length the compiler knows has that length, whatever is passed"
ADDS_ZERO = "where there is no offset, 0 is added"
ONE_BY_ONE = "elements may move one by one where they could in runs"
ONE_PASS_MORE = "a pass more, of which nothing is kept"

LISTED: tuple[Listed, ...] = (
    # How the work is cut.
    Listed(FORWARD, "Early || Elements % 16", ".*", PIECES),
    Listed(FORWARD, "(small ? ", "constant: .*", PIECES),
    Listed(FORWARD, "Run > 1 && Warps > 2;", ".*", "whose mean is taken is a choice"),
    Listed(FORWARD, "load(head, part_of<true, typename Config::head>(x_row, 0, «0»)", ".*", KNOWN),
    Listed(
        FORWARD,
        "if («p.width == int64_t(layout.warps) * Config::vector::length») {",
        "condition: .* → false",
        "a whole row is as right where columns are compared, only slower",
    ),
    Listed(FORWARD, "bool alone = Config::rows", "comparison: > → >=|constant: 1 → [02]", NO_MORE),
    Listed(
        FORWARD, "store_moments(p, row, r);", ".* → true|comparison: .*|constant: .*", ANY_THREAD
    ),
    Listed(FORWARD, "c «<» P::chunks", "comparison: < → <=", NOT_BOUNDED),
    Listed(FORWARD, "p.bias == nullptr ? «0»", "constant: 0 → -1", "no columns either"),
    Listed(
        FORWARD, "«!Config::kind::centred && p.weight_offset", "condition: .* → true", ADDS_ZERO
    ),
    Listed(FORWARD, "Config::rows > 1 && r >=", "constant: 1 → [02]|comparison: > → >=", NO_MORE),
    Listed(BACKWARD, "bool in_pairs = ", ".*", "a row is kept as floats or as it was loaded"),
    Listed(BACKWARD, "bool prefetch = ", ".*", "the next row is loaded early or late"),
    Listed(BACKWARD, "using stream = ", "constant: 2 → 3", TUNING),
    Listed(PIPELINED, "int kSlots = ", "constant: 3 → [24]", TUNING),
    Listed(NARROW, "threads = «256»", "constant: 256 → 512", TUNING),
    Listed(NARROW, "min_blocks = ", "constant: .*|comparison: .*", TUNING),
    Listed(
        NARROW, "using place = ", "constant: (1|8) → .*|constant: 16 → 32|comparison: .*", TUNING
    ),
    Listed(
        NARROW_BACKWARD,
        "rows = Run == ",
        "comparison: .*|constant: [28] → .*|constant: 1 → 2",
        TUNING,
    ),
    Listed(REDUCE, "int warps = «16»", "constant: .*", TUNING),
    Listed(FEW, "int kFewWarps = ", "constant: .*", TUNING),
    Listed(FEW, "int kFewRows = ", "constant: 8 → .*", TUNING),
    Listed(FEW, "Config::layout::run / «2»", "constant: 2 → 3", TUNING),
    # Rows, and slices of a row.
    Listed(NARROW_BACKWARD, "first «<» p.rows", "comparison: .*", NO_ROWS),
    Listed(FEW, "first «<» rows", "comparison: .*", NO_ROWS),
    Listed(
        LONG,
        "if (columns <= 0) return;",
        "condition: .* → false|comparison: <= → <|constant: 0 → -1",
        "a warp that has no columns loads and stores none",
    ),
    Listed(FORWARD_LONG, "int64_t slices = ", "constant: 1 → 0", PAST),
    Listed(FORWARD_LONG, "slice < slices", "comparison: < → <=", PAST),
    Listed(LONG, "int64_t slices = ", "constant: 1 → 0", PAST),
    Listed(LONG, "slice < slices", "comparison: < → <=", PAST),
    Listed(
        BACKWARD,
        "if («group > 0») return;",
        "condition: .* → false",
        "only what the first group adds up is stored",
    ),
    Listed(BACKWARD, "c «<» V::chunks", "comparison: < → <=", NOT_BOUNDED),
    Listed(FEW, "u «<» kFewRows; ++u", "comparison: < → <=", NOT_BOUNDED),
    Listed(FORWARD_ANY, "int64_t slices = ", "constant: 1 → 0", PAST),
    Listed(FORWARD_ANY, "held = slices «<=» warps", "comparison: <= → <", "it is loaded again"),
    Listed(FORWARD_ANY, "int first_pass = ", "constant: 0 → -1|constant: 1 → 0", ONE_PASS_MORE),
    Listed(
        FORWARD_ANY,
        "for (int pass = first_pass; ",
        "comparison: < → <=|constant: 3 → 4",
        "the last pass leaves the loop",
    ),
    Listed(
        FORWARD_ANY,
        "centred && pass > 0",
        "comparison: > → >=|constant: 0 → -1",
        "before the mean is known it is 0",
    ),
    Listed(
        FORWARD_ANY, "if («pass == 1») dot", "condition: .* → true", "the first pass keeps one sum"
    ),
    Listed(FORWARD_ANY, "p.weight_offset != 0.0f", "condition: .* → true", ADDS_ZERO),
    Listed(ANY, "columns % kRun == «0»", "constant: 0 → -1", ONE_BY_ONE),
    Listed(ANY, "(kRun * sizeof(T)) == «0»", "constant: 0 → -?1", ONE_BY_ONE),
    Listed(
        ANY, "if («moves_whole_runs<V>(start, columns)») {", "condition: .* → false", ONE_BY_ONE
    ),
    Listed(ANY, "if («whole») {", "condition: .* → false", ONE_BY_ONE),
    # Views.
    Listed(BACKWARD, "«2» * p.partial_rows, p.width", "constant: 2 → [13]", ROWS_OF_VIEW),
    Listed(REDUCE, "«2» * p.partial_rows, p.width", "constant: 2 → [13]", ROWS_OF_VIEW),
    Listed(BACKWARD, "p.dsum == nullptr ? «0»", "constant: 0 → -1", NO_SUCH_ROW),
    Listed(PIPELINED, "p.dsum == nullptr ? «0»", "constant: 0 → -1", NO_SUCH_ROW),
    Listed(FEW, "p.dsum == nullptr ? «0»", "constant: 0 → -1", "there is no such column either"),
    Listed(ROW, "gl<", "constant: 1 → [02]", ROWS_OF_VIEW),
    Listed(FORWARD, "gl<T, ", "constant: 1 → [02]", ROWS_OF_VIEW),
    Listed(
        REDUCE,
        "store(matrix<T>(data, 1, width, 0), total",
        "constant: 1 → [02]|constant: 0 → -?1",
        "a view's number of rows, and how far apart they are: there is one",
    ),
    # What is added or multiplied with, and changes nothing.
    Listed(DROPOUT, "seed(drops ? ", "constant: 0 → -?1", "a seed of which nothing is made"),
    Listed(FORWARD, "if («!mask.drops»)", "condition: .* → false", FACTORS),
    Listed(NARROW, "if («mask.drops»)", "condition: .* → true", FACTORS),
    Listed(BACKWARD, "if («p.dx != nullptr && mask.drops»)", "condition: .* → true", FACTORS),
    Listed(
        NARROW_BACKWARD, "if («p.dx != nullptr && mask.drops»)", "condition: .* → true", FACTORS
    ),
    Listed(NARROW_ROW, "if («offset == 0.0f») return", "condition: .* → false", ADDS_ZERO),
    Listed(ROW, "if («!Kind::centred && offset != 0.0f»)", "condition: .* → true", ADDS_ZERO),
    # Arrays of which an end is not used.
    Listed(DROPOUT, "uint32_t word[«4»];", "constant: 4 → .*", LONGER),
    Listed(DROPOUT, "uint32_t key[«2»] =", "constant: 2 → 3", LONGER),
    Listed(DROPOUT, "uint32_t word[«7»] =", "constant: 7 → (8|14)", LONGER),
    Listed(DROPOUT, "if («skipped == 0»)", "condition: .* → false", "nothing moves by 0"),
    Listed(FORWARD_LONG, "sums[0] = sums[«1»] = 0.0f", "constant: 1 → 0", "the other is 0 still"),
    Listed(FORWARD_LONG, "float here[«2»] =", "constant: 2 → 3", LONGER),
    Listed(FORWARD_ANY, "float here[«2»] =", "constant: 2 → 3", LONGER),
    Listed(NARROW, "float mean[", "constant: 1 → 2", LONGER),
    Listed(NARROW_BACKWARD, "float value[", r"subscript: .* \+ 1", LONGER),
    Listed(NARROW_BACKWARD, "narrow_gradient<Config> row[", r"subscript: .* \+ 1", LONGER),
    Listed(FEW, "loaded_row<columns> row[", r"subscript: .* \+ 1", LONGER),
    Listed(NARROW_ROW, "lane_run<held, Place::run> data[", r"subscript: .* \+ 1", LONGER),
    Listed(PIPELINED, "row_statistics<Config> of[", "constant: 3 → 4", LONGER),
    Listed(PIPELINED, "float partial[kRows]", r"subscript: kRows → .* \+ 1", LONGER),
    Listed(PIPELINED, "semaphore complete[", r"subscript: .* \+ 1", LONGER),
    # How sums lie in shared memory.
    Listed(
        ROW,
        "int kMaxWarps = «32»",
        "constant: .*",
        "blocks have 32 warps at most, and sums whole fours of places",
    ),
    Listed(
        ROW, "MaxWarps + kAtOnce - «1»", "constant: 1 → 0", "four places more, which nobody uses"
    ),
    Listed(ROW, "alignas(«16») float partial", "constant: 16 → 32", "a multiple is as good"),
    Listed(ROW, "w «<» kPlaces", "comparison: < → <=", "the last warp ends the loop before it"),
    Listed(ROW, "float partial[«2»]", "constant: 2 → 3", "a third half, which nobody uses"),
    Listed(ROW, "int half = ", "phase: 0 → 1", "either half may be the first"),
    Listed(PIPELINED, "int kRows = ", "constant: 4 → [58]", "no more than four are in use"),
    Listed(PIPELINED, "alignas(«16»)", "constant: 16 → 32", "a multiple is as good"),
    Listed(
        BACKWARD,
        "runs<std::min(«4», Config::layout::run)>",
        "constant: 4 → 8",
        "columns are left and taken in the same order, whichever it is",
    ),
    # Equal numbers, whichever is taken.
    Listed(FORWARD, "radicand = (variance < 0.0f", "comparison: < → <=", SAME),
    Listed(FORWARD, "radicand < smallest", "comparison: < → <=", SAME),
    # Barriers and lanes, of which any would do.
    Listed(BACKWARD, "warps, «1» + group};", "constant: 1 → 2", ANY_BARRIER),
    Listed(LONG, "«1»};", "constant: 1 → 2", ANY_BARRIER),
    Listed(FORWARD, "1};", "constant: 1 → 2", ANY_BARRIER),
    Listed(FORWARD_ANY, "1};", "constant: 1 → 2", ANY_BARRIER),
    Listed(FORWARD_LONG, "1};", "constant: 1 → 2", ANY_BARRIER),
    Listed(FEW, "layout.warps, «1»};", "constant: 1 → 2", ANY_BARRIER),
    Listed(
        BACKWARD,
        "if (groups > 1) arch::sync_block()",
        "condition: .* → true|comparison: > → >=|constant: 1 → 0",
        "all threads of a single group pass the barrier too",
    ),
    Listed(
        ROW,
        "if (warps == 1) return;",
        "condition: .* → false|constant: 1 → 0",
        "a warp that is alone adds its sums to nothing",
    ),
    Listed(ROW, "named_barrier_sync(«barrier»", r"barrier: .* \+ 1", "they all move by one"),
    Listed(PIPELINED, "if (arch::lane_id() == «0») {", "constant: 0 → 1", SAME_SUMS),
    Listed(PIPELINED, "if (arch::thread_id() == «0») shared->init", "constant: 0 → 1", ANY_THREAD),
    *(
        Listed(
            file,
            "if (arch::thread_id() == 0) store_moments",
            "condition: .* → true|comparison: == → !=|constant: 0 → 1",
            SAME_SUMS,
        )
        for file in (FORWARD_ANY, FORWARD_LONG)
    ),
    Listed(NARROW, "if («at.lane == 0») store_moments", "condition: .* → true", SAME_SUMS),
)
