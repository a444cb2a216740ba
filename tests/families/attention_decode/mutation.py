"""Mutation of attention_decode's kernels: targets, programs, mutants that no run can notice."""

from tests.mutation.listing import NOT_BOUNDED, SAME, UNWATCHED, Listed
from tests.mutation.program import Program

PROGRAM, WIDE, ONE_PLACE = (  # rings of 6 tiles, of 2 and of 1, of e4m3 4 and 2
    Program("attention_decode", "attention_decode", (f"HEAD_DIM={d}",), forms=(f"SHARED_KB={kb}",))
    for d, kb in ((64, 227), (128, 163), (128, 99))
)
PADDED = Program("attention_decode", "attention_decode", ("HEAD_DIM=80",), forms=("SHARED_KB=99",))
SLICED = Program(
    "attention_decode", "attention_decode", ("HEAD_DIM=176",), forms=("SHARED_KB=163",)
)
APPEND = Program("attention_decode", "cache_append")
_FOLDER = "kernels/attention_decode"
TARGETS = {
    f"{_FOLDER}/attention_decode.cuh": (PROGRAM, ONE_PLACE, WIDE, PADDED, SLICED),
    f"{_FOLDER}/attention_decode_combine.cuh": (PROGRAM, WIDE, PADDED, SLICED),
    f"{_FOLDER}/attention_decode_item.cuh": (PROGRAM, PADDED, SLICED),
    f"{_FOLDER}/attention_decode_rows.cuh": (PROGRAM, PADDED, SLICED),
    f"{_FOLDER}/attention_decode_work.cuh": (PROGRAM, SLICED),
    f"{_FOLDER}/cache_append.cuh": (APPEND,),
}
LEFT_OUT: dict[str, tuple[str, ...]] = {}
HOST_SIDE = (
    f"{_FOLDER}/attention_decode_configs.cuh",
    f"{_FOLDER}/attention_decode_launch.cuh",
    f"{_FOLDER}/cache_append_launch.cuh",
)

