"""The mistakes of synchronisation in attention's generic kernels, which race mode sees."""

from functools import partial

from tests.tools.planted import Mistake

planted = partial(Mistake, file="kernels/attention/attention_generic.cuh")
in_backward = partial(Mistake, file="kernels/attention/attention_backward_generic.cuh")

COPIED = r"RACE at [^\n]*cp_async by |UNINITIALISED|in flight"

MISTAKES = (
    planted(
        "keys_are_not_waited_for",
        "arch::cp_async_wait<Config::stages - 2>();",
        "",
        COPIED,
    ),
    planted(
        "keys_are_read_before_the_others_copies_are_there",
        "arch::sync_block();",
        "",
        COPIED,
    ),
    planted(
        "keys_overwrite_a_stage_in_use",
        "arch::sync_block();\n      request();",
        "request();\n      arch::sync_block();",
        COPIED,
    ),
    planted(
        "queries_are_not_waited_for",
        "arch::cp_async_wait<Config::stages - 1>();",
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
    in_backward(
        "rows_overwrite_the_stage_in_use",
        "load_queries(next, (stage + 1) % Config::stages);",
        "load_queries(next, stage);",
        COPIED,
    ),
    in_backward(
        "ds_is_read_before_all_have_written_it",
        "arch::sync_block();\n      if (next.left > 0) load_gradients(next);",
        "if (next.left > 0) load_gradients(next);",
        r"RACE at ",
    ),
    in_backward(
        "do_is_overwritten_before_all_have_read_it",
        "arch::sync_block();\n      if (next.left > 0) load_gradients(next);",
        "if (next.left > 0) load_gradients(next);\n      arch::sync_block();",
        COPIED,
    ),
    in_backward(
        "wide_weights_are_read_before_both_halves_are_there",
        "arch::sync_block();\n      add_product(dv",
        "add_product(dv",
        r"RACE at ",
    ),
    in_backward(
        "wide_rows_are_overwritten_before_all_have_read_them",
        "add_product(dk, shared.ds[0], q);\n      arch::sync_block();",
        "add_product(dk, shared.ds[0], q);",
        COPIED,
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
)
