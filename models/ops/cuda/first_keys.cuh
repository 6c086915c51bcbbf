// With documents, a query sees no key before its document. The positions of documents become the
// first key of each query once for all heads, so that kernels only read a number.
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
  // Queries after the last, in its tile, see what it sees.
  __device__ int operator[](Count query) const {
    return first ? first[query < queries ? query : queries - 1] : 0;
  }
  // Queries from this one on see only keys after `key`.
  __device__ int end_of_seeing(Count key) const {
    return static_cast<int>(first ? count_up_to(first, queries, key) : queries);
  }
};

}  // namespace lockstep::cuda
