#include "parallel/rank/sequence_sharers.h"

#include "collectives/all_reduce/all_reduce.h"

namespace lockstep {

SequenceSharers::SequenceSharers(std::unique_ptr<Communicator> ranks) : ranks_(std::move(ranks)) {
  waiting_.emplace(*ranks_);
}

void SequenceSharers::add_up(std::span<double> numbers) {
  if (!ranks_ || ranks_->size() == 1) return;
  ranks_->set_label(label);
  waiting_->time([&] { all_reduce(*ranks_, host_slice(numbers), ReduceOp::sum, algorithm); });
}

}  // namespace lockstep
