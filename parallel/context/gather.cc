#include "parallel/context/gather.h"

#include <fmt/format.h>

#include "collectives/all_gather/all_gather.h"
#include "collectives/reduce_scatter/reduce_scatter.h"

namespace lockstep {

template <typename Visit>
void Gather::for_each_block(Backend& backend, const Matrix& own, Visit visit) {
  const Slice all = exchange_.room(blocks_, groups_ * own.rows * own.columns, own.slice.dtype);
  const Chunks blocks(all, groups_);
  const auto block = [&](int group) { return Matrix(blocks[group], own.rows, own.columns); };
  backend.copy(block(group_), own, 0);
  auto arriving = exchange_.start(label, [=](Communicator& comm) { all_gather(comm, all); });
  for (int step = 0; step < groups_; ++step) {
    if (step == 1) exchange_.wait(arriving);
    const int group = (group_ - step + groups_) % groups_;
    const Trace::Span span(exchange_.trace(), 0, fmt::format("block {}", group), "attention");
    visit(group, block(group));
  }
}

void Gather::forward(Backend& backend, const Matrix& own, const Attend& attend) {
  for_each_block(backend, own, attend);
}

void Gather::backward(Backend& backend, const Matrix& own, const Matrix& own_gradient,
                      const AttendBackward& attend) {
  const Slice all =
      exchange_.room(gradients_, groups_ * own.rows * own.columns, own_gradient.slice.dtype);
  const Chunks gradients(all, groups_);
  all.device->zero(all);
  for_each_block(backend, own, [&](int group, const Matrix& block) {
    attend(group, block, Matrix(gradients[group], own.rows, own.columns));
  });
  auto summed =
      exchange_.start(gradient_label, [=](Communicator& comm) { reduce_scatter(comm, all); });
  exchange_.wait(summed);
  backend.copy(own_gradient, Matrix(gradients[group_], own.rows, own.columns), 1);
}

Traffic Gather::traffic(Count block, int groups, int group) {
  return ring_all_gather_traffic(groups * block, groups, group);
}

Traffic Gather::gradient_traffic(Count block, int groups, int group) {
  return ring_reduce_scatter_traffic(groups * block, groups, group);
}

}  // namespace lockstep
