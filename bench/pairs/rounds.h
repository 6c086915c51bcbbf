// The order in which all pairs of ranks are measured: in rounds of disjoint pairs that share no
// port, so that each is measured as if it were alone.
//
// Ranks of one host are paired with each other, on all hosts at once. Between hosts, only the ranks
// with the same place on their hosts are paired, as on rails: then one rank of each host takes part
// in a round. Of n units each round has floor(n / 2) pairs, and n - 1 rounds (n if n is odd) have
// all: the circle method. Lucas, "Récréations mathématiques", 1883.
#pragma once

#include <span>
#include <vector>

namespace lockstep {

struct RankPair {
  int first = 0, second = 0;  // first < second

  auto operator<=>(const RankPair&) const = default;
};

// Ranks of which all pairs are measured, and whose links are compared.
struct LinkGroup {
  std::vector<int> ranks;  // ascending
  bool is_one_host = false;
};

// Groups of at least two ranks: first those of a host, then those between hosts. `host_of_rank`
// numbers the hosts.
std::vector<LinkGroup> link_groups(std::span<const int> host_of_rank);

// A pair, and the number of its group.
struct GroupPair {
  RankPair ranks;
  int group = 0;
};
using Round = std::vector<GroupPair>;

// Rounds that measure every pair of each group once; or, if `most` is above 0, at most so many
// rounds of each group, evenly chosen from round `first` on, in which each unit meets as many others
// (one less if their number is odd). All `first` together have every pair.
std::vector<Round> rounds_of(std::span<const LinkGroup> groups, int most, int first = 0);

// The rounds of all pairs of the largest group.
int most_rounds(std::span<const LinkGroup> groups);

}  // namespace lockstep
