#include "parallel/pipeline/schedule.h"

#include <fmt/format.h>

namespace lockstep {

std::string text_of(const Action& action) {
  return fmt::format("{}{}{}", action.stage, static_cast<char>(action.pass), action.micro_batch);
}

std::vector<int> Schedule::rank_of_stage() const {
  std::vector<int> rank_of(static_cast<std::size_t>(stages), -1);
  for (int rank = 0; rank < ranks(); ++rank)
    for (const Action& action : by_rank[static_cast<std::size_t>(rank)])
      rank_of.at(static_cast<std::size_t>(action.stage)) = rank;
  return rank_of;
}

void RankActions::add(int stage, Pass pass) {
  Taken& taken = taken_[static_cast<std::size_t>(stage)];
  int& count = pass == Pass::forward           ? taken.forward
               : pass == Pass::weight_gradient ? taken.weight
                                               : taken.backward;
  actions_.push_back({.stage = stage, .pass = pass, .micro_batch = count++});
  if (pass == Pass::backward) ++taken.weight;
}

}  // namespace lockstep
