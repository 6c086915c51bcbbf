#include "parallel/pipeline/schedules/schedule.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep {

std::string_view name_of(Pass pass) {
  switch (pass) {
    case Pass::forward:
      return "F";
    case Pass::backward:
      return "B";
    case Pass::input_gradient:
      return "I";
    case Pass::weight_gradient:
      return "W";
    case Pass::unshard:
      return "UNSHARD";
    case Pass::reshard:
      return "RESHARD";
    case Pass::reduce_gradients:
      return "REDUCE_GRAD";
  }
  return "";
}

bool is_compute(Pass pass) { return has_output(pass) || pass == Pass::weight_gradient; }

bool has_output(Pass pass) {
  return pass == Pass::forward || pass == Pass::backward || pass == Pass::input_gradient;
}

std::string text_of(const Action& action) {
  const std::string text = fmt::format("{}{}", action.stage, name_of(action.pass));
  return action.micro_batch < 0 ? text : fmt::format("{}{}", text, action.micro_batch);
}

std::size_t block_size(const std::vector<Action>& actions, std::size_t begin) {
  std::size_t size = 1;
  while (begin + size < actions.size() && actions[begin + size - 1].with_next) ++size;
  return size;
}

bool Schedule::has(Pass pass) const {
  for (const auto& actions : by_rank)
    if (std::ranges::find(actions, pass, &Action::pass) != actions.end()) return true;
  return false;
}

std::vector<int> Schedule::rank_of_stage() const {
  std::vector<int> rank_of(static_cast<std::size_t>(stages), -1);
  for (int rank = 0; rank < ranks(); ++rank)
    for (const Action& action : by_rank[static_cast<std::size_t>(rank)])
      rank_of.at(static_cast<std::size_t>(action.stage)) = rank;
  return rank_of;
}

RankActions::Taken RankActions::taken(int stage) const {
  const auto found = taken_.find(stage);
  return found == taken_.end() ? Taken{} : found->second;
}

void RankActions::add(int stage, Pass pass) {
  Taken& taken = taken_[stage];
  int& count = pass == Pass::forward           ? taken.forward
               : pass == Pass::weight_gradient ? taken.weight
                                               : taken.backward;
  actions_.push_back({.stage = stage, .pass = pass, .micro_batch = count++});
  if (pass == Pass::backward) ++taken.weight;
}

}  // namespace lockstep
