#include "labs/grader/memory_need.h"

#include <fmt/format.h>

namespace lockstep {

MemoryNeed memory_need(Runner& submission, const WorldOptions& limited, std::int64_t step) {
  constexpr int most_steps = 32;
  const auto with_more = [&](int steps) {
    WorldOptions options = limited;
    for (std::int64_t& limit : options.memory_limits) limit += steps * step;
    return options;
  };
  const auto ends_with = [&](int steps) { return submission.run(with_more(steps)).fault.empty(); };
  if (!ends_with(most_steps)) return {};
  int too_few = 0, enough = most_steps;
  while (enough - too_few > 1)
    (ends_with((too_few + enough) / 2) ? enough : too_few) = (too_few + enough) / 2;
  return {.more_bytes = enough * step,
          .bounds = {{with_more(enough), true}, {with_more(too_few), false}}};
}

std::vector<const JudgedCase*> cases_of(const MemoryNeed& need) {
  std::vector<const JudgedCase*> cases;
  for (const LimitedCase& bound : need.bounds) cases.push_back(&bound);
  return cases;
}

std::string in_words(const MemoryNeed& need) {
  constexpr double mebibyte = 1 << 20;
  if (need.more_bytes == 0) return "";
  return fmt::format("; it would do with {:.1f} MiB more",
                     static_cast<double>(need.more_bytes) / mebibyte);
}

}  // namespace lockstep
