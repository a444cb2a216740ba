// attention as a torch op, computed by ATen: this release has no CUDA kernel of it.
//
//   s = scale · q kᵀ;  s = softcap · tanh(s / softcap);  masked;  o = softmax(s) v
//
// Query head h reads key head h // (Hq / Hk). The diagonal of row i is i + Sk − Sq. A sink is one
// more logit of each row, without a value. A row with no key gives 0, and lse = its sink (−inf
// without).
//
// Two ops: `attention` gives o, `attention_forward` also lse. Both are compositions of
// differentiable ATen ops, so autograd, Meta and torch.compile follow from those.
#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <torch/library.h>

#include <cmath>
#include <limits>
#include <vector>

#include "binding/arguments.h"
#include "binding/backend.h"

namespace thunderkittens {
namespace {

using at::Tensor;
using c10::SymInt;
using optional_tensor = std::optional<Tensor>;
using optional_int = std::optional<int64_t>;
using optional_size = std::optional<SymInt>;
using two_tensors = std::tuple<Tensor, Tensor>;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

constexpr arguments kDenseArguments({
    tensor("q", dtype_rule::floating, "B,Sq,Hq,D"),
    tensor("k", dtype_rule::same, "B,Sk,Hk,D"),
    tensor("v", dtype_rule::same, "B,Sk,Hk,Dv"),
    boolean("causal"),
    optional(number("scale")),
    optional(integer("window_left", 0)),
    optional(integer("window_right", 0)),
    number("softcap", 0.0),
    optional(tensor("sinks", dtype_rule::same_or_float32, "Hq")),
});
constexpr arguments kPackedArguments({
    tensor("q", dtype_rule::floating, "Tq,Hq,D"),
    tensor("k", dtype_rule::same, "Tk,Hk,D"),
    tensor("v", dtype_rule::same, "Tk,Hk,Dv"),
    boolean("causal"),
    optional(number("scale")),
    optional(integer("window_left", 0)),
    optional(integer("window_right", 0)),
    number("softcap", 0.0),
    optional(tensor("sinks", dtype_rule::same_or_float32, "Hq")),
    tensor("cu_seqlens_q", dtype_rule::index, "B1"),
    tensor("cu_seqlens_k", dtype_rule::index, "B1"),
    integer("max_seqlen_q", 0),
    integer("max_seqlen_k", 0),
});
constexpr divisibility kHeads{"Hq", "Hk"};
constexpr argument_table kDenseTable = kDenseArguments.table("attention", "", kHeads);
constexpr argument_table kPackedTable = kPackedArguments.table("attention", "packed", kHeads);
const enter_arguments enter_dense(kDenseTable), enter_packed(kPackedTable);

const kernel kKernel("attention", "");

struct call {
  Tensor q, k, v;
  bool causal;
  std::optional<double> scale;
  optional_int window_left, window_right;
  double softcap;
  optional_tensor sinks, cu_seqlens_q, cu_seqlens_k;
  optional_size max_seqlen_q, max_seqlen_k;

