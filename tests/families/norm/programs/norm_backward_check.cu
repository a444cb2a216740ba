// Small calls of the norms' backward against the formula in double.
#include <kittens.cuh>

#include "norm_backward.h"
#include "norm_formula.h"
#include "problem.h"

using namespace kittens::testing;
using namespace thunderkittens;
using kittens::bf16;
using kittens::half;

namespace {

using enum backward_form;
constexpr dtype kFloat = dtype::float32, kHalf = dtype::float16, kBf16 = dtype::bfloat16;

struct problem {
  backward_shape shape;
  int64_t rows, width, stride, partial_rows;
  dtype weight_type, bias_type;
  bool dx = true, dweight = true, dbias = true, weight = true;
  float mean = 0, offset = 0;
  double p = 0;  // of dropout
  bool dsum = true, dresidual = true;
  bool centred = true, adds = false;  // of any kind
};

template <class T>
constexpr dtype kType = std::is_same_v<T, float>  ? kFloat
                        : std::is_same_v<T, half> ? kHalf
                                                  : kBf16;

constexpr int64_t kSeed = 0x123456789abcdef;

// A parameter's gradient as the kernel writes it, by its type.
class gradient {
 public:
  gradient(int64_t width, dtype type) : type_(type), floats_(width), half_(width), bf16_(width) {}

  void* data() const {
    if (type_ == dtype::float32) return floats_.data();
    return type_ == dtype::float16 ? static_cast<void*>(half_.data()) : bf16_.data();
  }
  void check(const char* what, const std::vector<double>& want, double absolute) const {
    if (type_ == dtype::float32) check_all(what, floats_.get(), want, 8 * unit<float>(), absolute);
    if (type_ == dtype::float16) check_all(what, half_.get(), want, unit<half>(), absolute);
    if (type_ == dtype::bfloat16) check_all(what, bf16_.get(), want, unit<bf16>(), absolute);
  }

 private:
  dtype type_;
  buffer<float> floats_;
  buffer<half> half_;
  buffer<bf16> bf16_;
};

template <class T, class R = T>
void check(const problem& is) {
  const auto is_one_of = [&](auto... forms) { return ((is.shape.form == forms) || ...); };
  const bool any = is_one_of(any_groups, any_long, any_few);
  const bool adds = any ? is.adds
                        : is_one_of(add_groups, add_floats, pipelined_add, pipelined_add_rms,
                                    pipelined_floats, few_add, few_floats, medium_add);
  const bool centred = any ? is.centred
                           : !is_one_of(rms_groups, add_floats, pipelined_rms, pipelined_add_rms,
                                        pipelined_floats, few_rms, few_floats, medium_rms);
  const auto dys = normal_values<T>(is.rows * is.stride, 1);
  const auto xs = normal_values<R>(is.rows * is.stride, 2, is.mean);
  const auto dsums = normal_values<R>(is.rows * is.stride, 4);
  auto weights = normal_values<float>(is.width, 3, 1);
  std::vector<T> own_weights;
  for (float& w : weights) {  // floats that T has
    own_weights.push_back(kittens::convert<T>(w));
    w = kittens::convert<float>(own_weights.back());
  }
  const auto pack = [&](const auto& v) { return packed(doubles(v), is.rows, is.width, is.stride); };
  const numbers s = pack(xs), ones(is.width, 1), zeros(is.width, 0);
  numbers w = is.weight ? doubles(weights) : ones;
  for (double& value : w) value += is.offset;
  const norm_outputs of = normalize(s, is.width, centred, 1e-5, w, zeros);
  norm_gradients want = differentiate(pack(dys), s, is.width, centred, of, w);
  if (adds && is.dsum) {
    const numbers more = pack(dsums);
    for (size_t i = 0; i < more.size(); ++i) want.ds[i] += more[i];
  }
  numbers want_dx = want.ds;
  const numbers factor = dropout_factors(is.rows * is.width, kSeed, is.p);
  for (size_t i = 0; i < want_dx.size(); ++i) want_dx[i] *= factor[i];

  const buffer<T> dy(dys), own_weight(own_weights), dx(is.rows * is.width);
  const buffer<R> x(xs), dsum(dsums), dresidual(is.rows * is.width);
  const buffer<float> weight_in_float(weights);
  const buffer<float> mean(std::vector<float>(of.mean.begin(), of.mean.end()));
  const buffer<float> rstd(std::vector<float>(of.rstd.begin(), of.rstd.end()));
  const buffer<float> partial((centred ? 2 : 1) * is.partial_rows * is.width);
  const buffer<int64_t> seed(std::vector<int64_t>{kSeed});
  const gradient dweight(is.width, is.weight_type), dbias(is.width, is.bias_type);
  const bool float_weight = is.weight_type == dtype::float32;
  norm_backward_params p{};
  p.dy = dy.data(), p.x = x.data(), p.rstd = rstd.data();
  if (centred) p.mean = mean.data();
  if (is.weight) {
    p.weight = float_weight ? static_cast<const void*>(weight_in_float.data()) : own_weight.data();
  }
  if (adds && is.dsum) p.dsum = dsum.data();
  if (adds && is.dresidual) p.dresidual = dresidual.data();
  if (is.dx) p.dx = dx.data();
  if (is.dweight) p.dweight = dweight.data();
  if (is.dbias && centred) p.dbias = dbias.data();
  if (is.partial_rows > 0 && (is.dweight || is.dbias)) p.partial = partial.data();
  p.partial_rows = is.partial_rows, p.rows = is.rows, p.width = is.width;
  p.dy_rows = p.x_rows = {is.stride}, p.dsum_stride = is.stride;
  p.weight_offset = is.offset;
  if (is.p > 0) p.dropout = dropout_params::of(is.p, seed.data());
  p.type = kType<T>, p.residual_type = kType<R>;
  p.weight_type = is.weight_type, p.bias_type = is.bias_type;
  run_backward(is.shape, p);
  // Sums in float of `rows` or `width` terms about 1, most of which are below 4.
  if (is.dx) check_all("dx", dx.get(), want_dx, unit<T>(), 64 * unit<float>());
  if (adds && is.dresidual) {
    check_all("dresidual", dresidual.get(), want.ds, unit<R>(), 64 * unit<float>());
  }
  const double slack = 16 * is.rows * unit<float>();
  // Over a large mean, ŝ of the sums is off by what the saved mean lacks.
  const bool as_saved = is_one_of(any_long, long_rows, any_few, few);
  const double lost = as_saved ? is.rows * is.mean * unit<float>() : 0;
  if (is.dweight) dweight.check("dweight", want.dweight, slack + 4 * lost);
  if (is.dbias && centred) dbias.check("dbias", want.dbias, slack);
}

}  // namespace

