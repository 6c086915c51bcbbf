// Which values of options, which pairs of them, and which kinds of runs fuzzed cases had.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "parallel/fuzz/comparison.h"
#include "parallel/fuzz/fuzz_case.h"

namespace lockstep {

class Coverage {
 public:
  // Counts only options that have an effect in their plan.
  void add(const FuzzCase& fuzz_case, const CaseCheck& check);

  struct Row {
    std::string flag;
    std::int64_t values = 0, all_values = 0;
    std::int64_t pairs = 0, all_pairs = 0;  // with the values of other options
  };
  // A row for each option that random plans choose. Not all pairs exist: some options have an effect
  // only with certain values of others.
  std::vector<Row> rows() const;

  // A property that no single option determines, and how many cases had it.
  struct Kind {
    std::string_view name;
    std::int64_t cases = 0;
  };
  std::vector<Kind> kinds() const;

 private:
  void add(const FuzzPlan& plan);

  using Value = std::pair<std::string, std::string>;  // flag and text
  std::set<Value> values_;
  std::set<std::pair<Value, Value>> pairs_;
  std::map<std::string_view, std::int64_t> cases_;  // by kind
};

}  // namespace lockstep
