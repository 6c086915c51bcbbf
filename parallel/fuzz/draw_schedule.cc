// Draws schedules that no generator makes.
#include <algorithm>
#include <numeric>
#include <random>
#include <set>

#include "parallel/fuzz/fuzz_case.h"
#include "parallel/pipeline/schedules/play.h"
#include "parallel/pipeline/schedules/text.h"

namespace lockstep {

std::string draw_schedule(std::uint64_t seed, const PipelineShape& shape) {
  std::mt19937_64 random(seed);
  const int stages = shape.stages();
  std::vector<int> rank_of(static_cast<std::size_t>(stages));
  for (int s = 0; s < stages; ++s) rank_of[static_cast<std::size_t>(s)] = s % shape.ranks;
  std::ranges::shuffle(rank_of, random);

  const bool splits_backward = random() % 2 == 0;
  std::vector<Action> left;
  for (int s = 0; s < stages; ++s)
    for (int m = 0; m < shape.micro_batches; ++m) {
      left.push_back({s, Pass::forward, m});
      left.push_back({s, splits_backward ? Pass::input_gradient : Pass::backward, m});
      if (splits_backward) left.push_back({s, Pass::weight_gradient, m});
    }
  Schedule schedule{.stages = stages, .micro_batches = shape.micro_batches, .by_rank = {}};
  schedule.by_rank.resize(static_cast<std::size_t>(shape.ranks));
  std::set<Action> done;
  while (!left.empty()) {
    const auto can_run = [&](const Action& action) {
      const std::optional<Action> needed = needed_by(action, stages);
      if (!needed || done.contains(*needed)) return true;
      // The backward pass may have run in one piece or in two.
      return needed->pass == Pass::backward &&
             done.contains({needed->stage, Pass::input_gradient, needed->micro_batch});
    };
    const auto ready =
        std::ranges::stable_partition(left, [&](const Action& a) { return !can_run(a); });
    const auto chosen = ready.begin() + static_cast<std::ptrdiff_t>(random() % ready.size());
    done.insert(*chosen);
    schedule.by_rank[static_cast<std::size_t>(rank_of[static_cast<std::size_t>(chosen->stage)])]
        .push_back(*chosen);
    left.erase(chosen);
  }
  return csv_of(schedule);
}

}  // namespace lockstep
