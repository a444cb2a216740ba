"""The mistakes of synchronisation in attention's generic kernels, which race mode sees."""

from functools import partial

from tests.families.attention.mutation import GENERIC_BACKWARD
from tests.tools.planted import Mistake

planted = partial(Mistake, file="kernels/attention/attention_generic.cuh")
in_backward = partial(Mistake, file="kernels/attention/attention_backward_generic.cuh")
in_products = partial(Mistake, file="kernels/attention/attention_backward_generic_products.cuh")
in_halves = partial(
    Mistake,
    file="kernels/attention/attention_backward_generic_halves.cuh",
    program=GENERIC_BACKWARD[2].name,
)

COPIED = r"RACE at [^\n]*cp_async by |UNINITIALISED|in flight"

MISTAKES = (
    planted(
        "keys_are_not_waited_for",
        "arch::cp_async_wait<0>();",
        "",
        COPIED,
    ),
    planted(
        "keys_are_read_before_the_others_copies_are_there",
        "arch::cp_async_wait<0>();\n    arch::sync_block();",
        "arch::cp_async_wait<0>();",
        COPIED,
    ),
    planted(
        "keys_overwrite_a_stage_in_use",
        "load_all_rows<Config::threads>(shared.k[next & 1]",
        "load_all_rows<Config::threads>(shared.k[j & 1]",
        COPIED,
    ),
    planted(
        "queries_are_not_waited_for",
        "arch::cp_async_wait<1>();",
        "",
        COPIED,
    ),
    planted(
        "queries_are_read_before_the_other_lanes_copies_are_there",
        "arch::sync_warp();\n#pragma unroll\n    for (int r = 0; r < kTiles; ++r) {\n      zero",
        "#pragma unroll\n    for (int r = 0; r < kTiles; ++r) {\n      zero",
        COPIED,
    ),
    planted(
        "the_output_is_read_before_all_lanes_have_written_it",
        "    arch::sync_warp();\n#pragma unroll\n    for (int r = 0; r < kTiles; ++r) {\n"
        "      store_rows",
        "#pragma unroll\n    for (int r = 0; r < kTiles; ++r) {\n      store_rows",
        r"RACE at [^\n]*",
    ),
    in_backward(
        "rows_are_not_waited_for",
        "arch::cp_async_wait<0>();",
        "",
        COPIED,
    ),
    in_backward(
        "rows_are_read_before_the_others_copies_are_there",
        "arch::cp_async_wait<0>();\n    arch::sync_block();",
        "arch::cp_async_wait<0>();",
        COPIED,
    ),
    in_products(
        "rows_overwrite_the_stage_in_use",
        "const int other = Stages == 2 ? stage ^ 1 : 0;",
        "const int other = Stages == 2 ? stage : 0;",
        COPIED,
    ),
    in_backward(
        "ds_is_read_before_all_have_written_it",
        "arch::sync_block();\n      base::template load_next<1>(at, turn);",
        "base::template load_next<1>(at, turn);",
        r"RACE at ",
    ),
    in_backward(
        "do_is_overwritten_before_all_have_read_it",
        "arch::sync_block();\n      base::template load_next<1>(at, turn);",
        "base::template load_next<1>(at, turn);\n      arch::sync_block();",
        COPIED,
        program=GENERIC_BACKWARD[3].name,
    ),
    in_backward(
        "shared_weights_are_read_before_all_parts_are_there",
        "arch::sync_block();\n      add_part(dk, ds, q, part())",
        "add_part(dk, ds, q, part())",
        r"RACE at ",
        program=GENERIC_BACKWARD[5].name,
    ),
    in_backward(
        "rows_of_shared_keys_are_overwritten_before_all_have_read_them",
        "arch::sync_block();\n        base::template load_next<1>(at, turn);",
        "base::template load_next<1>(at, turn);",
        COPIED,
        program=GENERIC_BACKWARD[5].name,
    ),
    in_backward(
        "the_tile_is_read_before_it_is_written",
        "shared.tile = tile;\n  arch::sync_block();",
        "shared.tile = tile;",
        r"RACE at |UNINITIALISED",
    ),
    in_backward(
        "dk_overwrites_keys_that_others_read",
        "arch::sync_block();  // all have read k",
        "",
        r"RACE at ",
    ),
    in_backward(
        "dk_is_read_before_all_have_written_it",
        "arch::sync_block();\n    store_rows",
        "store_rows",
        r"RACE at ",
    ),
    in_halves(
        "rows_are_not_waited_for_by_halves",
        "arch::cp_async_wait<0>();",
        "",
        COPIED,
    ),
    in_halves(
        "halves_read_rows_before_the_others_copies_are_there",
        "arch::cp_async_wait<0>();\n    arch::sync_block();",
        "arch::cp_async_wait<0>();",
        COPIED + "|RACE at |DEADLOCK",
    ),
    in_halves(
        "p_is_read_before_the_other_half_has_written_it",
        "arch::named_barrier_sync(over_weights(), kPairThreads);",
        "",
        r"RACE at |UNINITIALISED",
    ),
    in_halves(
        "shared_p_is_read_before_the_sharer_has_written_it",
        "meet_sharers();\n        add_other_parts",
        "add_other_parts",
        r"RACE at ",
    ),
    in_halves(
        "ds_is_read_before_the_other_half_has_written_it",
        "arch::named_barrier_sync(kOverDs, Config::threads);",
        "arch::named_barrier_arrive(kOverDs, Config::threads);",
        r"RACE at ",
    ),
    in_halves(
        "ds_takes_the_place_of_what_other_lanes_read",
        "arch::sync_warp();  // ds takes the place of p",
        "",
        r"RACE at ",
    ),
    in_halves(
        "rows_of_halves_are_overwritten_before_all_have_read_them",
        "arch::sync_block();\n        base::template load_next<1>(at, turn);",
        "base::template load_next<1>(at, turn);\n        arch::sync_block();",
        COPIED,
        program=GENERIC_BACKWARD[6].name,
    ),
    in_halves(
        "halves_store_dk_over_keys_that_others_read",
        "arch::sync_block();  // all have read k",
        "",
        r"RACE at ",
    ),
)
