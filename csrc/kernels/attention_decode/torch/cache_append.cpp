// cache_append as a torch op: the caches are written in place. Not differentiable.
#include <ATen/ATen.h>

#include "binding/launch.h"
#include "binding/op.h"
#include "binding/overlap.h"
#include "kernels/attention_decode/attention_decode.h"
#include "kernels/attention_decode/torch/cache_operand.hpp"

namespace thunderkittens {
namespace {

const kernel kCacheAppendKernel("cache_append", kCacheAppend);

struct append_call {
  const Tensor &k, &v, &k_cache, &v_cache, &seqlens;
  const optional_tensor &page_table, &cos, &sin, &k_scale, &v_scale;

  cache_operand cache() const { return {k_cache, v_cache, seqlens, page_table}; }
  bool is_turned() const { return cos && !TORCH_GUARD_OR_FALSE(cos->sym_size(1).sym_eq(0)); }
  bool has_nothing_to_do() const {
    return TORCH_GUARD_OR_FALSE(k.sym_numel().sym_eq(0)) ||
           TORCH_GUARD_OR_FALSE(k_cache.sym_numel().sym_eq(0)) ||
           (page_table && TORCH_GUARD_OR_FALSE(page_table->sym_size(1).sym_eq(0)));
  }
};

// ---- Checks -------------------------------------------------------------------------------------

void check_table(const append_call& c, const char* name, const Tensor& t) {
  TORCH_CHECK_NOT_IMPLEMENTED(t.layout() == at::kStrided && !t.is_nested(), "cache_append: ", name,
                              " must be a dense tensor, got one that is not");
  TORCH_CHECK_TYPE(t.scalar_type() == c.k.scalar_type() || t.scalar_type() == at::kFloat,
                   "cache_append: ", name, " must have dtype ", c.k.scalar_type(),
                   " (the dtype of k) or Float, got ", t.scalar_type());
  TORCH_CHECK_VALUE(t.dim() == 2, "cache_append: ", name, " must have shape [T, R/2], got ",
                    t.sym_sizes());
  TORCH_CHECK_VALUE(t.device() == c.k.device(), "cache_append: ", name, " must be on ",
                    c.k.device(), " (the device of k), got ", t.device());
}

// Whether the tables have a column for each element of a head: two equal halves.
bool has_full_width(const append_call& c) {
  return TORCH_GUARD_OR_FALSE(c.cos->sym_size(1).sym_eq(c.k.sym_size(-1)));
}

void check_tables(const append_call& c) {
  TORCH_CHECK_VALUE(c.cos.has_value() == c.sin.has_value(),
                    "cache_append: cos and sin must be given together, got ", c.cos ? "sin" : "cos",
                    " None");
  if (!c.cos) return;
  check_table(c, "cos", *c.cos);
  check_table(c, "sin", *c.sin);
  TORCH_CHECK_TYPE(c.cos->scalar_type() == c.sin->scalar_type(),
                   "cache_append: sin must have the dtype of cos, ", c.cos->scalar_type(), ", got ",
                   c.sin->scalar_type());
  for (const int dim : {0, 1}) {
    TORCH_CHECK_VALUE(
        c.cos->sym_size(dim).sym_eq(c.sin->sym_size(dim)).expect_true(__FILE__, __LINE__),
        "cache_append: sin must have the shape of cos, ", c.cos->sym_sizes(), ", got ",
        c.sin->sym_sizes());
  }
  TORCH_CHECK_VALUE(c.cos->sym_size(0).sym_ge(1).expect_true(__FILE__, __LINE__),
                    "cache_append: cos.size(0) must be at least 1, got 0");
  const SymInt width = c.k.sym_size(-1), columns = c.cos->sym_size(1);
  if (has_full_width(c)) {
    TORCH_CHECK_VALUE((columns % 2).sym_eq(0).expect_true(__FILE__, __LINE__),
                      "cache_append: cos.size(1) must be at most ", width / 2,
                      " (half of k.size(-1)), got ", columns);
  } else {
    TORCH_CHECK_VALUE((columns * 2).sym_le(width).expect_true(__FILE__, __LINE__),
                      "cache_append: cos.size(1) must be at most ", width / 2,
                      " (half of k.size(-1)), or ", width,
                      " where cos and sin have two equal halves, got ", columns);
  }
}

void check_writable(const append_call& c) {
  for (const auto& [name, t] :
       {std::pair("k_cache", &c.k_cache), std::pair("v_cache", &c.v_cache)}) {
    check_no_overlap("cache_append", name, *t, ", since it is written in place");
    for (const auto& [other, u] : {std::pair("k", &c.k), std::pair("v", &c.v)}) {
      check_no_overlap("cache_append", name, *t, other, *u, ", since it is written in place");
    }
  }
  TORCH_CHECK(!overlap(c.k_cache, c.v_cache),
              "cache_append: k_cache and v_cache must not share memory, since both are written in "
              "place, got strides ",
              c.k_cache.strides(), " and ", c.v_cache.strides());
}

// ---- ATen ---------------------------------------------------------------------------------------
//
// Sizes may be symbols: under torch.compile.

// k turned by the angles of its positions, [B, N]
Tensor turned(const append_call& c, const Tensor& positions) {
  const at::ScalarType type = c.k.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const SymInt half = c.cos->sym_size(1);
  const Tensor rows = positions.clamp(0, at::Scalar(c.cos->sym_size(0) - 1)).flatten();
  const auto of_tokens = [&](const Tensor& table) {
    const Tensor chosen = table.index_select(0, rows).to(type);
    return chosen.view_symint({c.k.sym_size(0), c.k.sym_size(1), 1, half});
  };
  const Tensor cos = of_tokens(*c.cos), sin = of_tokens(*c.sin), k = c.k.to(type);
  const Tensor a = k.narrow_symint(-1, 0, half), b = k.narrow_symint(-1, half, half);
  const Tensor rest = k.narrow_symint(-1, 2 * half, k.sym_size(-1) - 2 * half);
  return at::cat({a * cos - b * sin, a * sin + b * cos, rest}, -1).to(c.k.scalar_type());
}

// What a cache holds of k or v.
Tensor cached(const append_call& c, const Tensor& values, const optional_tensor& scale) {
  if (!c.cache().is_fp8()) return values;
  constexpr double kMost = 448;  // of e4m3
  const Tensor of_scale =
      scale ? values.to(at::promoteTypes(values.scalar_type(), at::kFloat)) / scale->unsqueeze(-1)
            : values;
  return of_scale.clamp(-kMost, kMost).to(at::kFloat8_e4m3fn);
}

// A token that has no place writes what the first that has one writes, or, if none has, what is
// there: so nothing is read back from the device.
void append_by_aten(const append_call& c) {
  const SymInt of_page = c.k_cache.sym_size(1);
  const SymInt most = c.page_table ? c.page_table->sym_size(1) * of_page : of_page;
  const at::Scalar tokens(c.k.sym_size(1)), page(of_page), capacity(most), last(most - 1);
  const auto options = c.k.options().dtype(at::kLong);
  const Tensor lengths = c.seqlens.to(at::kLong).unsqueeze(1);
  // (From one that an int64 does not hold nothing is subtracted.)
  const Tensor positions =
      lengths.clamp_min(at::Scalar(-most)) - tokens + at::arange(tokens, options);
  Tensor there = (positions >= 0).logical_and(positions < capacity);
  const Tensor inside = positions.clamp(0, last);
  Tensor pages = at::arange(at::Scalar(c.k.sym_size(0)), options).unsqueeze(1).expand_as(inside);
  if (c.page_table) {
    const SymInt count = c.k_cache.sym_size(0);
    pages = c.page_table->to(at::kLong).gather(1, inside.floor_divide(page));
    there = there.logical_and(pages >= 0).logical_and(pages < at::Scalar(count));
    pages = pages.clamp(0, at::Scalar(count - 1));
  }
  const Tensor flat = there.flatten();
  const Tensor first = flat.to(at::kByte).argmax().view({1}), any = flat.any();
  const auto chosen = [&](const Tensor& of_tokens) {
    const Tensor all = of_tokens.flatten();
    return at::where(flat, all, all.index_select(0, first));
  };
  const Tensor at_page = chosen(pages), at_token = chosen(inside.remainder(page));
  const auto write = [&](const Tensor& of_type, const Tensor& values) {
    const Tensor cache = as_moved(of_type), rows = as_moved(values).flatten(0, 1);
    const auto of_rows = [](const Tensor& t) { return t.view({-1, 1, 1}); };
    const Tensor old = cache.index({at_page, at_token});
    const Tensor given = at::where(of_rows(flat), rows, rows.index_select(0, first));
    cache.index_put_({at_page, at_token}, at::where(any, given, old));
  };
  write(c.k_cache, cached(c, c.is_turned() ? turned(c, positions) : c.k, c.k_scale));
  write(c.v_cache, cached(c, c.v, c.v_scale));
}

// ---- The kernel ---------------------------------------------------------------------------------

cache_append_problem problem_of(const append_call& c) {
  cache_append_problem p{
      .batch = c.k.size(0),
      .tokens = c.k.size(1),
      .key_heads = c.k.size(2),
      .head_dim = c.k.size(3),
      .k_strides = decode_strides_of(c.k),
      .v_strides = decode_strides_of(c.v),
      .cache = c.cache().sizes(),
      .type = kernel_dtype_or_float(c.k.scalar_type()),
      .table_type = kernel_dtype_or_float((c.cos ? *c.cos : c.k).scalar_type()),
  };
  if (c.is_turned()) {
    p.rotated = 2 * c.cos->size(1);
    p.table_rows = c.cos->size(0);
    p.cos_stride = c.cos->stride(0);
    p.sin_stride = c.sin->stride(0);
  }
  return p;
}

std::string why_torch(const append_call& c) {
  if (c.k.scalar_type() == at::kDouble) return "float64 is computed by torch";
  if (!has_neighbours(c.k_cache) || !has_neighbours(c.v_cache)) {
    return "caches whose last stride is not 1 are written by torch";
  }
  return why_unsupported(problem_of(c));
}

Tensor with_neighbours(const Tensor& t) { return has_neighbours(t) ? t : t.contiguous(); }
optional_tensor with_neighbours(const optional_tensor& t) {
  return t ? optional_tensor(with_neighbours(*t)) : t;
}

void append_by_kernel(const decision& d, const append_call& given) {
  const Tensor k = with_neighbours(given.k), v = with_neighbours(given.v);
  const optional_tensor cos = with_neighbours(given.cos), sin = with_neighbours(given.sin);
  const append_call c{k,   v,   given.k_cache, given.v_cache, given.seqlens, given.page_table,
                      cos, sin, given.k_scale, given.v_scale};
  const Tensor k_scale = c.k_scale ? c.k_scale->contiguous() : Tensor();
  const Tensor v_scale = c.v_scale ? c.v_scale->contiguous() : Tensor();
  const Tensor lengths = as_entries(c.seqlens).contiguous();
  const Tensor table = c.page_table ? as_entries(*c.page_table) : Tensor();
  cache_append_problem problem = problem_of(c);
  if (table.defined()) problem.cache.table_stride = table.size(0) == 1 ? 0 : table.stride(0);
  launch(d, problem,
         cache_append_tensors{
             .k = k.const_data_ptr(),
             .v = v.const_data_ptr(),
             .k_cache = c.k_cache.mutable_data_ptr(),
             .v_cache = c.v_cache.mutable_data_ptr(),
             .seqlens = lengths.const_data_ptr<int>(),
             .table = table.defined() ? table.const_data_ptr<int>() : nullptr,
             .cos = c.is_turned() ? cos->const_data_ptr() : nullptr,
             .sin = c.is_turned() ? sin->const_data_ptr() : nullptr,
             .k_scale = c.k_scale ? k_scale.const_data_ptr<float>() : nullptr,
             .v_scale = c.v_scale ? v_scale.const_data_ptr<float>() : nullptr,
         });
}

// By `next`, of whose tables of equal halves there is the first.
void append(const append_call& c, void (*next)(const append_call&)) {
  if (!c.is_turned() || !has_full_width(c)) return next(c);
  const SymInt pairs = c.cos->sym_size(1) / 2;
  const optional_tensor cos = c.cos->narrow_symint(1, 0, pairs),
                        sin = c.sin->narrow_symint(1, 0, pairs);
  next({c.k, c.v, c.k_cache, c.v_cache, c.seqlens, c.page_table, cos, sin, c.k_scale, c.v_scale});
}

void append_as_decided(const append_call& c) {
  if (c.has_nothing_to_do() && explaining() == nullptr) return;
  const decision d = decide(kCacheAppendKernel, c.k.device(), why_torch(c));
  if (d.explained) return;
  d.on == nullptr ? append_by_aten(c) : append_by_kernel(d, c);
}

// ---- The op -------------------------------------------------------------------------------------

struct cache_append {
  static constexpr const char* name = "cache_append";
  static constexpr autocast_rule autocast = autocast_rule::cast;
  static constexpr argument_list arguments{
      tensor("k", dtype_rule::floating, "B,N,Hk,D"),
      tensor("v", dtype_rule::same, "B,N,Hk,D"),
      tensor("k_cache", dtype_rule::same_or_float8, "B,S,Hk,D").if_packed("P,S,Hk,D"),
      tensor("v_cache", dtype_rule::same_or_float8, "B,S,Hk,D").if_packed("P,S,Hk,D"),
      tensor("seqlens", dtype_rule::index, "B"),
      optional(tensor("page_table", dtype_rule::index, "B,M")).otherwise("None").only_if_packed(),
      optional(tensor("cos")).otherwise("None"),
      optional(tensor("sin")).otherwise("None"),
      optional(tensor("k_scale", dtype_rule::float32, "Hk")).otherwise("None"),
      optional(tensor("v_scale", dtype_rule::float32, "Hk")).otherwise("None"),
  };
  static constexpr result_list results{};
  static constexpr size_t kWritten = 2, kFirstWritten = 2;
  static constexpr std::string_view kNoGradient =
      "the caches are written in place: call it under torch.no_grad()";
  static constexpr bool kCountsVersions = true;

