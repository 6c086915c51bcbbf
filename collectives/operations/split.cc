#include "collectives/operations/split.h"

#include <algorithm>
#include <vector>

#include "collectives/all_gather/all_gather.h"

namespace lockstep {

std::unique_ptr<Communicator> split(Communicator& comm, int color, int key) {
  std::vector<std::int32_t> choices(2 * static_cast<std::size_t>(comm.size()));
  choices[2 * comm.rank()] = color;
  choices[2 * comm.rank() + 1] = key;
  all_gather(comm, host_slice(std::span(choices)));
  if (color < 0) return nullptr;

  std::vector<int> members;
  for (int i = 0; i < comm.size(); ++i)
    if (choices[2 * i] == color) members.push_back(i);
  std::ranges::stable_sort(members, {}, [&](int member) { return choices[2 * member + 1]; });
  return comm.subgroup(members);
}

}  // namespace lockstep
