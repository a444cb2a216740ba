// linear's kernel against its definition in double.
#include "linear_cases.h"

using namespace linear_cases;

TEST(blocks_of_one_and_two_tiles) {
  check({.rows = 3, .in_features = 200, .out_features = 70, .blocks = 3, .bias = true});
}
TEST(two_passes_and_more_steps_than_stages) {
  check({.rows = 16, .in_features = 704, .out_features = 152, .blocks = 1, .residual = true});
}
TEST(more_steps_than_stages_of_the_smallest) {
  check({.rows = 5, .in_features = 2632, .out_features = 24, .blocks = 1});
}
TEST(passes_of_three_tiles) {
  check({.rows = 7, .in_features = 1800, .out_features = 88, .blocks = 2, .residual = true});
  check({.rows = 12, .in_features = 200, .out_features = 40, .blocks = 1, .normalized = true});
}
TEST(one_step_is_one_warps) {
  check({.rows = 1, .in_features = 8, .out_features = 1, .blocks = 1, .bias = true});
}
TEST(rows_that_end_within_16_bytes) {
  check({.rows = 10, .in_features = 201, .out_features = 20, .blocks = 1});
  check({.rows = 3, .in_features = 66, .out_features = 20, .blocks = 1, .normalized = true});
}
TEST(gate_and_up) {
  check({.rows = 2,
         .in_features = 328,
         .out_features = 88,
         .blocks = 2,
         .gated = true,
         .bias = true,
         .residual = true});
  check({.rows = 2, .in_features = 72, .out_features = 24, .blocks = 2, .gated = true});
}
TEST(the_norm_of_x) {
  check({.rows = 11, .in_features = 704, .out_features = 72, .blocks = 2, .normalized = true});
  check({.rows = 2,
         .in_features = 72,
         .out_features = 24,
         .blocks = 1,
         .gated = true,
         .bias = true,
         .residual = true,
         .normalized = true});
}
