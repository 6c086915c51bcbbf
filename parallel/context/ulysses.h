// Ulysses: the ranks of a group exchange tokens for heads, so that each has all tokens of the group
// for some of the heads, and after the attention back. Jacobs et al., "DeepSpeed Ulysses", 2023.
//
// With N rows on each of u ranks, head size d, h query heads and k key/value heads (after the
// exchange, h_p and k_p on rank p, which need not be equal), rank r sends in elements:
//
//   forward    queries, keys, values     sum over p != r of N (h_p + 2 k_p) d
//              the attention's output    (u - 1) N h_r d
//   backward   its gradient              sum over p != r of N h_p d
//              its products with it      sum over p != r of N h_p, in the statistics' type
//              gradients of q, k, v      (u - 1) N (h_r + 2 k_r) d
//
// each in u - 1 messages. With h = k and equal shares: 4 (u-1)/u N h d in each direction, on any
// number of ranks; a ring sends 2 (c-1) N k d forward, which grows with the ranks for the same
// sequence per rank, but shrinks with fewer key/value heads.
#pragma once

#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "collectives/algorithm.h"
#include "models/backend.h"
#include "models/split.h"
#include "parallel/context/exchange.h"

namespace lockstep {

class Ulysses {
 public:
  static constexpr const char* label = "heads";

  Ulysses(Exchange& exchange, const HeadSplit& split) : exchange_(exchange), split_(split) {}

  const HeadSplit& split() const { return split_; }
  HeadShare share_of(int rank, Count heads, Count kv_heads) const {
    return HeadSplit{.ranks = split_.ranks, .rank = rank}.share(heads, kv_heads);
  }

  // Matrices that a message fills, or adds to.
  struct Arriving {
    Matrices matrices;
    double beta = 0;
  };
  // Sends the elements of leaving(p) to every rank p as `dtype`, one matrix after another, and puts
  // those of p into arriving(p), which have as many elements. Additions are in the order of ranks.
  using Leaving = std::function<std::vector<Matrices>(int rank)>;
  using Arrivals = std::function<std::vector<Arriving>(int rank)>;
  void exchange(Backend& backend, DType dtype, const Leaving& leaving, const Arrivals& arriving);
  // Tells the observer that an exchange has made all of `into` from all of `from`.
  void announce(Slice from, Slice into) { exchange_.announce(Operation::all_to_all, from, into); }

 private:
  Exchange& exchange_;
  HeadSplit split_;
  std::map<DType, std::pair<Tensor, Tensor>> messages_;  // outgoing, incoming
};

// A rank's traffic if it gives each other rank its heads of its own rows, or gets its own rows of all
// heads back. `size`: rows times elements of a head.
Traffic heads_for_tokens(Count size, const HeadSplit& split, Count heads, Count kv_heads,
                         bool with_kv);
Traffic tokens_for_heads(Count size, const HeadSplit& split, Count heads, Count kv_heads,
                         bool with_kv);

}  // namespace lockstep
