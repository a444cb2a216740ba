"""Mutation of mlp's kernels: targets, programs, and mutants that no run can notice."""

from tests.mutation.listing import SAME, TUNING, Listed
from tests.mutation.program import Program

PRODUCTS, SUMS = Program("mlp", "linear_gelu"), Program("mlp", "column_sums")
_FOLDER = "kernels/mlp"
TARGETS = {
    f"{_FOLDER}/column_sums.cuh": (SUMS,),
    f"{_FOLDER}/linear_gelu.cuh": (PRODUCTS,),
    f"{_FOLDER}/linear_gelu_tiles.cuh": (PRODUCTS,),
}
LEFT_OUT: dict[str, tuple[str, ...]] = {}
HOST_SIDE = (f"{_FOLDER}/column_sums_launch.cuh", f"{_FOLDER}/linear_gelu_launch.cuh")

OF_SUMS, PRODUCT, TILES = "column_sums.cuh", "linear_gelu.cuh", "linear_gelu_tiles.cuh"

LISTED: tuple[Listed, ...] = (
    Listed(OF_SUMS, "column_sums_config", "start 2/3 .*|term 4/4 (more|double)", TUNING),
    Listed(OF_SUMS, "column_sums_config", "term 1/4 less|term 2/4 more", "8 and 4, rounded down"),
    Listed(OF_SUMS, "add_warps", "guard never", "what others than warp 0 have is not stored"),
    Listed(OF_SUMS, "column_sums", "bound 2/6 shifted", SAME),
    Listed(OF_SUMS, "column_sums", "term 2/2 less", "the loop behind adds these rows, too"),
    Listed(
        PRODUCT,
        "linear_gelu_consumer::consume",
        "barrier 2/2 deleted|barrier number 4/4 more",
        "the block ends: nobody wants the last turn",
    ),
    Listed(
        PRODUCT,
        "linear_gelu_consumer::multiply",
        "index 3/4 more|index 4/4 (less|more)",
        "which registers ptxas is told of: all products are done",
    ),
    Listed(
        PRODUCT,
        "linear_gelu_consumer::arrive_by_warp",
        "limit ./2 more",
        "any one lane of a warp may",
    ),
    Listed(PRODUCT, "linear_gelu", "limit (1|3|4)/4 more", "any thread, and any lane, may"),
    Listed(
        PRODUCT,
        "linear_gelu",
        "registers 1/2 deleted",
        "how many registers ptxas may use; tier 4 would see it spill",
    ),
    Listed(
        PRODUCT,
        "linear_gelu",
        "barrier 2/3 deleted",
        "lanes that have nothing to do wait at the barrier of the cluster, too",
    ),
    Listed(TILES, "linear_gelu_config", "start 2/6 less", TUNING),
    Listed(TILES, "produce", "index ./2 (less|more)", "which of them: all have one size"),
)
