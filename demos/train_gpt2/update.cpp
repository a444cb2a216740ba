// The update, and what it changes: by one rank all parameters, by several each its pieces.
#include <algorithm>
#include <future>

#include "bfloat16.h"
#include "model.h"
#include "parallel.h"

namespace gpt2 {

void model::update() {
  buffers& m = *memory_;
  const results layout(shape_);
  verdict* const said = layout.verdict_in(m.numbers);
  if (exchange_) exchange_->await_sums();
  // Of all pieces: gradients; and gradient, weight, moments and master weight, in and out.
  const double all_matrices = double(shards_.state) / double(shape_.rows() * config_.width);
  begin("norm of the gradients", all_matrices);
  std::vector<const void*> all;
  for (const piece& p : shards_.pieces()) all.push_back(gradient(p.offset));
  float* const norm = numbers() + shape_.micro_steps;
  tk::launch(plans_->grad_norm, {.grads = all, .norm = norm}, work(), queue_.handle());
  if (exchange_) exchange_->gather_numbers(m.numbers, layout.numbers());
  judge({shape_.ranks, shape_.micro_steps, shape_.ranks * shape_.micro_steps * shape_.rows(),
         outliers_},
        {.numbers = m.numbers,
         .said = said,
         .update_norm = m.update_norm,
         .of_losses = m.loss_window,
         .of_norms = m.norm_window},
        queue_.handle());
  const double exact = 4.0 * (m.master != nullptr ? 6 : 4) / double(element());
  begin("AdamW", all_matrices * (exact + (m.master != nullptr ? 2 : 3)));
  if (plans_->adamw_matrices) update_pieces(shards_.matrices, *plans_->adamw_matrices, 0);
  if (plans_->adamw_vectors) {
    update_pieces(shards_.vectors, *plans_->adamw_vectors, shards_.matrices.size());
  }
}

void model::update_pieces(const std::vector<piece>& pieces, const tk::adamw_plan& plan,
                          size_t first) {
  const buffers& m = *memory_;
  // No two pieces of any ranks have one number.
  size_t number = first;
  std::vector<tk::adamw_addresses> addresses;
  for (const piece& p : pieces) {
    addresses.push_back({.grad = gradient(p.offset),
                         .param = weight(p.offset),
                         .exp_avg = m.exp_avg + p.state,
                         .exp_avg_sq = m.exp_avg_sq + p.state,
                         .master = m.master != nullptr ? m.master + p.state : nullptr,
                         .step = m.updates + number,
                         .number = uint32_t(number * size_t(shape_.ranks) + size_t(shape_.rank))});
    ++number;
  }
  tk::launch(plan, {.parameters = addresses, .lr = m.learning_rate, .grad_norm = m.update_norm},
             work(), queue_.handle());
}

void model::complete_weights() {
  if (!exchange_) return;
  exchange_->gather_weights(memory_->weights);
  exchange_->await_weights(shards_.buckets.size() - 2);  // the last to come
}

std::vector<float> model::exact_weights() {
  if (memory_->master != nullptr) return whole_state(memory_->master);
  complete_weights();
  std::vector<float> weights = to_host(queue_, type_, memory_->weights, shards_.total);
  if (shape_.rank > 0) weights.clear();
  return weights;
}

std::vector<float> model::whole_state(const float* state) {
  if (!exchange_) return to_host(queue_, dtype::float32, state, shards_.state);
  const int64_t bytes = shards_.total * element();
  std::vector<float> whole = exchange_->whole_state(state, memory_->gradients, bytes);
  // No backward writes the gradients of positions behind the length, nor what is behind the last
  // parameter: they are zero from the start.
  queue_.clear(memory_->gradients, bytes);
  return whole;
}

void model::set_state(float* state, const std::vector<float>& values) {
  for (const piece& p : shards_.pieces()) {
    // Behind the last parameter there is padding: it stays zero.
    const int64_t count = std::min(p.size, int64_t(values.size()) - p.offset);
    if (count <= 0) continue;
    queue_.copy(state + p.state, values.data() + p.offset, count * int64_t{sizeof(float)});
  }
  queue_.synchronise();  // before the values go
}

void model::set_weights(const std::vector<float>& values) {
  const buffers& m = *memory_;
  if (type_ == dtype::float32) {
    queue_.copy(m.weights, values.data(), parameters_.total * element());
    return queue_.synchronise();  // before the values go
  }
  auto rounding = std::async(std::launch::async, [&] {
    std::vector<bfloat16> rounded(values.size());
    in_parallel(int64_t(rounded.size()), [&](int64_t from, int64_t to) {
      for (int64_t i = from; i < to; ++i) rounded[i] = bfloat16(values[i]);
    });
    return rounded;
  });
  if (m.master != nullptr) set_state(m.master, values);
  const std::vector<bfloat16> rounded = rounding.get();
  queue_.copy(m.weights, rounded.data(), parameters_.total * element());
  queue_.synchronise();  // before they go
}

}  // namespace gpt2