#if CONFIGS == 0

TEST(several_groups) { check<bf16>({{groups, 2, 4}, 23, 704, 712, 2, kBf16, kFloat}); }
TEST(one_group) { check<bf16>({{groups, 3, 1}, 7, 1536, 1536, 3, kFloat, kBf16}); }
TEST(fewer_rows_than_groups) { check<bf16>({{groups, 1, 4}, 6, 120, 120, 2, kFloat, kFloat}); }
TEST(single_elements_with_a_large_mean) {
  check<float>({{groups_of_single_elements, 2, 2},
                11,
                517,
                519,
                2,
                kFloat,
                kHalf,
                true,
                true,
                true,
                true,
                3e4f});
}
TEST(only_dx) {
  check<bf16>({{groups, 1, 2}, 5, 264, 264, 2, kBf16, kBf16, true, false, false, false});
}
TEST(only_dbias) { check<bf16>({{groups, 1, 2}, 5, 96, 96, 2, kBf16, kFloat, false, false}); }
TEST(only_dweight) {
  check<bf16>({{groups, 2, 2}, 6, 640, 640, 1, kBf16, kFloat, false, true, false});
}
TEST(rows_of_any_element) {
  problem is{{any_groups, 2, 4}, 23, 704, 712, 2, kHalf, kFloat};
  is.mean = 2;
  check<half>(is);
  is.width = 701, is.stride = 703, is.dbias = false;
  check<half>(is);
}
TEST(rms_rows_of_any_element) {
  problem is{{any_groups, 1, 4}, 11, 501, 503, 2, kFloat, kFloat};
  is.centred = false, is.mean = 2, is.offset = 1;
  check<float>(is);
}
TEST(sums_in_float_of_any_element) {
  problem is{{any_groups, 1, 4}, 23, 504, 504, 2, kBf16, kFloat};
  is.adds = true, is.p = 0.5;
  check<bf16, float>(is);
  is.width = 503, is.centred = false, is.offset = -0.5f, is.dsum = false;
  check<bf16, float>(is);
}
TEST(sums_in_float_for_x_alone) {
  problem is{{any_groups, 2, 1}, 5, 1000, 1000, 2, kBf16, kFloat};
  is.adds = true, is.dresidual = false;
  check<bf16, float>(is);
}
TEST(long_rows_of_bf16) { check<bf16>({{long_rows, 2, 1}, 23, 1640, 1648, 20, kBf16, kFloat}); }
TEST(wide_rows) { check<bf16>({{any_long, 2, 1}, 23, 1640, 1648, 20, kBf16, kFloat}); }
TEST(wide_rows_of_whole_warps) {
  check<bf16>({{any_long, 2, 1}, 18, 1536, 1536, 17, kFloat, kHalf});
}
TEST(wide_rows_whose_last_warp_has_one_column) {
  check<float>({{any_long, 2, 1}, 3, 1025, 1025, 2, kFloat, kFloat, true, true, true, true, 3e4f});
}
TEST(wide_sums) {
  problem is{{any_long, 2, 1}, 11, 1640, 1648, 10, kBf16, kFloat};
  is.adds = true, is.p = 0.3;
  check<bf16>(is);
}
TEST(wide_rms_rows) {
  problem is{{any_long, 2, 1}, 5, 1641, 1643, 2, kFloat, kFloat};
  is.centred = false, is.mean = 2, is.offset = 1;
  check<float>(is);
}

