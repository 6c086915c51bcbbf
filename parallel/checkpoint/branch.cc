#include "parallel/checkpoint/branch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <ranges>

namespace lockstep {

std::string new_run_id() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", std::uint32_t{random()}, std::uint32_t{random()});
}

bool Branch::contains(std::string_view other, int steps) const {
  if (other.empty()) return false;
  return other == run || std::ranges::any_of(before, [&](const Origin& origin) {
           return other == origin.run && steps <= origin.step;
         });
}

bool Branch::owns(std::string_view other, int steps) const {
  if (other.empty()) return false;
  if (other == run) return true;
  for (const Origin& origin : before | std::views::reverse) {
    if (origin.is_shared) return false;
    if (other == origin.run) return steps <= origin.step;
  }
  return false;
}

Branch Branch::continued(std::string_view next, int step, bool is_shared) const {
  Branch branch{.run = std::string(next), .before = before};
  if (!run.empty()) branch.before.push_back({.run = run, .step = step, .is_shared = is_shared});
  return branch;
}

}  // namespace lockstep
