#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "bench/burn_in/findings.h"
#include "collectives/base/printable.h"

namespace lockstep {
namespace {

// What a finding concerns: "host a", "hosts a, b", "all hosts".
std::string where(const Finding& finding) {
  if (finding.hosts.empty()) return "all hosts";
  std::vector<std::string> names;
  for (const std::string& host : finding.hosts) names.push_back(printable(host));
  return fmt::format("host{} {}", names.size() == 1 ? "" : "s", fmt::join(names, ", "));
}

std::string line_of(const Finding& finding) {
  return fmt::format("{} {} {}: {}\n", name_of(finding.verdict), finding.code, where(finding),
                     finding.text);
}

}  // namespace

std::string text_of(const BurnInRun& run, const std::vector<Finding>& findings) {
  const std::vector<HostVerdict> hosts = verdicts_of(run, findings);
  std::string text = fmt::format(
      "# burn-in of {} rank{} on {} host{} over {}: {} pass{} in {:.1f} s, {} replayed steps "
      "compared\n\n",
      run.machines.size(), run.machines.size() == 1 ? "" : "s", hosts.size(),
      hosts.size() == 1 ? "" : "s", run.transport, run.passes, run.passes == 1 ? "" : "es",
      run.seconds, run.steps_compared);
  std::size_t width = 4;
  for (const HostVerdict& each : hosts) width = std::max(width, printable(each.host).size());
  for (const HostVerdict& each : hosts)
    text += fmt::format("{:<{}}  {}\n", printable(each.host), width, name_of(each.verdict));
  text += "\n";
  for (const Finding& each : findings) text += line_of(each) + "  next: " + each.next + "\n";
  if (run.products.empty() || run.products.front().values().size() < fewest_samples)
    text += "# no speed is judged: that takes 2 passes or more\n";
  text += fmt::format("# verdict: {}\n", name_of(verdict_of(findings)));
  return text;
}

std::string news_of(const BurnInRun& run, const std::vector<Finding>& before,
                    const std::vector<Finding>& now) {
  std::string text;
  for (const Finding& each : now)
    if (std::ranges::none_of(before, [&](const Finding& old) { return old.is_same(each); }))
      text += fmt::format("pass {}: {}", run.passes - 1, line_of(each));
  return text;
}

}  // namespace lockstep
