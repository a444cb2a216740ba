// attention_decode as torch ops: `attention_decode` gives a new tensor, `attention_decode_out`
// writes one that is given. Not differentiable.
#include <ATen/ATen.h>

#include "binding/launch.h"
#include "binding/op.h"
#include "binding/overlap.h"
#include "kernels/attention_decode/attention_decode.h"
#include "kernels/attention_decode/torch/attention_decode_call.hpp"

namespace thunderkittens {
namespace {

const kernel kAttentionDecodeKernel("attention_decode", kAttentionDecode);

// ---- The kernel ---------------------------------------------------------------------------------

constexpr int64_t kCacheBytes = 16, kRowBytes = 4;  // what starts at multiples of which

attention_decode_problem problem_of(const attention_decode_call& c) {
  return {
      .batch = c.q.size(0),
      .queries = c.q.size(1),
      .heads = c.q.size(2),
      .key_heads = c.k_cache.size(2),
      .head_dim = c.q.size(3),
      .q_strides = decode_strides_of(c.q),
      .cache = c.cache().sizes(),
      .scale = c.scale_or_default(),
      .softcap = c.softcap,
      .left = c.window_left.value_or(attention_decode_problem::kAll),
      .type = kernel_dtype_or_float(c.q.scalar_type()),
  };
}

std::string why_torch(const attention_decode_call& c) {
  if (c.q.scalar_type() == at::kDouble) return "float64 is computed by torch";
  if (std::string why = why_unsupported(problem_of(c)); !why.empty()) return why;
  for (const auto& [name, t] :
       {std::pair("k_cache", &c.k_cache), std::pair("v_cache", &c.v_cache)}) {
    if (t->numel() > 0 && !rows_start_at(*t, kCacheBytes)) {
      return c10::str(name, "'s rows do not start at multiples of ", kCacheBytes, " bytes");
    }
  }
  return "";
}

// `out` is written, and has rows that the kernel can write.
void compute_by_kernel(const decision& d, const attention_decode_call& c, const Tensor& out) {
  const Tensor q = rows_start_at(c.q, kRowBytes) ? c.q : c.q.clone(at::MemoryFormat::Contiguous);
  const Tensor lengths = as_entries(c.seqlens).contiguous();
  const Tensor table = c.page_table ? as_entries(*c.page_table) : Tensor();
  const Tensor sinks = c.sinks ? c.sinks->to(at::kFloat).contiguous() : Tensor();
  const Tensor k_scale = c.k_scale ? c.k_scale->contiguous() : Tensor();
  const Tensor v_scale = c.v_scale ? c.v_scale->contiguous() : Tensor();
  const auto floats = [](const Tensor& t) {
    return t.defined() ? t.const_data_ptr<float>() : nullptr;
  };
  attention_decode_problem problem = problem_of(c);
  problem.q_strides = decode_strides_of(q);
  problem.o_strides = decode_strides_of(out);
  if (table.defined()) problem.cache.table_stride = table.size(0) == 1 ? 0 : table.stride(0);
  launch(d, problem,
         attention_decode_tensors{
             .q = q.const_data_ptr(),
             .k = c.k_cache.const_data_ptr(),
             .v = c.v_cache.const_data_ptr(),
             .o = out.mutable_data_ptr(),
             .seqlens = lengths.const_data_ptr<int>(),
             .table = table.defined() ? table.const_data_ptr<int>() : nullptr,
             .sinks = floats(sinks),
             .k_scale = floats(k_scale),
             .v_scale = floats(v_scale),
         });
}

// Into `out`, or where it is undefined a new tensor. Undefined where the caller only asks.
Tensor compute_decode(const attention_decode_call& c, const Tensor& out) {
  const auto result = [&] { return out.defined() ? out : empty_contiguous(c.q); };
  if (c.q.numel() == 0 && explaining() == nullptr) return result();
  const decision d = decide(kAttentionDecodeKernel, c.q.device(), why_torch(c));
  if (d.explained) {
    if (d.on != nullptr && !rows_start_at(c.q, kRowBytes)) {
      explaining()->notes.push_back(
          c10::str("q is copied first: its rows do not start at multiples of ", kRowBytes,
                   " bytes (strides ", c.q.strides(), ")"));
    }
    return {};
  }
  if (d.on == nullptr) {
    const Tensor o = attention_decode_by_aten(c);
    return out.defined() ? out.copy_(o) : o;
  }
  if (c.cache().is_empty()) return result().zero_();
  if (out.defined() && !rows_start_at(out, kRowBytes)) {
    const Tensor o = empty_contiguous(c.q);
    compute_by_kernel(d, c, o);
    return out.copy_(o);
  }
  const Tensor o = result();
  compute_by_kernel(d, c, o);
  return o;
}

// ---- Ops ----------------------------------------------------------------------------------------

constexpr auto kQuery = tensor("q", dtype_rule::floating, "B,Sq,Hq,D");
constexpr auto kKeys =
    tensor("k_cache", dtype_rule::same_or_float8, "B,S,Hk,D").if_packed("P,S,Hk,D");
constexpr auto kValues =
    tensor("v_cache", dtype_rule::same_or_float8, "B,S,Hk,D").if_packed("P,S,Hk,D");
constexpr auto kLengths = tensor("seqlens", dtype_rule::index, "B");
constexpr auto kTable =
    optional(tensor("page_table", dtype_rule::index, "B,M")).otherwise("None").only_if_packed();
constexpr auto kScale = optional(number("scale")).otherwise("None");
constexpr auto kLeft = optional(integer("window_left", 0)).otherwise("None");
constexpr auto kSoftcap = number("softcap", 0.0).otherwise("0.0");
constexpr auto kSinks =
    optional(tensor("sinks", dtype_rule::same_or_float32, "Hq")).otherwise("None");
constexpr auto kKeyScale = optional(tensor("k_scale", dtype_rule::float32, "Hk")).otherwise("None");
constexpr auto kValueScale =
    optional(tensor("v_scale", dtype_rule::float32, "Hk")).otherwise("None");

void check_caches(const attention_decode_call& c) {
  check_fp8("attention_decode", c.k_cache, c.v_cache, c.k_scale, c.v_scale);
}

constexpr std::string_view kNoBackward =
    "there is no backward: call it under torch.no_grad(), or attention";

// The dtype of a cache stays what it is, also under autocast; that of q is its, or if it is of
// float8_e4m3fn q's own.
auto cast_query(const auto& next, const Tensor& q, const Tensor& k_cache, const auto&... options) {
  const at::ScalarType type = k_cache.scalar_type();
  return next(type == at::kFloat8_e4m3fn ? q : q.to(type), k_cache, options...);
}

struct attention_decode {
  static constexpr const char* name = "attention_decode";
  static constexpr autocast_rule autocast = autocast_rule::cast;
  static constexpr divisibility relation{"Hq", "Hk"};
  static constexpr argument_list arguments{kQuery, kKeys,    kValues, kLengths,  kTable,     kScale,
                                           kLeft,  kSoftcap, kSinks,  kKeyScale, kValueScale};
  static constexpr result_list results{like("o", "q")};
  static constexpr std::string_view kNoGradient = kNoBackward;

