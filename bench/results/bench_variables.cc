#include <algorithm>
#include <nlohmann/json.hpp>

#include "bench/results/bench_formats.h"

namespace lockstep {

using nlohmann::ordered_json;

Variables bench_variables(const ordered_json& entry) {
  constexpr std::string_view positions[] = {"operation", "algorithm", "transport"};
  std::string name = entry.value("run_name", entry.at("name").get<std::string>());
  name = name.substr(0, name.find("/iterations:"));
  Variables found;
  bool has_key = false;
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find('/', begin), name.size());
    const std::string part = name.substr(begin, end - begin);
    const std::size_t colon = part.find(':');
    has_key = has_key || colon != std::string::npos;
    if (colon != std::string::npos)
      found.emplace_back(part.substr(0, colon), part.substr(colon + 1));
    else if (!has_key && found.size() < std::size(positions))
      found.emplace_back(positions[found.size()], part);
    else
      found.back().second += "/" + part;  // such as 1GB/s
    begin = end + 1;
  }
  // Keys with a text are variables too, unless the name has the same text in a place of its own.
  for (const auto& [key, value] : entry.items()) {
    constexpr std::string_view not_ours[] = {"name",      "run_name", "run_type",
                                             "time_unit", "label",    "aggregate_name"};
    if (!value.is_string() || std::ranges::count(not_ours, key) > 0) continue;
    const std::string text = value.get<std::string>();
    const bool is_known = std::ranges::any_of(found, [&, &key = key](const auto& variable) {
      return variable.first == key || variable.second == text;
    });
    if (!is_known) found.emplace_back(key, text);
  }
  return found;
}

std::string value_of(const Variables& variables, std::string_view key) {
  const auto found = std::ranges::find(variables, key, &Variables::value_type::first);
  return found == variables.end() ? "" : found->second;
}

std::vector<const ordered_json*> measured_entries(const ordered_json& file) {
  std::vector<const ordered_json*> entries;
  for (const ordered_json& entry : file.at("benchmarks"))
    if (entry.value("run_type", "iteration") == "iteration") entries.push_back(&entry);
  return entries;
}

}  // namespace lockstep
