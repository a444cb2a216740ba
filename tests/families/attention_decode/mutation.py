"""Mutation of attention_decode's kernels: targets, programs, mutants that no run can notice."""

from tests.mutation.listing import SAME, Listed
from tests.mutation.program import Program

PROGRAM = Program("attention_decode", "attention_decode")
_FOLDER = "kernels/attention_decode"
TARGETS = {
    f"{_FOLDER}/attention_decode.cuh": (PROGRAM,),
    f"{_FOLDER}/attention_decode_combine.cuh": (PROGRAM,),
    f"{_FOLDER}/attention_decode_work.cuh": (PROGRAM,),
    f"{_FOLDER}/cache_append.cuh": (PROGRAM,),
}
LEFT_OUT: dict[str, tuple[str, ...]] = {}
HOST_SIDE = (f"{_FOLDER}/attention_decode_launch.cuh", f"{_FOLDER}/cache_append_launch.cuh")

_WORK = "attention_decode_work.cuh"
LISTED: tuple[Listed, ...] = (
    Listed(_WORK, "smaller", "bound shifted", SAME),
    Listed(_WORK, "larger", "bound shifted", SAME),
    Listed(_WORK, "length_of", "argument less", "there is no key at −1 either"),
    Listed(_WORK, "needed_keys::of", "argument less", "there is no key at −1 either"),
    Listed(_WORK, "needed_keys::tiles", "term less", "a tile more, of no keys"),
    Listed(_WORK, "tiles_of", "branch (less|more)", "asked of the lanes behind the last sequence"),
    Listed(_WORK, "all_tiles", "bound 1/2 shifted", "a step more, of no sequences"),
    Listed(_WORK, "tile_cursor", "start ./4 (less|more)", "seek sets all of them"),
    Listed(_WORK, "tile_cursor::seek", "bound 1/4 shifted", "a step more, of no sequences"),
    Listed(_WORK, "tile_cursor::seek", "bound 2/4 shifted", "a step more, of no lanes"),
)
