#include "bench/results/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>

#include "bench/results/measure.h"
#include "collectives/base/printable.h"

namespace lockstep {
namespace {

// A label's value may hold anything; quotes and backslashes are escaped.
std::string label_text(const std::string& value) {
  std::string text;
  for (const char letter : printable(value))
    text += letter == '"' || letter == '\\' ? std::string("\\") + letter : std::string(1, letter);
  return text;
}

std::string labels_text(const Variables& variables) {
  std::string text;
  for (const auto& [key, value] : variables)
    text += fmt::format("{}{}=\"{}\"", text.empty() ? "" : ",", key, label_text(value));
  return text;
}

}  // namespace

void Metric::add(const Variables& labels, double value) {
  const std::string text = labels_text(labels);
  auto found = std::ranges::find(samples_, text, &Sample::first);
  if (found == samples_.end()) found = samples_.insert(found, {text, {}});
  found->second.push_back(value);
}

std::string Metric::text() const {
  if (samples_.empty()) return "";
  std::string text = fmt::format("# HELP {0} {1}\n# TYPE {0} gauge\n", name_, help_);
  for (const auto& [labels, values] : samples_)
    text += fmt::format("{}{} {}\n", name_, labels.empty() ? "" : "{" + labels + "}",
                        percentile(values, 0.5));
  return text;
}

double unix_seconds(const std::string& time) {
  std::tm utc{};
  return strptime(time.c_str(), "%Y-%m-%dT%H:%M:%SZ", &utc) ? static_cast<double>(timegm(&utc)) : 0;
}

}  // namespace lockstep
