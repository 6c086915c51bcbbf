// How a model's layers are split over ranks, in numbers: which part this rank computes.
#pragma once

#include <algorithm>

#include "collectives/base/dtype.h"

namespace lockstep {

// How the experts of a layer are divided between ranks that have different tokens: each has equally
// many, in order. Each expert may be split in turn, over tensor-parallel ranks: each has as many hidden
// columns.
struct ExpertSplit {
  int ranks = 1, rank = 0;
  int tensor_ranks = 1, tensor_rank = 0;
  bool by_sequence = false;  // tensor-parallel ranks also have different tokens
  Count most_tokens = 0;     // of a rank's own in a micro-batch
  // The router's weights multiply what experts have made where these are, not where the tokens are.
  bool weights_at_experts = false;

  bool is_divided() const { return ranks > 1 || tensor_ranks > 1; }
  Count experts(Count all) const { return all / ranks; }
  Count first_expert(Count all) const { return experts(all) * rank; }
  Count hidden(Count all) const { return all / tensor_ranks; }
  // Of the tensor-parallel ranks, those whose tokens differ.
  int gathered_ranks() const { return by_sequence ? tensor_ranks : 1; }
};

struct LayerSplit {
  int ranks = 1, rank = 0;
  // Sequence parallelism: rows are split in the regions where layers are not (layer norms, dropout,
  // residuals).
  bool by_sequence = false;
  // With by_sequence: keep the gathered input of a linear layer for backward, or gather it again.
  bool keeps_gathered = false;
  // With several ranks, each holds the same number of vocabulary rows, a multiple of this.
  int vocabulary_multiple = 1;
  ExpertSplit experts = {};

  // How many of a micro-batch's rows this rank has outside of split layers. They begin at row
  // outer_rows * rank.
  Count outer_rows(Count rows) const { return by_sequence ? rows / ranks : rows; }
  Count first_outer_row(Count rows) const { return by_sequence ? rows / ranks * rank : 0; }
  Count heads(Count all) const { return all / ranks; }
  Count vocabulary(Count all) const {
    if (ranks == 1) return all;
    const Count unit = Count{ranks} * vocabulary_multiple;
    return (all + unit - 1) / unit * vocabulary_multiple;
  }
  // With fewer key/value heads than ranks, neighbours share a head.
  Count kv_heads(Count all) const { return std::max<Count>(1, all / ranks); }
};

// Consecutive query heads, and the key/value heads that they share.
struct HeadShare {
  Count first = 0, count = 0, first_kv = 0, kv_count = 0;
};

// How the attention's heads are divided between ranks that have all heads outside of it. The same
// number of a rank's query heads shares each of its key/value heads: either the ranks divide the
// key/value heads, or, if there are fewer of those than ranks, each rank has a part of the query
// heads that share one of them.
struct HeadSplit {
  int ranks = 1, rank = 0;

  HeadShare share(Count heads, Count kv_heads) const;
};

}  // namespace lockstep
