// AdamW: what is chosen before a launch, and the launches.
#include <algorithm>
#include <cmath>

#include "kernels/adamw/adamw.h"
#include "kittens/host/ceil_div.h"
#include "kittens/host/text.h"

namespace thunderkittens {
namespace {

using kittens::host::ceil_div;
using kittens::host::kernel_handle;
using kittens::host::text;

struct handles {
  kernel_handle<adamw_norm_params> norm = kAdamwNorm;
  kernel_handle<adamw_update_params> update = kAdamwUpdate;
};
const handles& kernels() {
  static const handles all;
  return all;
}

// The tensors of one launch: numbers first … first + count − 1.
struct batch {
  size_t first, count;
};
// At least one: a launch without tensors writes a norm of 0, too.
size_t batches_of(const std::vector<int64_t>& sizes) {
  return std::max<size_t>(1, (sizes.size() + kAdamwTensors - 1) / kAdamwTensors);
}
batch batch_at(const std::vector<int64_t>& sizes, size_t i) {
  const size_t first = i * kAdamwTensors;
  return {first, std::min(sizes.size() - first, size_t{kAdamwTensors})};
}

int64_t chunks_of(int64_t size) { return ceil_div(size, int64_t{kAdamwChunk}); }
int64_t chunks_of(const std::vector<int64_t>& sizes, batch b) {
  int64_t chunks = 0;
  for (size_t i = b.first; i < b.first + b.count; ++i) chunks += chunks_of(sizes[i]);
  return chunks;
}
// Blocks of the norm's launch, at least one, which then has nothing to add up.
int norm_blocks(int64_t chunks) {
  return static_cast<int>(std::clamp<int64_t>(chunks, 1, kAdamwNormBlocks));
}

bool is_aligned(const adamw_addresses& a) {
  uintptr_t bits = 0;
  for (const void* p :
       {a.grad, static_cast<const void*>(a.param), static_cast<const void*>(a.exp_avg),
        static_cast<const void*>(a.exp_avg_sq), static_cast<const void*>(a.master)}) {
    bits |= reinterpret_cast<uintptr_t>(p);
  }
  return bits % 16 == 0;
}

// `at(i)`: the addresses of tensor i.
template <class At>
adamw_table table_of(const std::vector<int64_t>& sizes, batch b, const At& at) {
  adamw_table table{};
  for (size_t i = 0; i < b.count; ++i) {
    const adamw_addresses a = at(b.first + i);
    table.entries[i] = {a, sizes[b.first + i], table.chunks, is_aligned(a)};
    table.chunks += static_cast<int>(chunks_of(sizes[b.first + i]));
  }
  table.tensors = static_cast<int>(b.count);
  return table;
}

std::string why_sizes(const std::vector<int64_t>& sizes) {
  constexpr int64_t kMost = int64_t{1} << 30;  // chunks, whose sum is an int
  for (size_t i = 0; i < batches_of(sizes); ++i) {
    if (chunks_of(sizes, batch_at(sizes, i)) > kMost) {
      return text("more than ", kMost * kAdamwChunk, " elements in a launch");
    }
  }
  return "";
}

void refuse_count(const char* op, size_t expected, size_t got) {
  if (expected != got) {
    throw error(text(op, ": there must be ", expected, " tensors, one for each size, got ", got));
  }
}

}  // namespace

std::string why_unsupported(const grad_norm_problem& p) { return why_sizes(p.sizes); }

std::string why_unsupported(const adamw_problem& p) {
  if (p.moments == dtype::float16) return "moments of float16";
  if (p.master_weights && p.type == dtype::float32) return "master weights of float32 parameters";
  if (p.stochastic_rounding && p.type == dtype::float16 && !p.master_weights) {
    return "stochastic rounding of float16 parameters";
  }
  return why_sizes(p.sizes);
}

grad_norm_plan plan(const grad_norm_problem& p, const device& d) {
  refuse_unsupported("grad_norm", p);
  int64_t blocks = 0;
  for (size_t i = 0; i < batches_of(p.sizes); ++i) {
    blocks += norm_blocks(chunks_of(p.sizes, batch_at(p.sizes, i)));
  }
  return {p, kernels().norm.on(d), {.bytes = blocks * int64_t{sizeof(float)}, .counters = 1}};
}

adamw_plan plan(const adamw_problem& p, const device& d) {
  refuse_unsupported("adamw", p);
  return {p, kernels().update.on(d), {.counters = 1}};
}

void launch(const grad_norm_plan& plan, const grad_norm_tensors& t, const workspace& work,
            stream s) {
  const grad_norm_problem& p = plan.problem;
  refuse_count("grad_norm", p.sizes.size(), t.grads.size());
  int first = 0;
  for (size_t i = 0; i < batches_of(p.sizes); ++i) {
    const batch b = batch_at(p.sizes, i);
    const bool last = i + 1 == batches_of(p.sizes);
    const adamw_norm_params params{
        .table =
            table_of(p.sizes, b, [&](size_t j) { return adamw_addresses{.grad = t.grads[j]}; }),
        .partial = static_cast<float*>(work.memory),
        .norm = last ? t.norm : nullptr,
        .counter = work.counters,
        .first = first,
        .more = p.more,
        .type = p.type,
    };
    plan.kernel.launch(params, s);
    first += norm_blocks(params.table.chunks);
  }
}

void launch(const adamw_plan& plan, const adamw_tensors& t, const workspace& work, stream s) {
  const adamw_problem& p = plan.problem;
  refuse_count("adamw", p.sizes.size(), t.parameters.size());
  for (size_t i = 0; i < batches_of(p.sizes); ++i) {
    const batch b = batch_at(p.sizes, i);
    const bool last = i + 1 == batches_of(p.sizes);
    const adamw_update_params params{
        .table = table_of(p.sizes, b, [&](size_t j) { return t.parameters[j]; }),
        .lr = t.lr,
        .norm = t.grad_norm,
        .skipped = last ? t.skipped : nullptr,
        .counter = work.counters,
        .lr_value = static_cast<float>(p.lr),
        .step = static_cast<float>(p.step),
        .beta1 = static_cast<float>(p.beta1),
        .beta2 = static_cast<float>(p.beta2),
        .rest1 = static_cast<float>(1 - p.beta1),
        .rest2 = static_cast<float>(1 - p.beta2),
        .log_beta1 = static_cast<float>(std::log(p.beta1)),
        .log_beta2 = static_cast<float>(std::log(p.beta2)),
        .eps = static_cast<float>(p.eps),
        .weight_decay = static_cast<float>(p.weight_decay),
        .sign = p.maximize ? -1.0f : 1.0f,
        .max_norm = static_cast<float>(p.max_norm),
        .skip_nonfinite = p.skip_nonfinite,
        .stochastic_rounding = p.stochastic_rounding,
        .master_weights = p.master_weights,
        .seed = p.seed,
        .type = p.type,
        .moments = p.moments,
    };
    plan.kernel.launch(params, s);
  }
}

}  // namespace thunderkittens
