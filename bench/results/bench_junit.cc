#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "bench/results/bench_formats.h"
#include "bench/results/measure.h"
#include "collectives/base/json_text.h"

namespace lockstep {
namespace {

using nlohmann::ordered_json;

// The parts of the name that have no key, and those that have one.
std::pair<std::string, std::string> names_of(const Variables& variables) {
  std::string group, name;
  for (const auto& [key, value] : variables) {
    const bool is_position = key == "operation" || key == "algorithm" || key == "transport";
    std::string& part = is_position ? group : name;
    part += (part.empty() ? "" : "/") + (is_position ? "" : key + ":") + value;
  }
  return {group, name.empty() ? "time" : name};
}

// One for each tuple of variables: the time is the median of its repetitions, and it fails if the
// elements of one of them are wrong.
std::vector<JunitCase> cases_of(const ordered_json& file) {
  std::vector<JunitCase> cases;
  std::vector<std::vector<double>> seconds;
  for (const ordered_json* entry : measured_entries(file)) {
    const auto [group, name] = names_of(bench_variables(*entry));
    auto found = std::ranges::find_if(
        cases, [&](const JunitCase& one) { return one.group == group && one.name == name; });
    if (found == cases.end()) {
      seconds.emplace_back();
      found = cases.insert(found, {.group = group, .name = name});
    }
    seconds[static_cast<std::size_t>(found - cases.begin())].push_back(
        entry->value("p50_us", entry->value("real_time", 0.0)) / 1e6);
    const double wrong = entry->value("wrong", 0.0);
    if (wrong <= 0) continue;
    found->outcome = JunitCase::Outcome::failed;
    found->type = "WRONG";
    found->message = fmt::format("{:.0f} elements are wrong", wrong);
  }
  for (std::size_t i = 0; i < cases.size(); ++i) cases[i].seconds = percentile(seconds[i], 0.5);
  return cases;
}

JunitCase case_of_links(const ordered_json& slow_links) {
  JunitCase one{.group = "links", .name = "no link is slow", .type = "SLOW"};
  for (const ordered_json& link : slow_links)
    one.message += (one.message.empty() ? "" : "; ") + link.at("text").get<std::string>();
  if (!one.message.empty()) one.outcome = JunitCase::Outcome::failed;
  return one;
}

// What a burn-in found of a host, or, without a name, of all hosts together.
JunitCase case_of_host(const ordered_json& findings, const std::string& host) {
  JunitCase one{.group = "burn-in", .name = host.empty() ? "all hosts" : "host " + host};
  for (const ordered_json& each : findings) {
    const auto hosts = each.at("hosts").get<std::vector<std::string>>();
    if (host.empty() ? !hosts.empty() : std::ranges::count(hosts, host) == 0) continue;
    one.outcome = JunitCase::Outcome::failed;
    one.type = each.at("verdict");
    one.message += fmt::format("{}{} {}", one.message.empty() ? "" : "; ",
                               each.at("code").get<int>(), each.at("text").get<std::string>());
  }
  return one;
}

}  // namespace

JunitCase case_of_ranks(const ordered_json& slow) {
  JunitCase one{.group = "ranks", .name = "no rank is slow", .type = "SLOW"};
  for (const ordered_json& rank : slow.at("ranks"))
    one.message +=
        fmt::format("{}rank {} (host {}, device {}) with {:.2f} times the median own time",
                    one.message.empty() ? "" : ", ", rank.at("rank").get<int>(),
                    rank.at("host").get<std::string>(), rank.at("device").get<std::string>(),
                    rank.at("own").get<double>() / rank.at("median").get<double>());
  if (!one.message.empty()) one.outcome = JunitCase::Outcome::failed;
  return one;
}

std::string bench_junit(const ordered_json& file) {
  const ordered_json& context = file.at("context");
  JunitSuite suite{.name = "bench",
                   .properties = {{"command", context.at("lockstep.command").get<std::string>()}},
                   .cases = cases_of(file)};
  const auto environment =
      parse_json(context.at("lockstep.environment").get<std::string>(), "the environment");
  for (const char* key : {"time", "host", "processor", "version", "commit"})
    suite.properties.emplace_back(key, environment.value(key, ""));
  if (file.contains("slow_ranks")) suite.cases.push_back(case_of_ranks(file["slow_ranks"]));
  if (file.contains("findings")) {
    for (const ordered_json& host : file.at("hosts"))
      suite.cases.push_back(case_of_host(file["findings"], host.at("host")));
    suite.cases.push_back(case_of_host(file["findings"], ""));
  } else if (file.contains("slow_links")) {
    suite.cases.push_back(case_of_links(file["slow_links"]));
  }
  return junit_text("lockstep bench", {suite});
}

}  // namespace lockstep