  bool masked() const { return causal || window_left || window_right; }
};

void check_call(const call& c) {
  const bool packed = c.cu_seqlens_q || c.cu_seqlens_k;
  if (!packed) {
    TORCH_CHECK_VALUE(
        !c.max_seqlen_q && !c.max_seqlen_k,
        "attention: max_seqlen_q and max_seqlen_k must be None without cu_seqlens, got a number");
    check(kDenseTable,
          {c.q, c.k, c.v, c.causal, c.scale, c.window_left, c.window_right, c.softcap, c.sinks});
    return;
  }
  TORCH_CHECK_VALUE(c.cu_seqlens_q && c.cu_seqlens_k,
                    "attention: cu_seqlens_q and cu_seqlens_k must be given "
                    "together, got ",
                    c.cu_seqlens_q ? "cu_seqlens_k" : "cu_seqlens_q", " None");
  TORCH_CHECK_VALUE(c.max_seqlen_q && c.max_seqlen_k,
                    "attention: max_seqlen_q and max_seqlen_k must be given "
                    "with cu_seqlens, got ",
                    c.max_seqlen_q ? "max_seqlen_k" : "max_seqlen_q", " None");
  check(kPackedTable, {c.q, c.k, c.v, c.causal, c.scale, c.window_left, c.window_right, c.softcap,
                       c.sinks, c.cu_seqlens_q, c.cu_seqlens_k, c.max_seqlen_q, c.max_seqlen_k});
  TORCH_CHECK_VALUE(!TORCH_GUARD_OR_FALSE(c.cu_seqlens_q->sym_numel().sym_eq(0)),
                    "attention: cu_seqlens_q must have shape [sequences + 1], got [0]");
}

at::ScalarType computing_dtype(const Tensor& q) {
  return q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

// ---- Which keys a row sees ----------------------------------------------------------------------

Tensor positions(const SymInt& count, const Tensor& like) {
  return at::arange(at::Scalar(count), like.options().dtype(at::kLong));
}

// `diagonal` [Sq]: the key position of each row's diagonal; `column` [Sk]. Returns bool [Sq, Sk].
Tensor band(const call& c, const Tensor& diagonal, const Tensor& column) {
  const Tensor distance = column.unsqueeze(0) - diagonal.unsqueeze(1);
  optional_int right = c.window_right;
  if (c.causal) right = 0;
  Tensor seen = at::ones_like(distance, distance.options().dtype(at::kBool));
  if (right) seen = seen & distance.le(*right);
  if (c.window_left) seen = seen & distance.ge(-*c.window_left);
  return seen;
}

optional_tensor dense_mask(const call& c) {
  if (!c.masked()) return std::nullopt;
  const SymInt rows = c.q.sym_size(1), columns = c.k.sym_size(1);
  const Tensor diagonal = positions(rows, c.q) + at::Scalar(columns - rows);
  return band(c, diagonal, positions(columns, c.q));
}

// Of each of `count` packed tokens: its sequence (-1 when none), and where that starts and how long
// it is.
struct token_places {
  Tensor sequence, start;

  token_places(const Tensor& cu_seqlens, const SymInt& count)
      : sequence(at::bucketize(positions(count, cu_seqlens), cu_seqlens, false, /*right=*/true) -
                 1) {
    sequence = sequence.masked_fill(sequence >= at::Scalar(cu_seqlens.sym_size(0) - 1), -1);
    start = cu_seqlens.index_select(0, sequence.clamp_min(0));
  }
};

// The length of each token's sequence in another packing.
Tensor lengths(const Tensor& cu_seqlens, const Tensor& sequence) {
  const Tensor first = sequence.clamp_min(0);
  const Tensor next = (first + 1).clamp_max(at::Scalar(cu_seqlens.sym_size(0) - 1));
  return cu_seqlens.index_select(0, next) - cu_seqlens.index_select(0, first);
}

// ---- The formula --------------------------------------------------------------------------------

// q [B, Sq, Hq, D], k [B, Sk, Hk, D], v [B, Sk, Hk, Dv], seen [Sq, Sk] → o [B, Sq, Hq, Dv], lse [B,
// Hq, Sq].
two_tensors formula(const call& c, const Tensor& q, const Tensor& k, const Tensor& v,
                    const optional_tensor& seen) {
  const at::ScalarType type = computing_dtype(q);
  const SymInt batch = q.sym_size(0), rows = q.sym_size(1), heads = q.sym_size(2),
               keys = k.sym_size(1), key_heads = k.sym_size(2), width = q.sym_size(3),
               value_width = v.sym_size(3);
  const SymInt group = TORCH_GUARD_OR_FALSE(key_heads.sym_eq(0)) ? SymInt(1) : heads / key_heads;
  const double default_scale =
      1.0 / std::sqrt(static_cast<double>(width.guard_int(__FILE__, __LINE__)));
  const double scale = c.scale.value_or(std::isfinite(default_scale) ? default_scale : 1.0);

  // The query heads of one key head stand under one another, so that one product serves them.
  const Tensor queries = q.to(type)
                             .reshape_symint({batch, rows, key_heads, group, width})
                             .permute({0, 2, 3, 1, 4})
                             .reshape_symint({batch, key_heads, group * rows, width});
  Tensor scores = at::matmul(queries, k.to(type).permute({0, 2, 3, 1})) * scale;
  if (c.softcap > 0) scores = at::tanh(scores / c.softcap) * c.softcap;
  scores = scores.reshape_symint({batch, key_heads, group, rows, keys});
  if (seen) scores = scores.masked_fill(seen->logical_not(), -kInfinity);

  // The sink is one more key without a value; without sinks its logit is −inf, which adds nothing.
  const Tensor sink = c.sinks ? c.sinks->to(type).reshape_symint({key_heads, group, 1, 1})
                              : at::full({}, -kInfinity, scores.options());
  const Tensor logits =
      at::cat({scores, sink.expand_symint({batch, key_heads, group, rows, 1})}, /*dim=*/-1);
  const Tensor row_max = logits.detach().amax(-1, /*keepdim=*/true);
  const Tensor anchor = row_max.masked_fill(row_max == -kInfinity, 0);
  const Tensor weights = at::exp(logits - anchor);
  const Tensor sum = weights.sum(-1, /*keepdim=*/true);
  const Tensor no_key = sum == 0;
  const Tensor divisor = sum.masked_fill(no_key, 1);
  const Tensor probabilities = weights.narrow_symint(-1, 0, keys) / divisor;

  const Tensor o = at::matmul(probabilities.reshape_symint({batch, key_heads, group * rows, keys}),
                              v.to(type).permute({0, 2, 1, 3}))
                       .reshape_symint({batch, heads, rows, value_width})
                       .transpose(1, 2)
                       .to(q.scalar_type());
  const Tensor lse = (at::log(divisor) + anchor).masked_fill(no_key, -kInfinity);
  return {o.contiguous(), lse.reshape_symint({batch, heads, rows})};
}

// ---- Packed sequences ---------------------------------------------------------------------------

// With a mask [total_q, total_k], built on the device: nothing is read back.
two_tensors packed_by_mask(const call& c) {
  const SymInt rows = c.q.sym_size(0), columns = c.k.sym_size(0);
  // The running maximum, as in offsets(): bucketize wants them in order.
  const auto in_order = [](const Tensor& cu_seqlens, const SymInt& total) {
    return std::get<0>(at::cummax(cu_seqlens.to(at::kLong).clamp(0, at::Scalar(total)), 0));
  };
  const Tensor cu_q = in_order(*c.cu_seqlens_q, rows), cu_k = in_order(*c.cu_seqlens_k, columns);
  const token_places query(cu_q, rows), key(cu_k, columns);
  const Tensor diagonal = positions(rows, c.q) - query.start + lengths(cu_k, query.sequence) -
                          lengths(cu_q, query.sequence);
  const Tensor same =
      (query.sequence.unsqueeze(1) == key.sequence.unsqueeze(0)) & (key.sequence >= 0);
  const Tensor seen = band(c, diagonal, positions(columns, c.q) - key.start) & same;
  // A token of no sequence may hold anything: 0 · NaN must not reach the product.
  const Tensor v = c.v.masked_fill((key.sequence < 0).unsqueeze(-1).unsqueeze(-1), 0);
  auto [o, lse] = formula(c, c.q.unsqueeze(0), c.k.unsqueeze(0), v.unsqueeze(0), seen);
  return {o.squeeze(0), lse.squeeze(0)};
}

std::vector<int64_t> offsets(const Tensor& cu_seqlens, int64_t total) {
  const Tensor values = cu_seqlens.to(at::kLong).contiguous();
  std::vector<int64_t> list(values.const_data_ptr<int64_t>(),
                            values.const_data_ptr<int64_t>() + values.numel());
  int64_t last = 0;
  for (int64_t& offset : list) last = offset = std::min(std::max(offset, last), total);
  return list;
}

// One sequence at a time; reads cu_seqlens, which must hold data on the CPU.
two_tensors packed_by_sequence(const call& c) {
  const std::vector<int64_t> query = offsets(*c.cu_seqlens_q, c.q.size(0));
  const std::vector<int64_t> key = offsets(*c.cu_seqlens_k, c.k.size(0));
  std::vector<Tensor> outputs, sums;
  const auto append = [&](int64_t row, int64_t rows, int64_t column, int64_t columns) {
    call one = c;
    one.q = c.q.narrow(0, row, rows).unsqueeze(0);
    one.k = c.k.narrow(0, column, columns).unsqueeze(0);
    one.v = c.v.narrow(0, column, columns).unsqueeze(0);
    auto [o, lse] = formula(c, one.q, one.k, one.v, dense_mask(one));
    outputs.push_back(o.squeeze(0));
    sums.push_back(lse.squeeze(0));
  };
  append(0, query.front(), 0, 0);  // tokens before and after all sequences see no key
  for (size_t i = 0; i + 1 < query.size(); ++i) {
    append(query[i], query[i + 1] - query[i], key[i], key[i + 1] - key[i]);
  }
  append(query.back(), c.q.size(0) - query.back(), 0, 0);
  return {at::cat(outputs), at::cat(sums, /*dim=*/-1)};
}

// Whether the tensor's numbers can be read here: on the CPU, and not one of torch.compile's or
// vmap's stand-ins.
bool readable(const Tensor& t) {
  using c10::DispatchKey;
  constexpr c10::DispatchKeySet kStandIns({DispatchKey::Python, DispatchKey::Functionalize,
                                           DispatchKey::FuncTorchBatched,
                                           DispatchKey::FuncTorchGradWrapper});
  return t.is_cpu() && !t.key_set().has_any(kStandIns);
}

// ---- Ops ----------------------------------------------------------------------------------------

// The case that torch's own fused attention computes: [B, H, S, D], causal aligned to the top left.
bool plain(const call& c) {
  if (c.cu_seqlens_q || c.sinks || c.softcap > 0 || c.window_left || c.window_right) return false;
  const SymInt rows = c.q.sym_size(1), keys = c.k.sym_size(1);
  if (TORCH_GUARD_OR_FALSE(c.q.sym_numel().sym_eq(0)) ||
      TORCH_GUARD_OR_FALSE(c.v.sym_numel().sym_eq(0))) {
    return false;
  }
  return !c.causal || TORCH_GUARD_OR_FALSE(rows.sym_eq(keys)) ||
         TORCH_GUARD_OR_FALSE(rows.sym_eq(1));
}

// Whether to ask for FlashAttention by name. For one row, which is decoding, torch's first choice
// on a GPU is cuDNN, and that plans anew for each number of keys: 25 ms a token, measured on an
// H200. What FlashAttention cannot take, or the user has switched off, is left to torch's choice.
bool decodes_by_flash(const Tensor& q, const Tensor& k, const Tensor& v) {
  if (!q.is_cuda() || !at::globalContext().userEnabledFlashSDP()) return false;
  const kittens::host::device* const gpu = kittens::host::find_device(q.device().index());
  if (gpu == nullptr || gpu->major < 8) return false;
  const at::ScalarType type = q.scalar_type();
  const auto contiguous_rows = [](const Tensor& t) {
    return TORCH_GUARD_OR_FALSE(t.sym_stride(-1).sym_eq(1));
  };
  return (type == at::kHalf || type == at::kBFloat16) && contiguous_rows(q) && contiguous_rows(k) &&
         contiguous_rows(v) && TORCH_GUARD_OR_FALSE(q.sym_size(1).sym_eq(1)) &&
         TORCH_GUARD_OR_FALSE(q.sym_size(3).sym_eq(v.sym_size(3))) &&
         TORCH_GUARD_OR_FALSE((q.sym_size(3) % 8).sym_eq(0)) &&
         TORCH_GUARD_OR_FALSE(q.sym_size(3).sym_le(256));
}

Tensor fused(const call& c) {
  const bool one_row = TORCH_GUARD_OR_FALSE(c.q.sym_size(1).sym_eq(1));  // sees every key
  const bool grouped = !TORCH_GUARD_OR_FALSE(c.q.sym_size(2).sym_eq(c.k.sym_size(2)));
  const Tensor q = c.q.transpose(1, 2), k = c.k.transpose(1, 2), v = c.v.transpose(1, 2);
  const Tensor o =
      decodes_by_flash(c.q, c.k, c.v)
          ? std::get<0>(at::_scaled_dot_product_flash_attention(
                q, k, v, /*dropout_p=*/0.0, /*is_causal=*/false, /*return_debug_mask=*/false,
                c.scale))
          : at::scaled_dot_product_attention(q, k, v, /*attn_mask=*/{}, /*dropout_p=*/0.0,
                                             /*is_causal=*/c.causal && !one_row, c.scale, grouped);
  return o.transpose(1, 2).contiguous();
}

// lse is undefined when it is not wanted.
two_tensors compute(const call& c, bool wants_lse) {
  check_call(c);
  const decision d = decide(kKernel, c.q.device(), "");
  if (d.explained) return {at::empty({0}, c.q.options()), at::empty({0}, c.q.options())};
  if (!wants_lse && plain(c)) return {fused(c), Tensor()};
  if (!c.cu_seqlens_q) return formula(c, c.q, c.k, c.v, dense_mask(c));
  return readable(*c.cu_seqlens_q) && readable(*c.cu_seqlens_k) ? packed_by_sequence(c)
                                                                : packed_by_mask(c);
}

two_tensors attention_forward(const Tensor& q, const Tensor& k, const Tensor& v, bool causal,
                              std::optional<double> scale, optional_int window_left,
                              optional_int window_right, double softcap,
                              const optional_tensor& sinks, const optional_tensor& cu_seqlens_q,
                              const optional_tensor& cu_seqlens_k, optional_size max_seqlen_q,
                              optional_size max_seqlen_k) {
  return compute({q, k, v, causal, scale, window_left, window_right, softcap, sinks, cu_seqlens_q,
                  cu_seqlens_k, max_seqlen_q, max_seqlen_k},
                 /*wants_lse=*/true);
}

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, bool causal,
                 std::optional<double> scale, optional_int window_left, optional_int window_right,
                 double softcap, const optional_tensor& sinks, const optional_tensor& cu_seqlens_q,
                 const optional_tensor& cu_seqlens_k, optional_size max_seqlen_q,
                 optional_size max_seqlen_k) {
  return std::get<0>(compute({q, k, v, causal, scale, window_left, window_right, softcap, sinks,
                              cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k},
                             /*wants_lse=*/false));
}

// Under autocast q, k and v take its dtype; so do sinks, except that float32 sinks stay float32, as
// the formula's float32 does.
template <c10::DeviceType Device, auto Op>
struct autocast;

template <c10::DeviceType Device, class Result, class... Options,
          Result (*Op)(const Tensor&, const Tensor&, const Tensor&, Options...)>
struct autocast<Device, Op> {
  static Result run(const Tensor& q, const Tensor& k, const Tensor& v, Options... options) {
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(
        c10::DispatchKeySet(at::autocast::get_autocast_dispatch_key_from_device_type(Device)));
    const at::ScalarType type = at::autocast::get_autocast_dtype(Device);
    const auto cast = [&](const Tensor& t) { return at::autocast::cached_cast(type, t, Device); };
    return Op(cast(q), cast(k), cast(v), option<std::decay_t<Options>>(type, options)...);
  }

