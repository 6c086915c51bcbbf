#include "collectives/transport/threads/threads_group.h"

#include <numeric>

namespace lockstep {

void ThreadsWorld::wake_all() {
  const std::lock_guard lock(mutex);
  for (const auto& weak : groups)
    if (const auto group = weak.lock())
      for (Bell& bell : group->bells) bell.ring();
}

std::shared_ptr<ThreadsGroup> make_group(const std::shared_ptr<ThreadsWorld>& world,
                                         std::vector<int> world_ranks) {
  auto group = std::make_shared<ThreadsGroup>(world, std::move(world_ranks));
  const std::lock_guard lock(world->mutex);
  std::erase_if(world->groups, [](const auto& weak) { return weak.expired(); });
  world->groups.push_back(group);
  return group;
}

std::shared_ptr<ThreadsGroup> ThreadsGroup::subgroup(int rank, const std::vector<int>& members) {
  return subgroups_.join(rank, members, [&] {
    std::vector<int> world_ranks;
    for (const int member : members) world_ranks.push_back(board.world_rank(member));
    return make_group(world, std::move(world_ranks));
  });
}

std::shared_ptr<ThreadsGroup> ThreadsGroup::with_two_ends(int rank) {
  std::vector<int> everyone(static_cast<std::size_t>(size()));
  std::iota(everyone.begin(), everyone.end(), 0);
  return subgroups_.join(rank, everyone,
                         [&] { return make_group(world, board.world_ranks_twice()); });
}

}  // namespace lockstep
