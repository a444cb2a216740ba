// attention as a torch op: schema, outputs, backends, fakes. The checks are in
// attention_arguments.cpp, autograd and autocast in attention_autograd.cpp, the ATen implementation
// in attention_reference.cpp and attention_gradients.cpp.
//
//   o = softmax(scale · q kᵀ, masked) v,   lse = log Σ exp(scale · q kᵀ, masked),   per query row
//
// Three ops: `attention` gives o, `attention_forward` also lse, `attention_backward` the gradients
// of what the kernel computed; it is ATen's as yet, from the saved o and lse.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <limits>

#include "binding/launch.h"
#include "binding/layout.h"
#include "binding/zero_numbers.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/attention_call.hpp"
#include "kernels/attention/attention_operands.hpp"
#include "kernels/attention/attention_reference.hpp"

namespace thunderkittens {
namespace {

using at::Tensor;
using c10::SymInt;
using optional_tensor = std::optional<Tensor>;
using two_tensors = std::tuple<Tensor, Tensor>;
using four_tensors = std::tuple<Tensor, Tensor, Tensor, Tensor>;

const kernel kForwardKernel("attention", "attention_forward");

// ---- The kernel ---------------------------------------------------------------------------------

// The kernel counts rows, keys, their sums and tiles of 64 rows in int.
constexpr int64_t kMostRows = int64_t{1} << 29;
constexpr int64_t kWidest = 256;
// It computes with scale · log₂e, softcap · log₂e and scale / softcap in float.
constexpr double kLeastScale = 1e-30, kMostScale = 1e30;
constexpr double kLeastCap = 1e-6, kMostCap = 1e6;
constexpr int64_t kMostTiles = std::numeric_limits<int>::max();

std::string why_too_large(const attention_call& c) {
  const auto size = [](const SymInt& s) { return s.maybe_as_int().value_or(0); };
  const int64_t rows = size(c.q.sym_size(-3)), keys = size(c.k.sym_size(-3));
  if (rows > kMostRows) return c10::str(rows, " queries are above ", kMostRows);
  if (keys > kMostRows) return c10::str(keys, " keys are above ", kMostRows);
  const int64_t sequences = c.cu_seqlens_q ? size(c.cu_seqlens_q->sym_numel()) : 0;
  const int64_t tiles = (rows + 63) / 64 + sequences, heads = size(c.q.sym_size(-2)),
                batch = c.cu_seqlens_q ? 1 : size(c.q.sym_size(0));
  if (heads > kMostTiles || batch > kMostTiles || (tiles > 0 && heads > kMostTiles / tiles) ||
      (tiles * heads > 0 && batch > kMostTiles / (tiles * heads))) {
    return c10::str(batch, " batches of ", heads, " heads of ", rows, " queries are too many");
  }
  return "";
}

// Why the kernel does not take the call, "" when it does. Symbolic sizes count as small.
std::string why_unsupported(const attention_call& c) {
  const at::ScalarType type = c.q.scalar_type();
  if (type == at::kFloat) return "float32 is computed by torch";
  if (type == at::kDouble) return "float64 is computed by torch";
  const int64_t width = c.q.sym_size(-1).guard_int(__FILE__, __LINE__);
  const int64_t value_width = c.v.sym_size(-1).guard_int(__FILE__, __LINE__);
  for (const int64_t w : {width, value_width}) {
    if (w == 0 || w % 8 != 0 || w > kWidest) {
      return c10::str("head dimension ", w, " is not one of 8, 16 … ", kWidest);
    }
  }
  const double scale = attention_scale(c.scale, width);
  if (!(scale >= kLeastScale && scale <= kMostScale)) {
    return c10::str("scale ", scale, " is not within ", kLeastScale, " and ", kMostScale);
  }
  if (c.softcap > 0 && !(c.softcap >= kLeastCap && c.softcap <= kMostCap)) {
    return c10::str("softcap ", c.softcap, " is not within ", kLeastCap, " and ", kMostCap);
  }
  return why_too_large(c);
}

void take_notes(const attention_call& c) {
  for (const auto& [t, name] : {std::pair(&c.q, "q"), {&c.k, "k"}, {&c.v, "v"}}) {
    const char* reason = t->numel() == 0 ? nullptr : why_copied(*t);
    if (reason == nullptr) continue;
    explaining()->notes.push_back(
        c10::str(name, " is copied first: ", reason, " (strides ", t->strides(), ")"));
  }
  if (c.q.requires_grad() || c.k.requires_grad() || c.v.requires_grad()) {
    explaining()->notes.push_back("its backward is computed by torch");
  }
}

// Of [B, S, H, D], or of packed [T, H, D]; what the stride of a single packed row is, is nothing.
attention_strides strides_of(const Tensor& t) {
  if (t.dim() == 4) return {t.stride(0), t.stride(1), t.stride(2)};
  return {0, t.size(0) == 1 ? t.numel() : t.stride(0), t.stride(1)};
}

// How far a row sees to one side, at most `limit`.
int64_t reach(const std::optional<int64_t>& window, int64_t limit) {
  return window ? std::min(*window, limit) : limit;
}

// lse may be undefined: not wanted.
void forward_kernel(const decision& d, const attention_call& c, const Tensor& o,
                    const Tensor& lse) {
  const Tensor q = operand(c.q), k = operand(c.k), v = operand(c.v);
  const Tensor sinks = c.sinks ? c.sinks->to(at::kFloat).contiguous() : Tensor();
  const bool packed = c.cu_seqlens_q.has_value();
  const Tensor q_ends = packed ? c.cu_seqlens_q->contiguous() : Tensor();
  const Tensor k_ends = packed ? c.cu_seqlens_k->contiguous() : Tensor();
  const int64_t rows = q.size(-3), keys = k.size(-3);
  const int64_t left = reach(c.window_left, keys);
  const int64_t right = c.causal ? 0 : reach(c.window_right, rows);
  // Tiles differ in length under a mask.
  const bool is_drawn = packed || left < keys || right < rows;
  const zero_numbers tiles_drawn = is_drawn ? find_zero_numbers(d, q.device(), 1) : zero_numbers();
  launch(d,
         attention_forward_params{
             .q = q.const_data_ptr(),
             .k = k.const_data_ptr(),
             .v = v.const_data_ptr(),
             .o = o.mutable_data_ptr(),
             .lse = lse.defined() ? lse.mutable_data_ptr<float>() : nullptr,
             .sinks = sinks.defined() ? sinks.const_data_ptr<float>() : nullptr,
             .tiles_drawn = tiles_drawn.first,
             .cu_seqlens_q = packed ? q_ends.const_data_ptr() : nullptr,
             .cu_seqlens_k = packed ? k_ends.const_data_ptr() : nullptr,
             .wide_seqlens_q = packed && q_ends.scalar_type() == at::kLong,
             .wide_seqlens_k = packed && k_ends.scalar_type() == at::kLong,
             .sequences = packed ? q_ends.numel() - 1 : 0,
             .batch = packed ? 1 : q.size(0),
             .rows = rows,
             .keys = keys,
             .heads = q.size(-2),
             .key_heads = k.size(-2),
             .head_dim = q.size(-1),
             .value_dim = v.size(-1),
             .q_strides = strides_of(q),
             .k_strides = strides_of(k),
             .v_strides = strides_of(v),
             .scale = static_cast<float>(attention_scale(c.scale, q.size(-1))),
             .softcap = static_cast<float>(c.softcap),
             .left = left,
             .right = right,
             .type = *kernel_dtype(q.scalar_type()),
         },
         q.device());
}

// ---- Ops ----------------------------------------------------------------------------------------

Tensor none(const Tensor& like) { return at::empty({0}, like.options()); }

// Contiguous whatever the strides of `like`.
Tensor empty_contiguous(const Tensor& like) {
  return at::empty_symint(like.sym_sizes(), like.options());
}

// [B, Sq, Hq, Dv], packed [Tq, Hq, Dv].
Tensor empty_output(const attention_call& c) {
  c10::SmallVector<SymInt, 4> sizes(c.q.sym_sizes());
  sizes.back() = c.v.sym_sizes().back();
  return at::empty_symint(sizes, c.q.options());
}

// [B, Hq, Sq], packed [Hq, Tq].
Tensor empty_lse(const attention_call& c) {
  const auto sizes = c.q.sym_sizes();
  const auto options = c.q.options().dtype(attention_computing_dtype(c.q));
  return sizes.size() == 3 ? at::empty_symint({sizes[1], sizes[0]}, options)
                           : at::empty_symint({sizes[0], sizes[2], sizes[1]}, options);
}

// The same numbers with the strides that Meta promises, also of dimensions of size 1.
Tensor exactly_contiguous(const Tensor& t) {
  return t.defined() ? t.contiguous().view(-1).view(t.sizes()) : t;
}

// lse is undefined when it is not wanted.
two_tensors compute(const attention_call& c, bool wants_lse) {
  check_call(c);
  const bool no_rows = c.q.numel() == 0 && c.q.sizes().back() != 0;
  if (no_rows && explaining() == nullptr) return {empty_output(c), empty_lse(c)};
  const decision d = decide(kForwardKernel, c.q.device(), why_unsupported(c));
  if (d.explained) {
    if (d.run != nullptr) take_notes(c);
    return {none(c.q), none(c.q)};
  }
  if (d.run == nullptr) {
    const auto [o, lse] = attention_by_aten(c, wants_lse);
    return {exactly_contiguous(o), exactly_contiguous(lse)};
  }
  const Tensor o = empty_output(c);
  const Tensor lse = wants_lse ? empty_lse(c) : Tensor();
  if (c.k.size(-3) == 0) {  // nothing for TMA to read
    o.zero_();
    if (wants_lse && c.sinks) {
      lse.copy_(c.sinks->unsqueeze(-1).expand_as(lse));
    } else if (wants_lse) {
      lse.fill_(-std::numeric_limits<double>::infinity());
    }
  } else {
    forward_kernel(d, c, o, lse);
  }
  return {o, lse};
}

// ---- Meta: shapes, dtypes and strides, also of symbolic sizes -----------------------------------

Tensor attention_meta(const attention_call& c) {
  check_call(c);
  return empty_output(c);
}
two_tensors attention_forward_meta(const attention_call& c) {
  check_call(c);
  return {empty_output(c), empty_lse(c)};
}

four_tensors attention_backward_meta(const attention_backward_call& b) {
  check_backward(b);
  const attention_call& c = b.forward;
  return {b.needs[0] ? empty_contiguous(c.q) : none(c.q),
          b.needs[1] ? empty_contiguous(c.k) : none(c.k),
          b.needs[2] ? empty_contiguous(c.v) : none(c.v),
          b.needs[3] && c.sinks ? empty_contiguous(*c.sinks) : none(c.q)};
}

constexpr const char* kOptions =
    "*, int? window_left=None, int? window_right=None, float softcap=0.0, Tensor? sinks=None, "
    "Tensor? cu_seqlens_q=None, Tensor? cu_seqlens_k=None, SymInt? max_seqlen_q=None, "
    "SymInt? max_seqlen_k=None) -> ";
constexpr const char* kInputs =
    "(Tensor q, Tensor k, Tensor v, bool causal=False, float? scale=None, ";
constexpr const char* kBackwardInputs =
    "(Tensor dout, Tensor? dlse, Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse, bool causal, "
    "float? scale, bool[4] needs, ";

// One kernel for every device: it looks at the tensors itself, so that a sparse or nested
// tensor or a foreign device gets our sentence and not the dispatcher's.
void every_op(torch::Library& m) {
  m.impl("attention", with_call<attention>);
  m.impl("attention_forward", with_call<attention_forward>);
  m.impl("attention_backward", with_backward<attention_backward>);
}

}  // namespace

bool is_served_by_kernel(const attention_call& c) {
  const std::string unsupported = why_unsupported(c);
  const c10::Device device = c.q.device();
  if (is_stand_in(c.q)) {
    const bool built = !device.is_cuda() || why_not(kForwardKernel, device.index()).empty();
    if (built && unsupported.empty()) return true;
  }
  return decide(kForwardKernel, device, unsupported).run != nullptr;
}

Tensor attention(const attention_call& c) { return std::get<0>(compute(c, /*wants_lse=*/false)); }
two_tensors attention_forward(const attention_call& c) { return compute(c, /*wants_lse=*/true); }

four_tensors attention_backward(const attention_backward_call& given) {
  check_backward(given);
  attention_backward_call b = given;
  attention_call& c = b.forward;
  for (Tensor* t : {&c.q, &c.k, &c.v, &b.o, &b.dout}) *t = operand(*t);
  const auto [dq, dk, dv, dsinks] = attention_backward_by_aten(b);
  return {b.needs[0] ? exactly_contiguous(dq) : none(c.q),
          b.needs[1] ? exactly_contiguous(dk) : none(c.q),
          b.needs[2] ? exactly_contiguous(dv) : none(c.q),
          b.needs[3] && c.sinks ? exactly_contiguous(dsinks) : none(c.q)};
}

TORCH_LIBRARY_FRAGMENT(thunderkittens, m) {
  const auto define = [&](const char* name, const char* inputs, const char* outputs) {
    m.def(c10::str(name, inputs, kOptions, outputs).c_str(), {at::Tag::pt2_compliant_tag});
  };
  define("attention", kInputs, "Tensor");
  define("attention_forward", kInputs, "(Tensor o, Tensor lse)");
  define("attention_backward", kBackwardInputs, "(Tensor dq, Tensor dk, Tensor dv, Tensor dsinks)");
}

TORCH_LIBRARY_IMPL(thunderkittens, CompositeExplicitAutograd, m) { every_op(m); }
TORCH_LIBRARY_IMPL(thunderkittens, NestedTensorCPU, m) { every_op(m); }
TORCH_LIBRARY_IMPL(thunderkittens, NestedTensorCUDA, m) { every_op(m); }

TORCH_LIBRARY_IMPL(thunderkittens, Meta, m) {
  m.impl("attention", with_call<attention_meta>);
  m.impl("attention_forward", with_call<attention_forward_meta>);
  m.impl("attention_backward", with_backward<attention_backward_meta>);
}

}  // namespace thunderkittens
