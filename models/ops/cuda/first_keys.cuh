// A query sees the keys from its first one up to its end. With documents, it sees none before its
// document; in a part of the keys, it sees those up to its own position. Both become numbers once
// for all heads, so that kernels only read them.
#pragma once

#include "models/backend.h"

namespace lockstep::cuda {

// The first key that each query of a sequence sees. It increases from query to query. Without
// documents, `first` is null, and it is the sequence's first for all.
struct FirstKeys {
  const std::int32_t* first = nullptr;
  Count queries = 0;

  // These are then the first keys of all sequences.
  __device__ FirstKeys of_sequence(Count sequence) const {
    return {first ? first + sequence * queries : nullptr, queries};
  }
  // Queries after the last one, in its tile, see the same keys as the last.
  __device__ int operator[](Count query) const {
    return first ? first[query < queries ? query : queries - 1] : 0;
  }
  // Queries from this one on see only keys after `key`.
  __device__ int end_of_seeing(Count key) const {
    return static_cast<int>(first ? count_up_to(first, queries, key) : queries);
  }
};

// The end of the keys that each query sees: the number of the last one plus 1. It increases from query
// to query, and is the same in all sequences. For a whole attention, `end` is null: query + 1.
struct KeyEnds {
  const std::int32_t* end = nullptr;
  Count queries = 0;

  __device__ int operator[](int query) const {
    return end ? end[query < queries ? query : queries - 1] : query + 1;
  }
  // The first query that sees `key` or a later one.
  __device__ int begin_of_seeing(int key) const {
    return end ? static_cast<int>(count_up_to(end, queries, key)) : key;
  }
};

}  // namespace lockstep::cuda
