#include "parallel/pipeline/check.h"

#include <fmt/format.h>

#include "collectives/base/error.h"

namespace lockstep {
namespace {

// How far a stage has come with a micro-batch.
struct Passes {
  bool forward = false, input = false, weight = false;
};

void require_of(bool condition, int rank, const Action& action, std::string_view rule) {
  if (!condition)
    require(false,
            fmt::format("the schedule has {} on rank {}, but {}", text_of(action), rank, rule));
}

void take(Passes& passes, int rank, const Action& action) {
  const auto once = [&](bool& taken) {
    require_of(!taken, rank, action, "its stage has done that before");
    taken = true;
  };
  switch (action.pass) {
    case Pass::forward:
      return once(passes.forward);
    case Pass::backward:
      require_of(passes.forward, rank, action, "not yet its forward pass");
      once(passes.input);
      return once(passes.weight);
    case Pass::input_gradient:
      require_of(passes.forward, rank, action, "not yet its forward pass");
      return once(passes.input);
    case Pass::weight_gradient:
      require_of(passes.input, rank, action, "not yet the gradient of its input");
      return once(passes.weight);
  }
}

void check_complete(const Schedule& schedule) {
  const auto micro_batches = static_cast<std::size_t>(schedule.micro_batches);
  std::vector<Passes> all(static_cast<std::size_t>(schedule.stages) * micro_batches);
  std::vector<int> rank_of(static_cast<std::size_t>(schedule.stages), -1);
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    const auto& actions = schedule.by_rank[static_cast<std::size_t>(rank)];
    for (const Action& action : actions) {
      require_of(action.stage >= 0 && action.stage < schedule.stages, rank, action,
                 fmt::format("there are {} stages", schedule.stages));
      require_of(action.micro_batch >= 0 && action.micro_batch < schedule.micro_batches, rank,
                 action, fmt::format("there are {} micro-batches", schedule.micro_batches));
      int& home = rank_of[static_cast<std::size_t>(action.stage)];
      if (home < 0) home = rank;
      require_of(home == rank, rank, action, fmt::format("its stage is on rank {}", home));
      take(all[static_cast<std::size_t>(action.stage) * micro_batches +
               static_cast<std::size_t>(action.micro_batch)],
           rank, action);
    }
    require_of(actions.empty() || !actions.back().with_next, rank,
               actions.empty() ? Action{} : actions.back(), "nothing to form a block with");
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto stage = i / micro_batches, micro_batch = i % micro_batches;
    const std::string_view missing = !all[i].forward  ? "forward pass"
                                     : !all[i].input  ? "backward pass"
                                     : !all[i].weight ? "weight gradient"
                                                      : "";
    require(missing.empty(), fmt::format("the schedule has no {} of stage {} for micro-batch {}",
                                         missing, stage, micro_batch));
  }
}

}  // namespace

void check(const Schedule& schedule) {
  require(schedule.stages > 0 && schedule.micro_batches > 0, "the schedule is empty");
  check_complete(schedule);
  throw_deadlock(
      play(schedule, [](int, std::span<const Action>, std::int64_t) { return std::int64_t{0}; }));
}

std::string text_of(const std::vector<Wait>& cycle) {
  std::string text;
  for (const Wait& wait : cycle)
    text += fmt::format("{}rank {} waits at {} for {} of rank {}", text.empty() ? "" : ", ",
                        wait.rank, text_of(wait.action), text_of(wait.needed), wait.needed_rank);
  return text;
}

void throw_deadlock(const std::vector<Wait>& cycle) {
  if (cycle.empty()) return;
  require(false, fmt::format("the schedule is a deadlock: {}", text_of(cycle)),
          "change the order of these actions");
}

}  // namespace lockstep
