#include "parallel/pipeline/schedules/play.h"

#include <algorithm>
#include <deque>

namespace lockstep {
namespace {

constexpr std::int64_t not_yet = -1;

// When each pass ended, and which action each rank has reached.
class Progress {
 public:
  explicit Progress(const Schedule& schedule)
      : schedule_(schedule),
        rank_of_(schedule.rank_of_stage()),
        next_(schedule.by_rank.size()),
        forward_(static_cast<std::size_t>(schedule.stages) * schedule.micro_batches, not_yet),
        backward_(forward_.size(), not_yet) {}

  // The next block of a rank; empty at its end.
  std::span<const Action> block(int rank) const {
    const auto& actions = schedule_.by_rank[static_cast<std::size_t>(rank)];
    const std::size_t begin = next_[static_cast<std::size_t>(rank)];
    if (begin == actions.size()) return {};
    return std::span(actions).subspan(begin, block_size(actions, begin));
  }
  void advance(int rank, std::span<const Action> done, std::int64_t end) {
    next_[static_cast<std::size_t>(rank)] += done.size();
    for (const Action& action : done)
      if (std::int64_t* const time = end_of(action)) *time = end;
  }

  // When the action's input arrives at its rank; empty while it does not exist.
  std::optional<std::int64_t> input_at(int rank, const Action& action, std::int64_t hop) {
    const std::optional<Action> needed = needed_by(action, schedule_.stages);
    if (!needed) return 0;
    const std::int64_t end = *end_of(*needed);
    if (end == not_yet) return {};
    return end + (rank_of(*needed) == rank ? 0 : hop);
  }
  // The rank that waits for the result of `action`.
  std::optional<int> waiting_for(const Action& action) const {
    if (!has_output(action.pass)) return {};
    const int stage = action.stage + (action.pass == Pass::forward ? 1 : -1);
    if (stage < 0 || stage >= schedule_.stages) return {};
    return rank_of_[static_cast<std::size_t>(stage)];
  }

  std::vector<Wait> cycle() {
    std::vector<Wait> waits;
    int rank = 0;
    while (rank < schedule_.ranks() && block(rank).empty()) ++rank;
    if (rank == schedule_.ranks()) return waits;
    // Follow the waits from rank to rank until a rank repeats.
    const auto waits_here = [&](const Wait& wait) { return wait.rank == rank; };
    while (std::ranges::none_of(waits, waits_here)) {
      waits.push_back(wait_of(rank));
      rank = waits.back().needed_rank;
    }
    waits.erase(waits.begin(), std::ranges::find_if(waits, waits_here));
    return waits;
  }

 private:
  int rank_of(const Action& action) const {
    return rank_of_[static_cast<std::size_t>(action.stage)];
  }
  // Null where no stage waits for the action.
  std::int64_t* end_of(const Action& action) {
    if (!has_output(action.pass)) return nullptr;
    const auto place = static_cast<std::size_t>(action.stage) * schedule_.micro_batches +
                       static_cast<std::size_t>(action.micro_batch);
    return &(action.pass == Pass::forward ? forward_ : backward_)[place];
  }
  Wait wait_of(int rank) {
    for (const Action& action : block(rank))
      if (!input_at(rank, action, 0)) {
        const Action needed = *needed_by(action, schedule_.stages);
        return {.rank = rank, .action = action, .needed_rank = rank_of(needed), .needed = needed};
      }
    return {.rank = rank, .action = {}, .needed_rank = rank, .needed = {}};
  }

  const Schedule& schedule_;
  std::vector<int> rank_of_;
  std::vector<std::size_t> next_;                 // by rank
  std::vector<std::int64_t> forward_, backward_;  // ends, by stage and micro-batch
};

}  // namespace

std::optional<Action> needed_by(const Action& action, int stages) {
  switch (action.pass) {
    case Pass::forward:
      if (action.stage == 0) return {};
      return Action{action.stage - 1, Pass::forward, action.micro_batch};
    case Pass::backward:
    case Pass::input_gradient:
      if (action.stage == stages - 1)
        return Action{action.stage, Pass::forward, action.micro_batch};
      return Action{action.stage + 1, Pass::backward, action.micro_batch};
    case Pass::weight_gradient:
      return Action{action.stage, Pass::input_gradient, action.micro_batch};
    case Pass::unshard:
    case Pass::reshard:
    case Pass::reduce_gradients:
      return {};
  }
  return {};
}

std::vector<Wait> play(
    const Schedule& schedule,
    const std::function<std::int64_t(int, std::span<const Action>, std::int64_t)>& run,
    std::int64_t hop) {
  Progress progress(schedule);
  std::deque<int> ready;
  for (int rank = 0; rank < schedule.ranks(); ++rank) ready.push_back(rank);
  while (!ready.empty()) {
    const int rank = ready.front();
    const std::span<const Action> block = progress.block(rank);
    std::int64_t inputs_at = 0;
    bool can_run = !block.empty();
    for (const Action& action : block) {
      const std::optional<std::int64_t> at = progress.input_at(rank, action, hop);
      can_run = can_run && at;
      inputs_at = std::max(inputs_at, at.value_or(0));
    }
    if (!can_run) {
      ready.pop_front();
      continue;
    }
    progress.advance(rank, block, run(rank, block, inputs_at));
    for (const Action& action : block)
      if (const std::optional<int> waiting = progress.waiting_for(action);
          waiting && *waiting != rank)
        ready.push_back(*waiting);
  }
  return progress.cycle();
}

}  // namespace lockstep
