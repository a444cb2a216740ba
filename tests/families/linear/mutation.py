"""Mutation of linear's kernel: its target, program, and mutants that no run can notice."""

from tests.mutation.listing import ANY_BARRIER, NOT_BOUNDED, SAME, TUNING, Listed
from tests.mutation.program import Program

PROGRAM = Program("linear", "linear")
_FOLDER = "kernels/linear"
TARGETS = {f"{_FOLDER}/linear.cuh": (PROGRAM,)}
LEFT_OUT: dict[str, tuple[str, ...]] = {}
HOST_SIDE = (f"{_FOLDER}/linear_launch.cuh",)

_FILE = "linear.cuh"
BUTTERFLY = "3 takes a lane to one that has the other pair's sum, too"
ANY_LANE = "any lane may"
UNUSED = "sums of a tile that there is not, which nobody reads"

LISTED: tuple[Listed, ...] = (
    Listed(_FILE, "", "start 2/2 (less|more)", TUNING),
    Listed(_FILE, "", "term (1|2)/2 (less|more)", TUNING),
    Listed(_FILE, "linear_config", "term (less|more|double)", TUNING),
    Listed(_FILE, "block_groups::of", "term more", "the last block of the program is the only one"),
    Listed(_FILE, "block_groups::passes", "term less", "an empty pass more, which writes nothing"),
    Listed(_FILE, "block_groups::count_of", "bound shifted", SAME),
    Listed(_FILE, "linear_factors::take", "bound 1/2 shifted", NOT_BOUNDED),
    Listed(_FILE, "linear_norm::share", "argument 2/2 more", BUTTERFLY),
    Listed(_FILE, "linear_norm::share", "limit 3/3 more", "all four lanes have the row's sum"),
    Listed(_FILE, "linear_sums::clear", "bound shifted", NOT_BOUNDED),
    Listed(_FILE, "linear_sums::add", "guard always|bound (1|2)/2 shifted", UNUSED),
    Listed(_FILE, "linear_sums::share", "guard always|bound (1|2)/2 shifted", UNUSED),
    Listed(_FILE, "linear", "subscript 2/5 next", "each warp has the semaphores of the next"),
    Listed(_FILE, "linear", "limit (1|2)/4 more", ANY_LANE),
    Listed(_FILE, "linear", "guard (6|7)/7 always", "squares that nobody reads"),
    Listed(_FILE, "linear", "barrier number (1|2)/2 more", ANY_BARRIER),
)
