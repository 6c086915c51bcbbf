#include "parallel/sharded/shard_layout.h"

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {

// Returns the number of rows of the first rank's part.
Count chunk_rows(const Extent& parameter, int ranks) {
  return Parts(parameter.rows, ranks).largest();
}

}  // namespace

ShardLayout::ShardLayout(std::vector<Extent> parameters, bool per_parameter, int ranks)
    : parameters_(std::move(parameters)), per_parameter_(per_parameter), ranks_(ranks) {
  for (const Extent& parameter : parameters_) {
    count_ += parameter.count();
    exchanged_ += per_parameter ? ranks * chunk_rows(parameter, ranks) * parameter.columns
                                : parameter.count();
  }
}

Count ShardLayout::shard(int rank) const {
  Count count = 0;
  for (const Piece& piece : pieces(rank)) count += piece.range.count;
  return count;
}

Range ShardLayout::chunk(int rank) const {
  const Parts chunks(exchanged_, ranks_);
  return {chunks.offset(rank), chunks[rank]};
}

std::vector<Range> ShardLayout::chunks() const {
  std::vector<Range> all;
  for (int rank = 0; rank < ranks_; ++rank) all.push_back(chunk(rank));
  return all;
}

std::vector<ShardLayout::Piece> ShardLayout::pieces(int rank) const {
  if (!per_parameter_) return flat_pieces(rank);
  std::vector<Piece> pieces;
  Count in_shard = 0, in_chunk = 0;
  for (std::size_t p = 0; p < parameters_.size(); ++p) {
    const auto [rows, columns] = parameters_[p];
    const Count each = chunk_rows(parameters_[p], ranks_);
    const Count first = std::min(rank * each, rows), end = std::min(first + each, rows);
    if (first < end) {
      pieces.push_back({p, {first * columns, (end - first) * columns}, in_shard, in_chunk});
      in_shard += pieces.back().range.count;
    }
    in_chunk += each * columns;
  }
  return pieces;
}

std::vector<ShardLayout::Piece> ShardLayout::flat_pieces(int rank) const {
  const auto [first, own] = chunk(rank);
  std::vector<Piece> pieces;
  Count offset = 0;
  for (std::size_t p = 0; p < parameters_.size(); ++p) {
    const Count count = parameters_[p].count();
    const Count begin = std::max(offset, first), end = std::min(offset + count, first + own);
    if (begin < end)
      pieces.push_back({p, {begin - offset, end - begin}, begin - first, begin - first});
    offset += count;
  }
  return pieces;
}

Parameter rows_of(const Parameter& parameter, Range rows, Count offset) {
  Parameter part = parameter;
  part.count = parameter.count / parameter.shape.front() * rows.count;
  part.shape.front() = rows.count;
  part.offset = offset;
  if (parameter.shape.size() > 1) {
    part.region.rows = {parameter.region.rows.first + rows.first, rows.count};
    return part;
  }
  // A vector's region is one row, so its elements are columns.
  part.region.columns.clear();
  Count before = 0;
  for (const Region::Columns& columns : parameter.region.columns) {
    const Count first = std::max(rows.first - before, Count{0}),
                end = std::min(rows.first + rows.count - before, columns.range.count);
    if (first < end)
      part.region.columns.push_back(
          {.range = {columns.range.first + first, end - first}, .placement = columns.placement});
    before += columns.range.count;
  }
  return part;
}

}  // namespace lockstep