_MAIN, _COMBINE = "attention_decode/attention_decode.cuh", "attention_decode_combine.cuh"
_ITEM, _WORK = "attention_decode_item.cuh", "attention_decode_work.cuh"
_APPEND = "cache_append.cuh"
LISTED: tuple[Listed, ...] = (
    Listed(_MAIN, "add_parts", "barrier 1/4 (deleted|weaker)", UNWATCHED),
    Listed(
        _MAIN,
        "add_parts",
        "guard (3|4|5)/5 never",
        f"what the last group's block writes stays; {UNWATCHED}",
    ),
    Listed(_MAIN, "add_parts", "(limit 2/5 less|bound 2/5 shifted)", "of one part it was known"),
    Listed(_MAIN, "add_parts", "limit 4/5 more", "any thread may"),
    Listed(_MAIN, "end_segment", "bound [12]/4 shifted", "a second half of no rows"),
    Listed(
        _MAIN,
        "end_segment",
        "(guard 2/2 always|bound 4/4 shifted|limit 2/2 less)",
        "one meeting more",
    ),
    Listed(_MAIN, "decode_loader", "start (2|3)/3 (less|more)", "look_up writes over it first"),
    Listed(_MAIN, "decode_loader::request", "guard 1/2 always", "copies that nobody reads"),
    Listed(_MAIN, "decode_loader::load", "start 1/3 less", "no key is before the first"),
    Listed(
        _MAIN,
        "decode_loader::load",
        "guard (3/4 never|4/4 always)|equality negated|bound 4/6 shifted",
        "zeros, where nobody reads",
    ),
    Listed(_MAIN, "decode_loader::look_up", "start (less|more)", "of keys that no query sees"),
    Listed(_COMBINE, "decode_row", "start (less|more)", "times 2^(−∞) with the first part"),
    Listed(_COMBINE, "decode_row::add", "term ./4 less", "a step more, with the lane itself"),
    Listed(_COMBINE, "decode_row::add", "bound 4/5 shifted", NOT_BOUNDED),
    Listed(_COMBINE, "combine_warps", "argument (less|more)", "times 2^(−∞)"),
    Listed(_COMBINE, "combine_warps", "bound 2/3 shifted", "a step more, of no warp"),
    Listed(_COMBINE, "combine_parts", "bound 1/. shifted", "a trip more, of no parts"),
    Listed(_COMBINE, "combine_parts", "bound 4/5 shifted", "one more than is used"),
    Listed(_COMBINE, "combine_parts", "argument (less|more)", "times 2^(−∞)"),
    Listed(_COMBINE, "store_part", "guard always", "a row's lanes have the same sums"),
    Listed(_COMBINE, "store_part", "limit more", "a row's lanes have the same sums"),
    Listed(_COMBINE, "store_part", "equality negated", "a row's lanes have the same sums"),
    Listed(_APPEND, "", "start (double|less|more)", "how many threads a block has is a choice"),
    Listed(_APPEND, "cache_place::of", "argument [13]/3 (less|more)", "of what is nowhere"),
    Listed(_APPEND, "store_cached", "term 2/11 less", "of 8 elements as many words"),
    Listed(_ITEM, "decode_item::take_as_halves", "start 1/4 less", "the size of a number is above"),
    Listed(
        _ITEM, "decode_item::take_as_halves", "argument 4/4 less", "up to 8 are exact halves, too"
    ),
    Listed(_ITEM, "decode_item::begin", "start (4|6)/6 (less|more)", "times 2^(−∞) with a tile"),
    Listed(_ITEM, "decode_item::give_row", "guard 1/2 never", "rows that nobody takes"),
    Listed(_ITEM, "decode_item::give_row", "bound 1/4 shifted", "a row that nobody takes"),
    Listed(
        _ITEM,
        "decode_item::give_row",
        "guard 2/2 always|limit 2/2 more|bound 4/4 shifted|equality negated",
        "a row's lanes have the same sums",
    ),
    Listed(
        _ITEM,
        "decode_item::soften",
        "bound (3|4)/7 shifted|guard 2/2 always",
        "compared, though all see it",
    ),
    Listed(
        _ITEM,
        "decode_item::rescale_if_large",
        "bound 2/5 shifted|guard never",
        "rescaled sooner, or by 1",
    ),
    Listed(
        _ITEM,
        "decode_item::soften",
        "barrier 2/2 deleted|limit 2/4 more",
        "key heads that are read at different times are right, too",
    ),
    Listed(_WORK, "smaller", "bound shifted", SAME),
    Listed(_WORK, "larger", "bound shifted", SAME),
    Listed(_WORK, "length_of", "argument less", "there is no key at −1 either"),
    Listed(_WORK, "needed_keys::of", "argument less", "there is no key at −1 either"),
    Listed(_WORK, "needed_keys::tiles", "term less", "a tile more, of no keys"),
    Listed(_WORK, "tiles_of", "branch (less|more)", "asked of the lanes behind the last sequence"),
    Listed(_WORK, "sum_up_to", "bound 1/2 shifted", "a step more, that no lane takes"),
    Listed(_WORK, "tile_sums", "start 2/2 (less|more)", "there is a sequence, which sets it"),
    Listed(_WORK, "tile_sums::of", "bound 1/2 shifted", "a step more, of no sequences"),
    Listed(_WORK, "tile_sums::of", "bound 2/2 shifted", "who looks without need finds none"),
    Listed(_WORK, "split_item::in_groups", "bound shifted", "36 parts are added up either way"),
    Listed(_WORK, "team_place::sync", "guard never", "a warp that waits for itself"),
    Listed(_WORK, "team_place::sync", "limit less", "a warp that waits for itself"),
    Listed(_WORK, "team_place::sync", "term more", "another one, of nobody's"),
    Listed(_WORK, "team_place::sync", "barrier number (less|more)", "another one, of nobody's"),
    Listed(_WORK, "team_place::sync_turn", "term (less|more)", "another one, of nobody's"),
    Listed(_WORK, "team_place::sync_turn", "barrier number .*", "another one, of nobody's"),
    Listed(_WORK, "tile_ranges::owner_of", "bound shifted", "where both are the same"),
    Listed(_WORK, "tile_ranges::owner_of", "limit more", "where both are the same"),
    Listed(_WORK, "tile_cursor::advance", "limit 2/2 less", "the loop around it goes on"),
    Listed(_WORK, "tile_cursor", "start ./6 (less|more)", "seek sets all of them"),
    Listed(_WORK, "tile_cursor::seek", "guard 1/2 always", "the same sums, added up again"),
    Listed(_WORK, "tile_cursor::seek", "bound 1/3 shifted", "a step more, of no sequences"),
    Listed(_WORK, "tile_cursor::seek", "bound 2/3 shifted", "a step more, of no lanes"),
)
