"""Mutation of cross_entropy's kernels: targets, programs, and mutants that no run can notice."""

from tests.mutation.listing import ANY_BARRIER, LONGER, NOT_BOUNDED, SAME, SAME_SUMS, TUNING, Listed
from tests.mutation.program import Program

SUMS_PROGRAM = Program("cross_entropy", "cross_entropy_sums")
ROWS_PROGRAM = Program("cross_entropy", "cross_entropy_rows")
LOSS_PROGRAM = Program("cross_entropy", "cross_entropy_loss")
STREAM_PROGRAM = Program("cross_entropy", "cross_entropy_stream")
TARGETS = {
    "kernels/cross_entropy/cross_entropy_backward.cuh": (SUMS_PROGRAM,),
    "kernels/cross_entropy/cross_entropy_far.cuh": (ROWS_PROGRAM, STREAM_PROGRAM, LOSS_PROGRAM),
    "kernels/cross_entropy/cross_entropy_loss.cuh": (LOSS_PROGRAM,),
    "kernels/cross_entropy/cross_entropy_reduce.cuh": (SUMS_PROGRAM,),
    "kernels/cross_entropy/cross_entropy_row.cuh": (
        SUMS_PROGRAM,
        ROWS_PROGRAM,
        LOSS_PROGRAM,
        STREAM_PROGRAM,
    ),
    "kernels/cross_entropy/cross_entropy_rows.cuh": (ROWS_PROGRAM,),
    "kernels/cross_entropy/cross_entropy_stream.cuh": (STREAM_PROGRAM,),
}
LEFT_OUT = {
    "kernels/cross_entropy/cross_entropy_backward.cuh": ("threads", "min_blocks"),
    "kernels/cross_entropy/cross_entropy_loss.cuh": ("threads", "min_blocks"),
    "kernels/cross_entropy/cross_entropy_reduce.cuh": ("threads", "shared_bytes"),
    "kernels/cross_entropy/cross_entropy_rows.cuh": (
        "warp_columns",
        "max_warps",
        "max_threads",
        "min_blocks",
        "block_columns",
    ),
}
HOST_SIDE = ()

ROW, ROWS = "cross_entropy_row.cuh", "cross_entropy_rows.cuh"
STREAM, REDUCE = "cross_entropy_stream.cuh", "cross_entropy_reduce.cuh"
BACKWARD, LOSS = "cross_entropy_backward.cuh", "cross_entropy_loss.cuh"
SAME_QUOTIENT = "the quotient is the same"
BUTTERFLY = "17, 8, 4, 2, 1 take a lane to every other one, too"
ONE_BY_ONE = "what is aligned is stored element by element, too: right, and slower"
UNWANTED = "a sum that nobody wants"
NO_PLACE = "an element of no such place is looked for, and none is found"
UNWATCHED = "races in global memory are not watched"
UNCOUNTED = "without a mean nobody wants the count"
ANY_ROW = "any row's warp may add up, where all of them run"
ADDS_NOTHING = "with a factor of 0 nothing is added"

