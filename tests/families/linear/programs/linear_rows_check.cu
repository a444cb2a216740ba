// linear's kernel of 17 to 64 rows against its definition in double.
#include "linear_cases.h"

using namespace linear_cases;

TEST(more_steps_than_stages) {
  check({.rows = 33, .in_features = 712, .out_features = 70, .blocks = 2, .bias = true});
}
TEST(passes) {
  check({.rows = 20, .in_features = 328, .out_features = 152, .blocks = 1, .residual = true});
}
TEST(passes_of_a_norm) {
  check({.rows = 50,
         .in_features = 200,
         .out_features = 296,
         .blocks = 2,
         .bias = true,
         .residual = true,
         .normalized = true});
}
TEST(one_step_and_one_column) {
  check({.rows = 64, .in_features = 8, .out_features = 1, .blocks = 1, .bias = true});
}
// Where x is two tiles, the other warps' rows would lie behind it.
TEST(rows_that_fill_two_tiles) {
  check({.rows = 32, .in_features = 72, .out_features = 20, .blocks = 1, .normalized = true});
}
TEST(rows_that_end_within_16_bytes) {
  check({.rows = 24, .in_features = 201, .out_features = 20, .blocks = 1});
  check({.rows = 40, .in_features = 66, .out_features = 20, .blocks = 1, .normalized = true});
}
TEST(gate_and_up) {
  check({.rows = 48,
         .in_features = 328,
         .out_features = 88,
         .blocks = 2,
         .gated = true,
         .bias = true,
         .residual = true});
  check({.rows = 18,
         .in_features = 72,
         .out_features = 150,
         .blocks = 1,
         .gated = true,
         .residual = true,
         .normalized = true});
}