#elif CONFIGS == 1

TEST(rms_rows) {
  problem is{{rms_groups, 2, 4}, 23, 704, 712, 2, kBf16, kFloat};
  is.mean = 2, is.offset = 1;
  check<bf16>(is);
}
TEST(sums) { check<bf16>({{add_groups, 2, 4}, 23, 704, 712, 2, kBf16, kFloat}); }
TEST(sums_with_dropout) {
  problem is{{add_groups, 3, 1}, 7, 1536, 1536, 3, kFloat, kBf16};
  is.p = 0.3;
  check<bf16>(is);
}
TEST(sums_without_their_own_gradient) {
  problem is{{add_groups, 1, 4}, 9, 264, 264, 2, kBf16, kBf16};
  is.dsum = false, is.dx = false;
  check<bf16>(is);
}
TEST(sums_in_float) {
  problem is{{add_floats, 1, 4}, 23, 504, 504, 2, kBf16, kFloat};
  is.p = 0.5, is.offset = -0.5f;
  check<bf16, float>(is);
}

#elif CONFIGS == 2

TEST(pipelined_sums_in_float) {
  problem is{{pipelined_floats, 2, 1}, 9, 1000, 1008, 2, kBf16, kFloat};
  is.p = 0.5, is.offset = -0.5f;
  check<bf16, float>(is);
}

TEST(pipelined_rows) { check<bf16>({{pipelined, 3, 1}, 17, 1536, 1544, 2, kFloat, kBf16}); }
TEST(fewer_rows_than_slots) { check<bf16>({{pipelined, 2, 1}, 3, 704, 712, 2, kBf16, kFloat}); }
TEST(pipelined_rows_over_a_large_mean) {
  problem is{{pipelined, 2, 1}, 7, 1016, 1016, 1, kBf16, kFloat};
  is.mean = 300;
  check<bf16>(is);
}
TEST(pipelined_dx_alone) {
  check<bf16>({{pipelined, 2, 1}, 5, 1024, 1024, 2, kBf16, kBf16, true, false, false, false});
}
TEST(pipelined_rms_rows) {
  problem is{{pipelined_rms, 2, 1}, 11, 904, 904, 2, kBf16, kFloat};
  is.offset = 1;
  check<bf16>(is);
}
TEST(pipelined_sums) {
  problem is{{pipelined_add, 2, 1}, 11, 1000, 1008, 2, kBf16, kFloat};
  is.p = 0.3;
  check<bf16>(is);
}
TEST(pipelined_rms_sums) {
  problem is{{pipelined_add_rms, 2, 1}, 9, 1000, 1008, 2, kBf16, kFloat};
  is.p = 0.5, is.offset = -0.5f;
  check<bf16>(is);
}
TEST(pipelined_sums_without_their_own_gradient) {
  problem is{{pipelined_add, 2, 1}, 5, 520, 520, 2, kBf16, kBf16};
  is.dsum = false, is.dx = false;
  check<bf16>(is);
}

