// Numbers in the results of a lesson's runs, and why a time differs from its closed form.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace lockstep {

// The value of an expression over result files of `folder`, as lessons/README.md describes them:
// "ddp.json/theory/quantity=sent_bytes&rank=0/expected / 1e6". Throws Error (bad_input) naming the
// expression.
double lesson_value(const std::string& folder, const std::string& expression);

// "1.75", "99,860": four digits, and all before the decimal point.
std::string number_text(double value);

// A path of a prediction, with the result file in place of RUN.
std::string path_for_run(std::string path, const std::string& run);

// One sentence for each reason that the result itself shows why a measured time is not its closed
// form: too few cores, a short message, caches. `path` names the measured value.
std::vector<std::string> reasons_for_residual(const std::string& folder, const std::string& path,
                                              double closed, double measured);

}  // namespace lockstep
