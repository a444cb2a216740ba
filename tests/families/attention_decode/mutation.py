"""Mutation of attention_decode's kernels: targets, programs, mutants that no run can notice."""

from tests.mutation.listing import SAME, Listed
from tests.mutation.program import Program

PROGRAM, WIDE = (
    Program("attention_decode", "attention_decode", (f"HEAD_DIM={d}",)) for d in (64, 128)
)
_FOLDER = "kernels/attention_decode"
TARGETS = {
    f"{_FOLDER}/attention_decode.cuh": (PROGRAM,),
    f"{_FOLDER}/attention_decode_combine.cuh": (PROGRAM, WIDE),
    f"{_FOLDER}/attention_decode_item.cuh": (PROGRAM,),
    f"{_FOLDER}/attention_decode_work.cuh": (PROGRAM,),
    f"{_FOLDER}/cache_append.cuh": (PROGRAM,),
}
LEFT_OUT: dict[str, tuple[str, ...]] = {}
HOST_SIDE = (f"{_FOLDER}/attention_decode_launch.cuh", f"{_FOLDER}/cache_append_launch.cuh")

_COMBINE, _WORK = "attention_decode_combine.cuh", "attention_decode_work.cuh"
LISTED: tuple[Listed, ...] = (
    Listed(_WORK, "smaller", "bound shifted", SAME),
    Listed(_WORK, "larger", "bound shifted", SAME),
    Listed(_WORK, "length_of", "argument less", "there is no key at −1 either"),
    Listed(_WORK, "needed_keys::of", "argument less", "there is no key at −1 either"),
    Listed(_WORK, "needed_keys::tiles", "term less", "a tile more, of no keys"),
    Listed(_WORK, "tiles_of", "branch (less|more)", "asked of the lanes behind the last sequence"),
    Listed(_WORK, "tile_sums::of", "bound 1/3 shifted", "a step more, of no sequences"),
    Listed(_WORK, "item_parts::of", "argument [12]/3 (less|more)", "where none of no parts lies"),
    Listed(_WORK, "item_parts::of", "argument 3/3 less", "fewer parts than none are none"),
    Listed(_WORK, "tile_cursor", "start ./6 (less|more)", "seek sets all of them"),
    Listed(_WORK, "tile_cursor::seek", "bound 1/4 shifted", "a step more, of no sequences"),
    Listed(_WORK, "tile_cursor::seek", "bound 2/4 shifted", "a step more, of no lanes"),
    Listed(_COMBINE, "", "start 1/2 (double|less|more)", "the warps of a block are a choice"),
    Listed(_COMBINE, "", "start 2/2 (double|less|more)", "what is loaded at once is a choice"),
    Listed(_COMBINE, "combined_row", "start (less|more)", "times 2^(−∞) with the first part"),
    Listed(_COMBINE, "combine_parts", "bound 1/6 shifted", "a trip more, of no parts"),
    Listed(_COMBINE, "combine_parts", "argument (less|more)", "times 2^(−∞)"),
    Listed(_COMBINE, "combine_warps", "limit 1/2 more", "all lanes have the same sums"),
    Listed(_COMBINE, "combine_warps", "guard 2/2 never", "other warps end with the call"),
    Listed(_COMBINE, "attention_decode_combine", "limit 2/4 more", "a team has 1 warp or 8"),
)
