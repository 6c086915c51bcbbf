#include "parallel/context/ring.h"

#include <fmt/format.h>

#include <utility>

namespace lockstep {

std::optional<Stream::Handle> Ring::hop(const char* which, Slice leaving, Slice arriving) {
  return exchange_.start(which, [=, number = exchange_.next_number()](Communicator& comm) {
    const Request sending = comm.isend(leaving, comm.right(), number);
    comm.recv(arriving, comm.left(), number);
    comm.announce(Operation::send_recv, leaving, arriving);
    sending->wait();
  });
}

template <typename Visit>
void Ring::for_each_block(Backend& backend, const Matrix& own, Visit visit) {
  const Count count = own.rows * own.columns;
  Slice here = exchange_.room(block_, count, own.slice.dtype);
  Slice next = exchange_.room(next_block_, count, own.slice.dtype);
  backend.copy(Matrix(here, own.rows, own.columns), own, 0);
  for (int step = 0; step < groups_; ++step) {
    std::optional<Stream::Handle> arriving;
    if (step + 1 < groups_) arriving = hop(label, here, next);
    {
      const int group = (group_ - step + groups_) % groups_;
      const Trace::Span span(exchange_.trace(), 0, fmt::format("block {}", group), "attention");
      visit(step, group, Matrix(here, own.rows, own.columns));
    }
    exchange_.wait(arriving);
    std::swap(here, next);
  }
}

void Ring::forward(Backend& backend, const Matrix& own, const Attend& attend) {
  for_each_block(backend, own, [&](int, int group, const Matrix& block) { attend(group, block); });
}

void Ring::backward(Backend& backend, const Matrix& own, const Matrix& own_gradient,
                    const AttendBackward& attend) {
  const Count count = own.rows * own.columns;
  const DType dtype = own_gradient.slice.dtype;
  Slice gradient = exchange_.room(gradient_, count, dtype);
  Slice leaving = exchange_.room(leaving_gradient_, count, dtype);
  const Slice arriving = exchange_.room(arriving_gradient_, count, dtype);
  std::optional<Stream::Handle> travelling;
  for_each_block(backend, own, [&](int step, int group, const Matrix& block) {
    if (step == 0 && !returns_all_hops_) return attend(group, block, own_gradient);
    gradient.device->zero(gradient);
    attend(group, block, Matrix(gradient, own.rows, own.columns));
    if (travelling) {
      exchange_.wait(travelling);
      gradient.device->reduce(gradient, arriving, ReduceOp::sum);
    }
    travelling = hop(gradient_label, gradient, arriving);
    std::swap(gradient, leaving);
  });
  exchange_.wait(travelling);
  exchange_.announce(Operation::reduce_scatter, arriving, arriving);
  backend.copy(own_gradient, Matrix(arriving, own.rows, own.columns), 1);
}

Traffic Ring::traffic(Count block, int groups) {
  const Count hops = groups - 1;
  return {.sent_messages = hops,
          .sent_elements = hops * block,
          .received_messages = hops,
          .received_elements = hops * block};
}

Traffic Ring::gradient_traffic(Count block, int groups, bool returns_all_hops) {
  return traffic(block, returns_all_hops ? groups + 1 : groups);
}

}  // namespace lockstep
