// Every operation and algorithm behind one signature, for code that iterates over all of them:
// tests, benchmarks, tables of closed forms.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/algorithm.h"

namespace lockstep {

// An operation's arguments in addition to its data. Each operation reads those it needs.
struct Arguments {
  ReduceOp op = ReduceOp::sum;
  int root = 0;
  Slice out;          // for out-of-place operations; empty: all_reduce is in place
  RankCounts counts;  // for all_to_all_v; empty: all pairs have the same count
};

struct AnyAlgorithm {
  std::string name;
  // Runs the operation with this algorithm, like a call by name.
  std::function<void(Communicator&, Slice data, const Arguments&)> run;
  Traffic (*traffic)(const Problem&, int rank);
  std::function<double(const Problem&, const LinkModel&)> seconds;
  std::string_view formula;
  std::function<bool(const Problem&)> exact, exact_on_nodes;
  Need need;
  Count (*scratch)(const Problem&, int rank);
  Count (*windowed)(const Problem&, int rank);
  bool ranks_are_equal, is_baseline;
  int ranks = 0;  // ranks that take part, if more than the problem's: servers are additional
};

struct OperationEntry {
  Operation operation;
  std::string_view name;
  std::string_view summary;
  bool reduces;  // takes a ReduceOp
  bool has_root;
  bool in_place;
  bool out_of_place;  // without copying the data first
  std::vector<AnyAlgorithm> algorithms;
};
const std::vector<OperationEntry>& operations();
// Throws Error (bad_input) that lists the operations.
const OperationEntry& find_operation(std::string_view name);

}  // namespace lockstep
