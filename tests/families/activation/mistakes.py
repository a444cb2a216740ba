"""Mistakes of arithmetic and of places, planted in the activations' kernels: each must be found.

Nothing is shared between their threads, so there is no synchronisation to get wrong: what is wrong
shows in the numbers, or as an access outside of a tensor.
"""

from functools import partial

from tests.tools.planted import Mistake

in_kernel = partial(Mistake, file="kernels/activation/elementwise.cuh")
in_functions = partial(Mistake, file="kernels/activation/functions.cuh")

WRONG = r"^y:\d+: is "
NOWHERE = r"signal|address|outside|crash|ends"

MISTAKES = (
    in_kernel("all_slices_are_the_first", ".c = of_group", ".c = 0", WRONG),
    in_kernel(
        "rows_are_read_as_if_contiguous",
        "p.rows, width, p.stride[i])",
        "p.rows, width, width)",
        WRONG,
    ),
    in_kernel("rows_of_a_group_are_read_as_if_contiguous", "(p.stride[i] - p.width)", "0", WRONG),
    in_kernel(
        "groups_are_read_as_if_contiguous",
        "group.first * p.stride[i]",
        "group.first * p.width",
        WRONG,
    ),
    in_kernel("all_groups_are_the_first", "group.first * p.width", "0", WRONG),
    in_kernel(
        "the_last_group_has_as_many_rows",
        "left < Config::group_rows ? left : Config::group_rows",
        "Config::group_rows",
        r"past the end of a buffer",
    ),
    in_kernel(
        "a_slice_stays_in_its_first_row", "while (column >= p.width)", "while (false)", WRONG
    ),
    in_kernel(
        "the_next_row_starts_where_the_first_does", "column -= p.width;", "column = 0;", WRONG
    ),
    in_kernel(
        "the_first_run_has_nothing_before_it",
        "column >= kMargin &&",
        "column >= 0 &&",
        r"before the start of a buffer",
    ),
    in_kernel(
        "the_last_run_has_nothing_behind_it",
        "p.width - Config::run - kMargin",
        "p.width - Config::run",
        r"past the end of a buffer",
    ),
    in_kernel("ends_are_those_of_aligned_rows", "-(start + kMargin) & (kRun - 1)", "0", WRONG),
    in_kernel(
        "the_last_elements_are_those_after_the_first",
        "arch::lane_id() < head ? 0 : in_runs",
        "0",
        WRONG,
    ),
    in_kernel(
        "ends_of_one_row_stand_for_all",
        "slice * Config::end_rows + c",
        "slice * Config::end_rows",
        WRONG,
    ),
    in_kernel(
        "gradients_change_places",
        "out[1] = in[0] * f.value",
        "out[1] = in[0] * f.slope",
        r"^dup:\d+: is ",
    ),
    in_kernel(
        "up_is_left_out",
        "out[0] = F::at(in[0]).value * in[1];",
        "out[0] = F::at(in[0]).value;",
        WRONG,
    ),
    in_kernel(
        "what_is_not_wanted_is_written",
        "if (p.out[o] == nullptr) continue;\n    T* data = static_cast<T*>(p.out[o]);",
        "T* data = static_cast<T*>(p.out[o]);",
        NOWHERE,
    ),
    in_kernel(
        "runs_that_are_not_wanted_are_written",
        "if (p.out[o] == nullptr) continue;\n    T* data = static_cast<T*>(p.out[o]) +",
        "T* data = static_cast<T*>(p.out[o]) +",
        NOWHERE,
    ),
    in_functions("sigma_is_mirrored", "return x < 0.0f ?", "return x > 0.0f ?", WRONG),
    in_functions(
        "slopes_are_taken_far_out",
        "fminf(square, kSaturated)",
        "fmaxf(square, kSaturated)",
        r"^dgate:\d+: is ",
    ),
    in_functions(
        "the_exponential_grows",
        "return arch::exp2_approx(x * (-rate * kLog2e));",
        "return arch::exp2_approx(x * (rate * kLog2e));",
        WRONG,
    ),
    in_functions(
        "the_tail_loses_its_polynomials_order",
        "sum = fmaf(sum, t, coefficients)",
        "sum = fmaf(coefficients, t, sum)",
        WRONG,
    ),
)
