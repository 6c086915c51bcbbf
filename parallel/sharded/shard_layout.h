// Which elements of a unit each rank holds, and where they lie while the unit is gathered or reduced.
//
//   flat            the parameters lie one after another and are cut evenly, whatever their borders
//   per parameter   each parameter is split along its first dimension: rank r has the rows from
//                   r * ceil(rows / P) on, as torch.chunk says; the last ranks have fewer, or none
//
//   elements exchanged   flat: Psi_unit      per parameter: sum of P * ceil(rows / P) * columns
//
// A rank stores no padding. But collectives move equal chunks, so per parameter every chunk has the
// size of the first rank's.
#pragma once

#include <vector>

#include "models/parameters.h"

namespace lockstep {

// A parameter's first dimension, and the elements of each of its rows.
struct Extent {
  Count rows = 0, columns = 0;
  Count count() const { return rows * columns; }
};

class ShardLayout {
 public:
  ShardLayout(std::vector<Extent> parameters, bool per_parameter, int ranks);

  int ranks() const { return ranks_; }
  // The elements of the unit; of the buffer in which it is gathered and reduced; and of a rank's
  // shard.
  Count count() const { return count_; }
  Count exchanged() const { return exchanged_; }
  Count shard(int rank) const;
  // The rank's part of that buffer: its shard, and padding.
  Range chunk(int rank) const;
  // Those of all ranks.
  std::vector<Range> chunks() const;

  // Consecutive elements of one parameter in a rank's shard.
  struct Piece {
    std::size_t parameter = 0;  // of the unit
    Range range;                // of the parameter
    Count in_shard = 0, in_chunk = 0;
  };
  std::vector<Piece> pieces(int rank) const;

 private:
  std::vector<Piece> flat_pieces(int rank) const;

  std::vector<Extent> parameters_;
  bool per_parameter_;
  int ranks_;
  Count count_ = 0, exchanged_ = 0;
};

// Returns rows of a parameter as a parameter of their own, at `offset`.
Parameter rows_of(const Parameter& parameter, Range rows, Count offset);

}  // namespace lockstep
