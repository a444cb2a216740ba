// Packed sequences, each filled up to whole chunks, so that no chunk has tokens of two. Torch.
#pragma once

#include "binding/tensors.h"

namespace thunderkittens {

// Which of `length` tokens are of one of the packed sequences, [T].
Tensor find_tokens_of_sequences(const Tensor& cu_seqlens, int64_t length);

// Where the tokens of packed sequences lie in chunks, found on the device: nothing is read back, so
// a call may be captured in a CUDA graph and replayed of other sequences. All that the host knows
// is shapes; so it takes as many chunks as there can be, N = min(T, (T + M (chunk − 1)) / chunk) of
// M sequences. Those left over have no token and are of no sequence.
class packing {
 public:
  // Of `cu_seqlens` [M + 1]; what is out of range or order is clamped.
  packing(const Tensor& cu_seqlens, int64_t length, int64_t chunk);

  int64_t sequences() const { return first_.size(0); }

  // [1, H, T, …] to chunks, [1, H, N, chunk, …]; places without a token are 0.
  Tensor in_chunks(const Tensor& t) const;
  // … and back; tokens of no sequence are 0.
  Tensor of_tokens(const Tensor& t) const;
  // Of t, [1, H, N], the sum over those chunks of the same sequence that come before.
  Tensor sums_before(const Tensor& t) const;
  // Each sequence's own, [M, H], of its chunks: [1, H, N].
  Tensor of_chunks(const Tensor& t) const { return t.index_select(0, sequence_).t().unsqueeze(0); }

  // The state [1, H, K, V] that a walk over the chunks, onwards or in reverse, has before this one:
  // where it comes to another sequence, that one's of `initial`, [M, H, K, V].
  Tensor entering(const Tensor& state, const Tensor& initial, int64_t chunk, bool reverse) const;
  // Of t, [1, H, N, …], what the chunk has in which the walk leaves a sequence, [M, H, …].
  Tensor leaving(const Tensor& t, bool reverse) const;
  // Which sequences have no token, [M, 1, 1, 1].
  Tensor empty() const { return (first_ > last_).view({-1, 1, 1, 1}); }

 private:
  int64_t chunk_;         // tokens
  Tensor first_, last_;   // [M]: each sequence's chunks; last = first − 1 of one without a token
  Tensor sequence_;       // [N]: of each chunk
  Tensor rank_;           // [N]: of each chunk in its sequence
  Tensor token_;          // [N · chunk]: of each place
  Tensor is_vacant_;      // [N · chunk]: of whose places there is no token
  Tensor place_;          // [T]: of each token
  Tensor is_stray_;       // [T]: of no sequence
  Tensor begins_, ends_;  // [N]: whether the chunk is its sequence's first, its last
};

}  // namespace thunderkittens
