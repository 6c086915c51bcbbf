// Every operation and algorithm behind one signature, for what goes through all of them: tests,
// benchmarks, tables of closed forms.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/algorithm.h"

namespace lockstep {

// What an operation takes beside its data; each reads what it needs.
struct Arguments {
  ReduceOp op = ReduceOp::sum;
  int root = 0;
  Slice out;  // of what is not in place; all_reduce is where this is empty
};

struct AnyAlgorithm {
  std::string name;
  // The operation by this algorithm, as a call by name does it.
  std::function<void(Communicator&, Slice data, const Arguments&)> run;
  Traffic (*traffic)(const Problem&, int rank);
  std::function<double(const Problem&, const LinkModel&)> seconds;
  std::string_view formula;
  bool (*exact)(const Problem&);
  Need need;
  bool is_baseline;
};

struct OperationEntry {
  Operation operation;
  std::string_view name;
  std::string_view summary;
  bool reduces;  // takes a ReduceOp
  bool has_root;
  bool in_place;
  bool out_of_place;  // itself; else its data are copied first
  std::vector<AnyAlgorithm> algorithms;
};
const std::vector<OperationEntry>& operations();
// Throws Error (bad_input) listing the operations.
const OperationEntry& find_operation(std::string_view name);

}  // namespace lockstep
