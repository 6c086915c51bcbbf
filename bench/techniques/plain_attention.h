// Attention computed directly from its formula, with all scores in memory at once, as a reference
// for blockwise attention.
#pragma once

#include <vector>

#include "models/backend.h"

namespace lockstep {

// Causal attention like Backend::attention, for f32 and f64. probabilities[sequences, heads, length,
// length] are kept for backward, which needs `room` of length x length elements for each thread.
class PlainAttention {
 public:
  PlainAttention(const AttentionShape& shape, DType dtype, int threads);

  static double kept_bytes(const AttentionShape& shape, DType dtype);
  static double working_bytes(const AttentionShape& shape, DType dtype, int threads);

  void forward(Slice out, Slice qkv);
  void backward(Slice dqkv, Slice dout, Slice qkv);

 private:
  // One head of one sequence: its columns of queries, of keys and of values; its rows of scores.
  struct Head;
  Head head(Slice qkv, Count sequence, Count head);
  Matrix columns_of(Slice out, Count sequence, Count head) const;
  Matrix room(int thread);

  AttentionShape shape_;
  DType dtype_;
  std::vector<std::byte> probabilities_, room_;
};

}  // namespace lockstep