  static void check_options(const auto&... args) {
    const append_call c{args...};
    check_tables(c);
    check_fp8("cache_append", c.k_cache, c.v_cache, c.k_scale, c.v_scale);
  }

  static void compute(const auto&... args) {
    const append_call c{args...};
    check_writable(c);
    append(c, append_as_decided);
  }
  // The dtype of a cache stays what it is.
  static auto in_autocast(const auto& next, const auto&, const Tensor& k, const Tensor& v,
                          const Tensor& k_cache, const auto&... options) {
    const at::ScalarType type = k_cache.scalar_type();
    if (type == at::kFloat8_e4m3fn) return next(k, v, k_cache, options...);
    return next(k.to(type), v.to(type), k_cache, options...);
  }
};

const register_ops<cache_append> registered_cache_append;

// ---- Under torch.compile ------------------------------------------------------------------------
//
// Inductor loses where a cache begins that is a view:
//
//   made in the graph, of symbolic sizes: aten.sym_storage_offset is 0 there for a view that
//   Inductor has not laid out (pytorch/pytorch#198068), and the op writes to the tensor's beginning
//   two inputs, of one tensor: its reinplacing pass takes but one of the arguments that an op
//   writes as it is, if they have a storage in common; the other is copied by
//   clone_preserve_strides, from the storage's beginning; but Inductor counts from the input's own,
//   so what is written, and written back, lies behind it
//
// It knows what ATen's ops write. So they append where a cache begins inside of its storage.

using functions_of_append = functions<cache_append, true>;

bool begins_inside(const Tensor& t) {
  return !TORCH_GUARD_OR_FALSE(t.sym_storage_offset().sym_eq(0));
}

void append_traced(const auto&... args) {
  const append_call c{args...};
  if ((!begins_inside(c.k_cache) && !begins_inside(c.v_cache)) || records_gradient(args...)) {
    return functions_of_append::handle().call(args...);
  }
  if (keys_of(args...).has_any(c10::autocast_dispatch_keyset)) {
    const without_autocast guard;
    return cache_append::in_autocast([](const auto&... cast) { append_traced(cast...); }, nullptr,
                                     args...);
  }
  check_call<cache_append>(args...);
  if (!c.has_nothing_to_do()) append(c, append_by_aten);
}

const int registered_cache_append_traced = [] {
  constexpr const char* kName = "cache_append.traced";
  define(schema(kName, kDescription<cache_append>, written_arguments<cache_append>()));
  implement(
      kName, {c10::DispatchKey::CompositeImplicitAutograd},
      +[](const Tensor& k, const Tensor& v, const Tensor& k_cache, const Tensor& v_cache,
          const Tensor& seqlens, const optional_tensor& page_table, const optional_tensor& cos,
          const optional_tensor& sin, const optional_tensor& k_scale,
          const optional_tensor& v_scale) {
        append_traced(k, v, k_cache, v_cache, seqlens, page_table, cos, sin, k_scale, v_scale);
      });
  return 0;
}();

}  // namespace
}  // namespace thunderkittens