#elif CONFIGS == 4

TEST(medium_rows) {
  check<bf16>({{medium, 2, 4}, 41, 704, 712, 2, kBf16, kFloat});
  check<bf16>({{medium, 3, 2}, 23, 1288, 1288, 2, kFloat, kBf16});
}
TEST(fewer_rows_than_slots_and_groups) {
  check<bf16>({{medium, 2, 4}, 6, 520, 520, 2, kBf16, kBf16});
  check<bf16>({{medium, 2, 4}, 13, 520, 520, 1, kBf16, kBf16});
}
TEST(medium_rows_over_a_large_mean) {
  problem is{{medium, 2, 4}, 19, 760, 760, 1, kBf16, kFloat};
  is.mean = 300;
  check<bf16>(is);
}
TEST(medium_dx_alone) {
  check<bf16>({{medium, 2, 2}, 9, 1016, 1016, 2, kBf16, kBf16, true, false, false, false});
}
TEST(medium_dweight_alone) {
  check<bf16>({{medium, 2, 4}, 17, 640, 640, 1, kBf16, kFloat, false, true, false});
}
TEST(medium_rms_rows) {
  problem is{{medium_rms, 2, 4}, 50, 904, 912, 2, kBf16, kFloat};
  is.mean = 2, is.offset = 1;
  check<bf16>(is);
}
TEST(medium_sums) {
  problem is{{medium_add, 2, 3}, 23, 1000, 1008, 2, kFloat, kBf16};
  is.p = 0.3;
  check<bf16>(is);
}
TEST(medium_sums_without_their_own_gradient) {
  problem is{{medium_add, 2, 4}, 11, 520, 520, 1, kBf16, kBf16};
  is.dsum = false, is.dx = false;
  check<bf16>(is);
}

#else

TEST(few_rows) { check<bf16>({{few, 3, 1}, 11, 1416, 1424, 0, kBf16, kFloat}); }
TEST(few_rows_in_two_rounds) { check<bf16>({{few, 1, 1}, 83, 136, 144, 0, kFloat, kBf16}); }
TEST(few_rows_of_more_warps_than_a_block_of_columns_needs) {
  check<bf16>({{few, 10, 1}, 2, 4616, 4616, 0, kBf16, kHalf});
}
TEST(few_single_elements_with_a_large_mean) {
  problem is{{any_few, 2, 1}, 9, 517, 519, 0, kFloat, kHalf};
  is.mean = 3e4f;
  check<float>(is);
}
TEST(dx_of_few_rows) {
  check<bf16>({{few, 1, 1}, 5, 264, 264, 0, kBf16, kBf16, true, false, false, false});
}
TEST(dbias_of_few_rows) { check<bf16>({{few, 1, 1}, 5, 96, 96, 0, kBf16, kFloat, false, false}); }
TEST(dweight_of_few_rows) {
  check<bf16>({{few, 2, 1}, 6, 640, 640, 0, kBf16, kFloat, false, true, false});
}
TEST(few_rms_rows) {
  problem is{{few_rms, 2, 1}, 70, 704, 712, 0, kBf16, kFloat};
  is.mean = 2, is.offset = 1;
  check<bf16>(is);
}
TEST(few_sums) {
  problem is{{few_add, 2, 1}, 11, 1000, 1008, 0, kFloat, kBf16};
  is.p = 0.3;
  check<bf16>(is);
}
TEST(few_sums_without_their_own_gradient) {
  problem is{{few_add, 1, 1}, 9, 264, 264, 0, kBf16, kBf16};
  is.dsum = false, is.dx = false;
  check<bf16>(is);
}
TEST(few_sums_of_single_elements) {
  problem is{{any_few, 2, 1}, 5, 515, 517, 0, kBf16, kFloat};
  is.adds = true, is.p = 0.3;
  check<bf16>(is);
}
TEST(few_sums_in_float) {
  problem own{{few_floats, 1, 1}, 23, 504, 504, 0, kBf16, kFloat};
  own.p = 0.5, own.offset = -0.5f;
  check<bf16, float>(own);
  problem is{{any_few, 1, 1}, 23, 504, 504, 0, kBf16, kFloat};
  is.adds = true, is.centred = false, is.p = 0.5, is.offset = -0.5f;
  check<bf16, float>(is);
}

#endif
