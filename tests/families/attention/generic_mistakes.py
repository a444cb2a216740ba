"""The mistakes of synchronisation in attention's generic kernel, which race mode sees."""

from functools import partial

from tests.tools.planted import Mistake

planted = partial(Mistake, file="kernels/attention/attention_generic.cuh")

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
        "      const auto to",
        "#pragma unroll\n    for (int r = 0; r < kTiles; ++r) {\n      const auto to",
        r"RACE at [^\n]*",
    ),
)
