// Groups of ranks that run the same operation at the same time, as nccl-tests' NCCL_TESTS_SPLIT
// forms them.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/stream.h"

namespace lockstep {

// How ranks are divided: those for which the rule gives the same number are a group.
struct Split {
  enum class Rule { none, bits_in, bits_or, remainder, quotient, rail, node, leaf };
  Rule rule = Rule::none;
  std::int64_t value = 0;
  std::string source;  // the flag or the variable that asks for it, with its text
  std::string name;    // in results: "mod8"
};

// Reads "MOD 8" as nccl-tests does, "rail", "node" or "leaf 2"; `source` is the flag or variable. Throws
// Error (bad_input).
Split split_from(std::string_view text, std::string_view source);
// Reads nccl-tests' NCCL_TESTS_SPLIT_MASK: the bits of a rank's number that choose its group.
Split split_from_mask(std::string_view text, std::string_view source);

// The groups of a world, each with its ranks. Throws Error (bad_input) if they differ in size, or if
// the rule asks for nodes that are not known.
std::vector<std::vector<int>> groups_of(const Split& split, int ranks, int ranks_per_node);
// "2 groups of 2 ranks at once: 0 2, 1 3"
std::string groups_text(const std::vector<std::vector<int>>& groups);
// "1 (ranks 1 3)"
std::string group_name(const std::vector<std::vector<int>>& groups, std::size_t group);

// The world of a benchmark and, if it is split, this rank's group; and the streams whose
// communicators have the same ranks as that group.
class BenchGroups {
 public:
  // Every rank calls it. `communicators`: of each group, with that of mine().
  BenchGroups(Communicator& world, const Split& split, int communicators = 1);

  Communicator& world() const { return world_; }
  Communicator& mine() const { return group_ ? *group_ : world_; }
  bool is_split() const { return group_ != nullptr; }
  const std::vector<std::vector<int>>& all() const { return all_; }  // empty without a split
  int number() const { return number_; }                             // of this rank's group
  const std::vector<std::unique_ptr<Stream>>& streams() const { return streams_; }

  // The following are called by every rank. Whether `here` holds on all of them:
  bool everywhere(bool here) const;
  // For each of this rank's times, the longest in its group.
  std::vector<double> longest(std::vector<double> seconds) const;

 private:
  Communicator& world_;
  std::vector<std::vector<int>> all_;
  int number_ = 0;
  std::unique_ptr<Communicator> group_;
  std::vector<std::unique_ptr<Stream>> streams_;
};

}  // namespace lockstep
