// The rows of one micro-batch on this rank: its tokens, one sequence after another.
#pragma once

#include "models/data/token_layout.h"

namespace lockstep {

struct Rows {
  Count sequences = 0, length = 0;  // length: this rank's tokens of each sequence
  Count first = 0;          // the row of the first sequence's first token, in the global batch
  std::int64_t step = -1;   // below 0 outside of training: no dropout, no label smoothing
  bool again = false;       // computed a second time: what routers have chosen stays
  double router_scale = 0;  // the factor of the gradients of the routers' losses of a sequence
  TokenLayout layout;
  Documents documents = {};  // in whole sequences
  // If documents are not in the data's order: the position of each token in that order.
  std::span<const std::int32_t> token_positions = {};

  Count count() const { return sequences * length; }
  bool in_training() const { return step >= 0; }
  Count whole_length() const { return length * layout.sharers(); }
  Positions positions() const { return layout.positions(whole_length()); }
  // Returns the places of a tensor's rows, which are these rows from `first_of_rank` on.
  RowPlaces places(Count first_of_rank) const {
    return {.positions = positions(),
            .length = whole_length(),
            .first = first_of_rank,
            .listed = token_positions};
  }
};

// The rows that a linear layer computes at a time: all rows of a micro-batch, or some of them.
struct RowsPart {
  Count count, first = 0;
  const Rows* of =
      nullptr;  // null: rows of no micro-batch, for layers that drop nothing of their input

  RowsPart(Count rows) : count(rows) {}
  RowsPart(const Rows& all) : count(all.count()), of(&all) {}
  operator Count() const { return count; }
  RowsPart part(Count begin, Count rows) const {
    RowsPart some = *this;
    some.first += begin;
    some.count = rows;
    return some;
  }
};

}  // namespace lockstep
