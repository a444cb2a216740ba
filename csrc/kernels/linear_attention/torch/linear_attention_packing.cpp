// Where the tokens of packed sequences lie in chunks, by ATen: nothing is read back.
#include "kernels/linear_attention/torch/linear_attention_packing.hpp"

#include <ATen/ATen.h>

#include <algorithm>

namespace thunderkittens {
namespace {

// Of each number that of the interval it lies in, by the intervals' ends, in order; the last one of
// those beyond. Intervals without a number are passed over.
Tensor find_interval(const Tensor& numbers, const Tensor& ends) {
  return at::bucketize(numbers, ends, /*out_int32=*/false, /*right=*/true)
      .clamp_max(ends.size(0) - 1);
}

}  // namespace

Tensor find_tokens_of_sequences(const Tensor& cu_seqlens, int64_t length) {
  const Tensor tokens = at::arange(length, cu_seqlens.options());
  return tokens.ge(cu_seqlens.select(0, 0)).logical_and(tokens.lt(cu_seqlens.select(0, -1)));
}

packing::packing(const Tensor& cu_seqlens, int64_t length, int64_t chunk) : chunk_(chunk) {
  // The running maximum: bucketize wants them in order.
  const Tensor bounds = std::get<0>(at::cummax(cu_seqlens.to(at::kLong).clamp(0, length), 0));
  const int64_t sequences = bounds.size(0) - 1;
  const Tensor start = bounds.narrow(0, 0, sequences), end = bounds.narrow(0, 1, sequences);
  const Tensor after = (end - start + (chunk - 1)).floor_divide(chunk).cumsum(0);
  first_ = at::cat({at::zeros({1}, after.options()), after.narrow(0, 0, sequences - 1)});
  last_ = after - 1;

  const int64_t chunks = std::min(length, (length + sequences * (chunk - 1)) / chunk);
  const Tensor number = at::arange(chunks, bounds.options());
  sequence_ = find_interval(number, after);
  const Tensor first_of_own = first_.index_select(0, sequence_);
  rank_ = number - first_of_own;
  begins_ = rank_ == 0;
  ends_ = number == last_.index_select(0, sequence_);
  const Tensor token = (start.index_select(0, sequence_) + rank_ * chunk).unsqueeze(1) +
                       at::arange(chunk, bounds.options());  // [N, chunk]
  is_vacant_ = (token >= end.index_select(0, sequence_).unsqueeze(1)).flatten();
  token_ = token.clamp_max(length - 1).flatten();

  const Tensor tokens = at::arange(length, bounds.options());
  const Tensor own = find_interval(tokens, end);
  place_ = ((first_ * chunk - start).index_select(0, own) + tokens).clamp(0, chunks * chunk - 1);
  is_stray_ = find_tokens_of_sequences(bounds, length).logical_not();
}

Tensor packing::in_chunks(const Tensor& t) const {
  std::vector<int64_t> sizes = t.sizes().vec(), ones(t.dim(), 1);
  sizes[2] = sequence_.size(0);
  sizes.insert(sizes.begin() + 3, chunk_);
  ones[2] = -1;
  return t.index_select(2, token_).masked_fill(is_vacant_.view(ones), 0).view(sizes);
}

Tensor packing::of_tokens(const Tensor& t) const {
  std::vector<int64_t> ones(t.dim() - 1, 1);
  ones[2] = -1;
  return t.flatten(2, 3).index_select(2, place_).masked_fill(is_stray_.view(ones), 0);
}

Tensor packing::sums_before(const Tensor& t) const {
  const int64_t chunks = t.size(2);
  // What so many chunks before have, or 0 where these are not of the sequence: whatever others have
  // is selected away, not taken off, which would leave its NaN and its rounding.
  const Tensor zero = at::zeros({}, t.options());
  const auto earlier = [&](const Tensor& of_chunks, int64_t by) {
    const Tensor is_own = rank_.narrow(0, by, chunks - by) >= by;
    return at::where(is_own, of_chunks.narrow(2, 0, chunks - by), zero);
  };
  Tensor sums = at::zeros_like(t);
  if (chunks == 1) return sums;
  sums.narrow(2, 1, chunks - 1).copy_(earlier(t, 1));
  // Each step adds to a sum the one that ends where it begins: then it is of twice as many.
  for (int64_t by = 1; by < chunks - 1; by *= 2) {
    sums.narrow(2, by, chunks - by).add_(earlier(sums, by));
  }
  return sums;
}

Tensor packing::entering(const Tensor& state, const Tensor& initial, int64_t chunk,
                         bool reverse) const {
  const Tensor own = initial.index_select(0, sequence_.narrow(0, chunk, 1));
  return at::where((reverse ? ends_ : begins_).select(0, chunk), own, state);
}

Tensor packing::leaving(const Tensor& t, bool reverse) const {
  const Tensor chunk = (reverse ? first_ : last_).clamp(0, t.size(2) - 1);
  return t.index_select(2, chunk).squeeze(0).transpose(0, 1);
}

}  // namespace thunderkittens
