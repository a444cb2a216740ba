"""Mistakes planted in rotary's kernel: the simulator's guards or the numbers must find each one.

Each case changes one place, and runs the cases of the mutation tests with it.
"""

from functools import partial

from tests.tools.planted import Mistake

in_rotary = partial(Mistake, file="kernels/rotary/rotary.cuh")

PAST = r"MEMORY at rotary.cuh:\d+[^\n]*: load_global\w* [^\n]* past the end of a buffer"
BEFORE = r"MEMORY at rotary.cuh:\d+[^\n]*: load_global\w* [^\n]* before the start of a buffer"
WRONG = r"[qk]:\d+: is "

MISTAKES = (
    in_rotary(
        "the_table_is_read_past_its_last_row",
        "if (shift > to_last) shift = to_last;",
        "",
        PAST,
    ),
    in_rotary(
        "the_table_is_read_before_its_first_row",
        "return shift < -position ? 0 : position + shift;",
        "return position + shift;",
        BEFORE,
    ),
    in_rotary(
        "offsets_are_read_past_the_last_sequence",
        "sequence >= 0 && sequence < count) {",
        "sequence >= 0) {",
        PAST,
    ),
    in_rotary(
        "a_sequence_starts_after_its_first_token",
        "if (entry <= token) {",
        "if (entry < token) {",
        WRONG,
    ),
    in_rotary(
        "the_second_copied_run_is_always_there",
        "return {first, second, second < p.width};",
        "return {first, second, true};",
        PAST,
    ),
    in_rotary(
        "x2_is_turned_with_the_new_x1",
        "    const float turned = fmaf(x1, cos[i], -(x2 * sin[i]));\n"
        "    x2 = fmaf(x1, sin[i], x2 * cos[i]);\n    x1 = turned;",
        "    x1 = fmaf(x1, cos[i], -(x2 * sin[i]));\n    x2 = fmaf(x1, sin[i], x2 * cos[i]);",
        WRONG,
    ),
    in_rotary(
        "neighbours_of_the_second_run_take_the_angles_of_the_first",
        "turn_pair(b[2 * i], b[2 * i + 1], length + i);",
        "turn_pair(b[2 * i], b[2 * i + 1], i);",
        WRONG,
    ),
    in_rotary(
        "the_threads_past_the_last_token_work",
        "if (of_block >= layout.tokens || token >= p.tokens || head >= all_heads) return;",
        "if (of_block >= layout.tokens || head >= all_heads) return;",
        PAST,
    ),
)
