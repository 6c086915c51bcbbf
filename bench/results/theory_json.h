// The closed forms of a result file, each with its measured value.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "parallel/plan/result.h"

namespace lockstep {

inline nlohmann::ordered_json theory_json(const std::vector<TheoryRecord>& theory) {
  auto lines = nlohmann::ordered_json::array();
  for (const TheoryRecord& t : theory)
    lines.push_back({{"quantity", t.quantity},
                     {"rank", t.rank},
                     {"formula", t.formula},
                     {"expected", t.expected},
                     {"measured", t.measured},
                     {"exact", t.exact}});
  return lines;
}

}  // namespace lockstep
