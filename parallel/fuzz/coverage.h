// Which values of options, and which pairs of them, fuzzed cases had.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "parallel/fuzz/fuzz_case.h"

namespace lockstep {

class Coverage {
 public:
  // Counts only options that have an effect in this plan.
  void add(const FuzzPlan& plan);

  struct Row {
    std::string flag;
    std::int64_t values = 0, all_values = 0;
    std::int64_t pairs = 0, all_pairs = 0;  // with the values of other options
  };
  // A row for each option that random plans choose. Not all pairs exist: some options have an effect
  // only with certain values of others.
  std::vector<Row> rows() const;

 private:
  using Value = std::pair<std::string, std::string>;  // flag and text
  std::set<Value> values_;
  std::set<std::pair<Value, Value>> pairs_;
};

}  // namespace lockstep
