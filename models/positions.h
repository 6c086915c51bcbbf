// The positions of a rank's tokens in a sequence, as a few numbers instead of a list. Plain
// arithmetic that kernels of any device can call.
#pragma once

#include <algorithm>
#include <span>

#include "collectives/base/dtype.h"

namespace lockstep {

// first, first + stride, ...
struct PositionRange {
  Count first = 0, count = 0, stride = 1;

  constexpr Count operator[](Count i) const { return first + i * stride; }
  // Positions from .. from + number - 1 of the list, as far as it has them.
  constexpr PositionRange part(Count from, Count number) const {
    const Count begin = from < 0 ? 0 : from < count ? from : count;
    const Count end = from + number < begin ? begin : from + number < count ? from + number : count;
    return {.first = (*this)[begin], .count = end - begin, .stride = stride};
  }
  // How many of them are at most `position`.
  constexpr Count up_to(Count position) const {
    if (position < first) return 0;
    const Count there = (position - first) / stride + 1;
    return there < count ? there : count;
  }
};

// Two ranges; the second is after the first or empty, so positions increase. A causal query
// therefore sees the first up_to(its position) of the keys.
struct Positions {
  PositionRange ranges[2];

  static constexpr Positions all(Count length) { return {{{.first = 0, .count = length}, {}}}; }
  constexpr Count count() const { return ranges[0].count + ranges[1].count; }
  constexpr Count operator[](Count i) const {
    return i < ranges[0].count ? ranges[0][i] : ranges[1][i - ranges[0].count];
  }
  constexpr Count up_to(Count position) const {
    return ranges[0].up_to(position) + ranges[1].up_to(position);
  }
  // Part `i` of `parts` equal parts of the list.
  constexpr Positions part(Count i, Count parts) const {
    const Count size = count() / parts, from = i * size;
    return {{ranges[0].part(from, size), ranges[1].part(from - ranges[0].count, size)}};
  }
};

// Pairs of a query and a key that it sees. If it is 0, causal attention has nothing to compute.
constexpr Count causal_pairs(const Positions& queries, const Positions& keys) {
  Count pairs = 0;
  for (Count i = 0; i < queries.count(); ++i) pairs += keys.up_to(queries[i]);
  return pairs;
}

// Where documents begin in a batch of sequences of one length: sequence * length + position of their
// first tokens, increasing. A document ends where the next one begins or its sequence ends.
using Documents = std::span<const Count>;

// The target of a document's last token.
inline constexpr std::int32_t no_target = -1;

// How many of these increasing numbers are at most `limit`. Not std::upper_bound: nvcc 13.0 compiles its
// std::advance to nothing, and a kernel then reads the wrong numbers.
template <typename T>
constexpr Count count_up_to(const T* numbers, Count count, Count limit) {
  Count begin = 0, end = count;
  while (begin < end) {
    const Count middle = begin + (end - begin) / 2;
    if (numbers[middle] <= limit)
      begin = middle + 1;
    else
      end = middle;
  }
  return begin;
}

// The position at which the document begins that has this position of a sequence.
constexpr Count document_begin(Documents documents, Count length, Count sequence, Count position) {
  const Count origin = sequence * length,
              begun = count_up_to(documents.data(), std::ssize(documents), origin + position);
  return begun == 0 ? 0 : std::max(documents.data()[begun - 1] - origin, Count{0});
}

// The same pairs within documents, of all sequences.
constexpr Count causal_pairs(const Positions& queries, const Positions& keys, Documents documents,
                             Count length, Count sequences) {
  Count pairs = sequences * causal_pairs(queries, keys);
  if (documents.empty()) return pairs;
  for (Count s = 0; s < sequences; ++s)
    for (Count i = 0; i < queries.count(); ++i)
      pairs -= keys.up_to(document_begin(documents, length, s, queries[i]) - 1);
  return pairs;
}

// The places of a tensor's rows in the batch. Rows lie one sequence after another, in each at
// `positions`. Without positions they are consecutive in the batch.
struct RowPlaces {
  Positions positions;
  Count length = 0;  // tokens of a whole sequence
  Count first = 0;   // the rank's rows before the tensor's first, if the tensor has only some
  std::span<const std::int32_t> listed = {};  // instead, of each of the rank's rows

  constexpr Count position(Count row) const {
    if (!listed.empty()) return listed[first + row];
    return positions[(first + row) % positions.count()];
  }
  // Counted from the first position of the first sequence.
  constexpr Count operator()(Count row) const {
    if (positions.count() == 0) return first + row;
    return (first + row) / positions.count() * length + position(row);
  }
};

}  // namespace lockstep
