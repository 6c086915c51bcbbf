// How the layers of a model are split over ranks, as numbers: which part this rank computes.
#pragma once

#include <algorithm>

#include "collectives/base/dtype.h"

namespace lockstep {

struct LayerSplit {
  int ranks = 1, rank = 0;
  // Whether rows are split, too, where layers are not: layer norms, dropout, residuals.
  bool by_sequence = false;
  // Then: whether the gathered input of a linear layer is kept for backward, or gathered again.
  bool keeps_gathered = false;
  // Each rank has as many rows of the vocabulary, a multiple of this.
  int vocabulary_multiple = 1;

  // Of a micro-batch's rows, those this rank has outside of the split layers. They begin at row
  // outer_rows * rank.
  Count outer_rows(Count rows) const { return by_sequence ? rows / ranks : rows; }
  Count first_outer_row(Count rows) const { return by_sequence ? rows / ranks * rank : 0; }
  Count heads(Count all) const { return all / ranks; }
  Count vocabulary(Count all) const {
    const Count unit = Count{ranks} * vocabulary_multiple;
    return (all + unit - 1) / unit * vocabulary_multiple;
  }
  // Where there are fewer heads of keys and values than ranks, neighbours have the same one.
  Count kv_heads(Count all) const { return std::max<Count>(1, all / ranks); }
};

}  // namespace lockstep
