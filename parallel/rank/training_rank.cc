#include "parallel/rank/training_rank.h"

namespace lockstep {

void TrainingState::add_own(const std::string& name, const std::vector<Slice>& all) {
  for (std::size_t i = 0; i < all.size(); ++i)
    if (all[i].count > 0) own.push_back({name + "." + std::to_string(i), all[i]});
}

}  // namespace lockstep
