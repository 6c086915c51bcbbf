#include "parallel/pipeline/schedules/sharding.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <span>

#include "collectives/base/error.h"

namespace lockstep {
namespace {

// Calls use(block) for every action or block of a rank, in order.
void for_blocks(const std::vector<Action>& actions,
                const std::function<void(std::span<const Action>)>& use) {
  for (std::size_t begin = 0; begin < actions.size();) {
    const std::size_t size = block_size(actions, begin);
    use(std::span(actions).subspan(begin, size));
    begin += size;
  }
}

void append(std::vector<Action>& actions, std::span<const Action> block) {
  actions.insert(actions.end(), block.begin(), block.end());
}

Action collective(int stage, Pass pass) {
  return {.stage = stage, .pass = pass, .micro_batch = Action::whole_stage};
}

bool completes_a_gradient(const Action& action) {
  return action.pass == Pass::backward || action.pass == Pass::weight_gradient;
}

std::vector<Action> reduced(const std::vector<Action>& actions, int micro_batches) {
  std::vector<Action> lowered;
  std::map<int, int> completed;  // by stage
  for_blocks(actions, [&](std::span<const Action> block) {
    append(lowered, block);
    for (const Action& action : block)
      if (completes_a_gradient(action) && ++completed[action.stage] == micro_batches)
        lowered.push_back(collective(action.stage, Pass::reduce_gradients));
  });
  return lowered;
}

// For every block of a rank, the stages that it and the following blocks use, in the order of their
// next use: as many as may be unsharded, or as the block itself needs.
std::vector<std::vector<int>> upcoming_stages(const std::vector<Action>& actions, int most) {
  std::vector<std::span<const Action>> blocks;
  for_blocks(actions, [&](std::span<const Action> block) { blocks.push_back(block); });
  std::vector<std::vector<int>> upcoming(blocks.size());
  std::vector<int> by_next_use;
  for (std::size_t i = blocks.size(); i-- > 0;) {
    // Backwards in time, the stage used most recently is the one needed next.
    for (std::size_t j = blocks[i].size(); j-- > 0;) {
      std::erase(by_next_use, blocks[i][j].stage);
      by_next_use.insert(by_next_use.begin(), blocks[i][j].stage);
    }
    const auto limit = std::max(static_cast<std::size_t>(most), blocks[i].size());
    upcoming[i].assign(
        by_next_use.begin(),
        by_next_use.begin() + static_cast<std::ptrdiff_t>(std::min(limit, by_next_use.size())));
  }
  return upcoming;
}

std::vector<Action> sharded(const std::vector<Action>& actions, int most) {
  const std::vector<std::vector<int>> upcoming = upcoming_stages(actions, most);
  std::vector<Action> lowered;
  std::set<int> unsharded;
  std::size_t place = 0;
  for_blocks(actions, [&](std::span<const Action> block) {
    const std::vector<int>& wanted = upcoming[place++];
    std::erase_if(unsharded, [&](int stage) {
      const bool leaves = std::ranges::find(wanted, stage) == wanted.end();
      if (leaves) lowered.push_back(collective(stage, Pass::reshard));
      return leaves;
    });
    for (const int stage : wanted)
      if (unsharded.insert(stage).second) lowered.push_back(collective(stage, Pass::unshard));
    append(lowered, block);
  });
  for (const int stage : unsharded) lowered.push_back(collective(stage, Pass::reshard));
  return lowered;
}

}  // namespace

Schedule with_gradient_reduction(const Schedule& schedule) {
  Schedule lowered = schedule;
  for (std::vector<Action>& actions : lowered.by_rank) {
    for (const Action& action : actions)
      require(is_compute(action.pass), fmt::format("the schedule already has {}", text_of(action)),
              "add collectives to a schedule that has none");
    actions = reduced(actions, schedule.micro_batches);
  }
  return lowered;
}

Schedule with_sharding(const Schedule& schedule, int most_unsharded_stages) {
  require(most_unsharded_stages >= 1, fmt::format("{} unsharded stages", most_unsharded_stages),
          "use 1 or more");
  Schedule lowered = with_gradient_reduction(schedule);
  for (std::vector<Action>& actions : lowered.by_rank)
    actions = sharded(actions, most_unsharded_stages);
  return lowered;
}

}  // namespace lockstep
