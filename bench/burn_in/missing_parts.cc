#include "bench/burn_in/missing_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "bench/results/outliers.h"

namespace lockstep {
namespace {

constexpr double gib = 1 << 30;

struct Part {
  const char* name;
  double (*amount)(const RankMachine&);
  std::optional<double> expected;
  double tolerated = 1;  // of the usual amount
};

std::vector<Part> parts_of(const ExpectedParts& expected) {
  // The system keeps a little of the memory.
  constexpr double most_of_it = 0.97;
  std::optional<double> expected_gib;
  if (expected.memory_bytes) expected_gib = static_cast<double>(*expected.memory_bytes) / gib;
  return {{"cores", [](const RankMachine& m) -> double { return m.cores; }, expected.cores},
          {"GPUs", [](const RankMachine& m) -> double { return m.gpus; }, expected.gpus},
          {"GiB of memory", [](const RankMachine& m) { return m.memory_bytes / gib; }, expected_gib,
           most_of_it}};
}

}  // namespace

std::vector<std::pair<std::string, std::string>> parts_missing(const BurnInRun& run,
                                                               const ExpectedParts& expected) {
  std::map<std::string, const RankMachine*> hosts;
  for (const RankMachine& machine : run.machines) hosts.emplace(machine.site.host, &machine);
  std::vector<std::pair<std::string, std::string>> missing;
  for (const Part& part : parts_of(expected)) {
    if (!part.expected && hosts.size() < fewest_compared) continue;
    std::vector<double> amounts;
    for (const auto& [host, machine] : hosts) amounts.push_back(part.amount(*machine));
    std::ranges::sort(amounts);
    const double usual = part.expected.value_or(amounts[amounts.size() / 2]);
    for (const auto& [host, machine] : hosts) {
      const double own = part.amount(*machine);
      if (own >= part.tolerated * usual) continue;
      std::string text = fmt::format("has {:.4g} {}, {} {:.4g}", own, part.name,
                                     part.expected ? "expected" : "most hosts have", usual);
      if (own == 0 && !machine->why_no_gpus.empty()) text += ": " + machine->why_no_gpus;
      missing.emplace_back(host, std::move(text));
    }
  }
  return missing;
}

}  // namespace lockstep