  static void check_options(const auto&... args) { check_caches(attention_decode_call{args...}); }
  static tensor_array<1> compute(const auto&... args) {
    return {compute_decode(attention_decode_call{args...}, Tensor())};
  }
  static auto in_autocast(const auto& next, const auto&, const auto&... args) {
    return cast_query(next, args...);
  }
};

struct attention_decode_out {
  static constexpr const char* name = "attention_decode_out";
  static constexpr const char* called = "attention_decode";
  static constexpr autocast_rule autocast = autocast_rule::cast;
  static constexpr divisibility relation{"Hq", "Hk"};
  static constexpr argument_list arguments{
      kQuery,    kKeys,      kValues, kLengths, tensor("out", dtype_rule::same, "B,Sq,Hq,D"),
      kTable,    kScale,     kLeft,   kSoftcap, kSinks,
      kKeyScale, kValueScale};
  static constexpr result_list results{};
  static constexpr size_t kWritten = 1, kFirstWritten = 4;
  static constexpr std::string_view kNoGradient = kNoBackward;
  static constexpr bool kCountsVersions = true;

  static void check_options(const auto&... args) { check_caches(call(args...)); }
  static void compute(const auto&... args) {
    const Tensor& out = std::get<kFirstWritten>(std::tie(args...));
    const attention_decode_call c = call(args...);
    check_no_overlap("attention_decode", "out", out, "");
    for (const auto& [name, t] : {std::pair("q", &c.q), std::pair("k_cache", &c.k_cache),
                                  std::pair("v_cache", &c.v_cache)}) {
      check_no_overlap("attention_decode", "out", out, name, *t, "");
    }
    compute_decode(c, out);
  }
  static auto in_autocast(const auto& next, const auto&, const auto&... args) {
    return cast_query(next, args...);
  }

 private:
  static attention_decode_call call(const Tensor& q, const Tensor& k, const Tensor& v,
                                    const Tensor& seqlens, const Tensor&, const auto&... options) {
    return {q, k, v, seqlens, options...};
  }
};

const register_ops<attention_decode, attention_decode_out> registered_attention_decode;

}  // namespace
}  // namespace thunderkittens