 private:
  // An optional tensor is sinks, or offsets of integers, which cached_cast leaves as they are.
  template <class T>
  static T option(at::ScalarType type, const T& given) {
    if constexpr (std::is_same_v<T, optional_tensor>) {
      if (given && given->scalar_type() != at::kFloat) {
        return at::autocast::cached_cast(type, *given, Device);
      }
    }
    return given;
  }
};

constexpr const char* kOptions =
    "(Tensor q, Tensor k, Tensor v, *, bool causal=False, float? scale=None, int? "
    "window_left=None, "
    "int? window_right=None, float softcap=0.0, Tensor? sinks=None, Tensor? cu_seqlens_q=None, "
    "Tensor? cu_seqlens_k=None, SymInt? max_seqlen_q=None, SymInt? max_seqlen_k=None) -> ";

TORCH_LIBRARY_FRAGMENT(thunderkittens, m) {
  m.def(c10::str("attention", kOptions, "Tensor").c_str(), {at::Tag::pt2_compliant_tag});
  m.def(c10::str("attention_forward", kOptions, "(Tensor o, Tensor lse)").c_str(),
        {at::Tag::pt2_compliant_tag});
}

TORCH_LIBRARY_IMPL(thunderkittens, CompositeImplicitAutograd, m) {
  m.impl("attention", attention);
  m.impl("attention_forward", attention_forward);
}

TORCH_LIBRARY_IMPL(thunderkittens, AutocastCPU, m) {
  m.impl("attention", autocast<at::kCPU, &attention>::run);
  m.impl("attention_forward", autocast<at::kCPU, &attention_forward>::run);
}

TORCH_LIBRARY_IMPL(thunderkittens, AutocastCUDA, m) {
  m.impl("attention", autocast<at::kCUDA, &attention>::run);
  m.impl("attention_forward", autocast<at::kCUDA, &attention_forward>::run);
}

}  // namespace
}  // namespace thunderkittens
