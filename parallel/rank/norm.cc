#include "parallel/rank/norm.h"

#include <span>

namespace lockstep {

void begin_norm(const Communicator& world) {
  if (CollectiveObserver* const observer = world.records().observer) observer->begin_norm();
}

// lab: sum_of_norm
void sum_of_norm(Communicator& ranks, double& square) {
  if (ranks.size() == 1) return;
  ranks.set_label(norm_label);
  // lab: solution
  all_reduce(ranks, host_slice(std::span(&square, 1)), ReduceOp::sum, norm_algorithm);
  // lab: given
  if (CollectiveObserver* const observer = ranks.records().observer)
    observer->added_norm(ranks.group());
}
// lab: end

}  // namespace lockstep