LISTED: tuple[Listed, ...] = (
    # A row's pieces, sums and gradient.
    Listed(BACKWARD, "int vectors = «4»", "constant: .*", TUNING),
    Listed(
        BACKWARD,
        "if (p.dloss_stride == 0) return;",
        "condition: .* → false|constant: 0 → -1",
        "each row finds out by itself that its factor is 1",
    ),
    Listed(
        REDUCE,
        "if (arch::thread_id() == 0) {",
        "condition: .* → true",
        "other threads' totals are not used",
    ),
    Listed(REDUCE, "if (arch::lane_id() == «0»)", "constant: 0 → 1", "all have the sum"),
    Listed(REDUCE, "int mask = «16»", "constant: 16 → 17", BUTTERFLY),
    Listed(ROW, "int mask = «16»", "constant: 16 → 17", BUTTERFLY),
    Listed(
        ROW,
        "top = fmaxf(top, arch::shuffle_xor",
        "constant: 16 → 32",
        "lane 32 away is the lane itself, than which its number is no larger",
    ),
    Listed(ROW, "int kLength = «16»", "constant: 16 → 17", SAME_QUOTIENT),
    Listed(ROW, "if («aligned»)", "condition: .* → false", ONE_BY_ONE),
    Listed(ROW, "lane_run<T, 1> single[", r"subscript: .* \+ 1", LONGER),
    Listed(
        ROW,
        "head = past == «0» ?",
        "constant: 0 → -1",
        "of an aligned row the first 16 bytes are loose: right, and slower",
    ),
    Listed(
        ROW,
        "if («head > width»)",
        "condition: .* → false",
        "there is no vector then, and a tail of as many less than none: all are loose",
    ),
    Listed(ROW, "if (head «>» width)", "comparison: > → >=", SAME),
    Listed(ROW, "if («smoothing») include_plain", "condition: .* → true", UNWANTED),
    Listed(ROW, "if («!smoothing») return", "condition: .* → false", UNWANTED),
    Listed(ROW, "int kMaxWarps = ", ".*", "blocks have 16 warps at most"),
    Listed(ROW, "kSumsBarrier = «1»", "constant: 1 → 2", ANY_BARRIER),
    Listed(ROW, "[«2»][kMaxWarps]", "constant: 2 → 3", "a third half, which nobody uses"),
    Listed(
        ROW,
        "if (warps == 1) return",
        "condition: .* → false|constant: 1 → 0",
        "the sums of a single warp come back to it through shared memory",
    ),
    Listed(
        ROW,
        "return «arch::sync_warp()»",
        "delete: .*",
        f"the lanes have just met in shuffles, and {UNWATCHED}",
    ),
    Listed(ROW, "if (lane == «0»)", "constant: 0 → 1", SAME_SUMS),
    Listed(ROW, "named_barrier_sync(«kSumsBarrier»", r"barrier: .* \+ 1", "they all move by one"),
    Listed(
        ROW,
        "return target >= «0» && target < width",
        "constant: 0 → -1",
        "−1 is what there is for no column, too",
    ),
    Listed(ROW, "int(target) : -«1»", "constant: 1 → 2", "−2 is no column either"),
    Listed(ROW, "if («at < 0 || at >= N»)", "condition: .* → false", NO_PLACE),
    Listed(ROW, "if (at < «0»", "constant: 0 → -1", NO_PLACE),
    Listed(ROW, "|| at «>=» N", "comparison: >= → >", NO_PLACE),
    Listed(
        ROW,
        "sums.total «>» 0.0f",
        "comparison: > → >=",
        "a row of −inf alone is NaN also by ∞ − ∞ and 0 · ∞",
    ),
    Listed(ROW, "if («p.label_smoothing > 0.0f»)", "condition: .* → true", ADDS_NOTHING),
    Listed(ROW, "if (p.label_smoothing «>»", "comparison: > → >=", ADDS_NOTHING),
    Listed(ROW, "if («p.z_loss > 0.0f»)", "condition: .* → true", ADDS_NOTHING),
    Listed(ROW, "p.z_loss «>» 0.0f", "comparison: > → >=", ADDS_NOTHING),
    # Few rows' total.
    Listed(ROW, "if («!p.mean») return 0;", "condition: .* → false", UNCOUNTED),
    Listed(ROW, "if (!p.mean) return «0»;", "constant: .*", UNCOUNTED),
    Listed(ROW, "int kBoxes = «9»", "constant: .*", TUNING),
    Listed(ROW, "first «<» p.rows; first +=", "comparison: < → <=", "a step more, of no rows"),
    Listed(ROW, "unsigned words[", r"subscript: .* \+ 1", LONGER),
    Listed(ROW, "if («lane == 0») arch::store_global(p.total", "condition: .* → true", SAME_SUMS),
    Listed(ROW, "if (lane «==» 0) arch::store_global(p.total", "comparison: .*", SAME_SUMS),
    Listed(ROWS, "place.row != p.rows - «1»", "constant: 1 → 2", ANY_ROW),
    Listed(STREAM, "arch::grid_x() - «1»;", "constant: 1 → 2", ANY_ROW),
    # Where its gradient is stored element by element.
    Listed(BACKWARD, "bool aligned = ", "constant: 0 → -1", ONE_BY_ONE),
    Listed(ROWS, "bool aligned = ", "constant: 0 → -1", ONE_BY_ONE),
    Listed(ROWS, "(Config::vectors == 8", ".*", "the same, compiled twice or once"),
    Listed(STREAM, "bool aligned = ", "constant: 0 → -1", ONE_BY_ONE),
    # Rows in registers.
    Listed(ROWS, "bool loads_ignored = ", ".*", "an ignored row is read or not, and not used"),
    Listed(ROWS, "int kVectors = «8»", "constant: 8 → 9", SAME_QUOTIENT),
    Listed(ROWS, "float x[«1»] = {loose}", "constant: 1 → 2", "the second is not used"),
    Listed(
        ROWS,
        "i «<» Config::vectors && exists(i)",
        "comparison: < → <=",
        "the next warp's first vectors are set to zero by this one, too",
    ),
    Listed(ROWS, "arch::lane_id() == «0», smoothing", "constant: 0 → 1", SAME_SUMS),
    Listed(ROWS, "p.label_smoothing «>» 0.0f", "comparison: > → >=", UNWANTED),
    Listed(ROWS, "in_cluster = Blocks > «1»", "constant: 1 → 2", "a row has one block, or up to 8"),
    Listed(ROWS, "float4 of_warp[", r"subscript: .* \+ 1", LONGER),
    Listed(ROWS, "first «<» shared.max_warps", "comparison: < → <=", "a step more, of no warps"),
    # The loss alone.
    Listed(LOSS, "vectors = «2»", "constant: .*", TUNING),
    Listed(LOSS, "first «<» pieces.vectors", "comparison: < → <=", "a step more, of no vectors"),
    Listed(LOSS, "run runs[", "subscript: .*", LONGER),
    Listed(LOSS, "label_smoothing «>» 0.0f", "comparison: > → >=", UNWANTED),
    Listed(
        LOSS,
        "if (thread == 0) arch::store_global(p.loss + r, 0.0f)",
        "condition: .* → true|comparison: == → !=|constant: 0 → 1",
        SAME_SUMS,
    ),
    # The ring.
    Listed(STREAM, "kept = Slots - «2»", "constant: 2 → [13]", TUNING),
    Listed(
        STREAM,
        "Config::kept : «0»;",
        "constant: 0 → -1",
        "without a gradient every chunk is given back, whatever is above their number",
    ),
    Listed(STREAM, "again = count «>» kept", "comparison: > → >=", SAME),
    Listed(
        STREAM,
        "count - kept : «0»;",
        "constant: 0 → 1",
        "the first chunk comes again although there is room: right, and slower",
    ),
    Listed(STREAM, "int64_t ahead_ = «0»", "constant: 0 → -?1", "the first request overwrites it"),
    Listed(STREAM, "const int bytes = ", "comparison: < → <=", SAME),
    Listed(STREAM, "if («!smoothing») return", "condition: .* → false", UNWANTED),
    Listed(STREAM, "p.label_smoothing «>» 0.0f", "comparison: > → >=", UNWANTED),
    Listed(STREAM, "int half = «0»", "phase: 0 → 1", "either half may be the first"),
    Listed(STREAM, "float loose[«1»]", "constant: 1 → 2", "the second is not used"),
    Listed(STREAM, "runs[i].get(x[i]);", "comparison: < → <=", NOT_BOUNDED),
    Listed(STREAM, "rule.apply(x[i]);", "comparison: < → <=", NOT_BOUNDED),
    Listed(
        STREAM, "if (thread == «0») hand_in_loss(p, r, 0.0f)", "constant: 0 → 1", "any thread may"
    ),
    Listed(
        STREAM,
        "last = arch::warp_id() == 0",
        "comparison: == → !=|constant: 0 → 1",
        "any warp may add up, and the case has two",
    ),
    Listed(STREAM, "if (arch::thread_id() == «0») shared", "constant: 0 → 1", "any thread may"),
    Listed(STREAM, "} else if (arch::lane_id() == «0»)", "constant: 0 → 1", "any lane may"),
)
