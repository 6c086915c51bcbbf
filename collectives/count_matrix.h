// How many elements each rank sends to each other rank in an all_to_all_v.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "collectives/base/dtype.h"

namespace lockstep {

// Copies share the counts.
class CountMatrix {
 public:
  CountMatrix() = default;
  // `rows` holds the counts of rank 0 for all ranks, then those of rank 1, and so on; or one row
  // for every rank.
  CountMatrix(int ranks, std::vector<Count> rows)
      : stride_(std::ssize(rows) > ranks ? ranks : 0),
        rows_(std::make_shared<const std::vector<Count>>(std::move(rows))) {}

  bool empty() const { return !rows_; }
  Count operator()(int from, int to) const {
    return (*rows_)[static_cast<std::size_t>(from * stride_ + to)] / unit_;
  }
  // The same counts in a larger unit: bytes become elements. All must be multiples of it.
  CountMatrix divided_by(Count unit) const {
    CountMatrix result = *this;
    result.unit_ *= unit;
    return result;
  }

 private:
  Count stride_ = 0, unit_ = 1;
  std::shared_ptr<const std::vector<Count>> rows_;
};

}  // namespace lockstep
