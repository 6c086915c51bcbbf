// The binomial tree over p ranks. Counted from the root, the parent of rank v is v without its
// lowest set bit, and its children are v + 1, v + 2, v + 4, ... below that bit.
#pragma once

#include <algorithm>

#include "collectives/algorithm.h"
#include "collectives/rounds.h"

namespace lockstep {

class BinomialTree {
 public:
  BinomialTree(int rank, int ranks, int root)
      : ranks_(ranks), root_(root), place_((rank - root + ranks) % ranks) {
    while (reach_ < ranks && (place_ & reach_) == 0) reach_ *= 2;
  }

  bool is_root() const { return place_ == 0; }
  int parent() const { return rank_at(place_ - reach_); }
  // Children are at those distances 1, 2, 4, ... below reach() for which has_child() holds.
  int reach() const { return reach_; }
  bool has_child(int distance) const { return distance < reach_ && place_ + distance < ranks_; }
  int child(int distance) const { return rank_at(place_ + distance); }
  int children() const {
    int number = 0;
    for (int distance = 1; distance < reach_; distance *= 2) number += has_child(distance);
    return number;
  }
  // The number of ranks in this rank's subtree, and in that of a child.
  int subtree() const { return std::min(reach_, ranks_ - place_); }
  int subtree_of_child(int distance) const {
    return std::min(distance, ranks_ - place_ - distance);
  }

 private:
  int rank_at(int place) const { return (place + root_) % ranks_; }

  int ranks_, root_, place_;
  int reach_ = 1;
};

// The time of all data along the tree, in either direction.
inline double binomial_tree_seconds(const Problem& x, const LinkModel& links) {
  const bool root_begins_node = x.root % x.ranks_per_node == 0;
  return doubling_seconds(x.ranks, root_begins_node ? x.ranks_per_node : 1, x.bytes(), false,
                          links);
}
inline bool binomial_tree_fits_nodes(const Problem& x) {
  return power_of_two_of_nodes(x) && x.root % x.ranks_per_node == 0;
}

}  // namespace lockstep
