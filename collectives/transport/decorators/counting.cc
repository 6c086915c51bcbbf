#include "collectives/transport/decorators/counting.h"

namespace lockstep {
namespace {

class CountingTransport final : public TransportDecorator {
 public:
  // `other_end` is this rank's second end, if it has two.
  CountingTransport(std::unique_ptr<Transport> inner, Counters& counters, int other_end = -1)
      : TransportDecorator(std::move(inner)), counters_(counters), other_end_(other_end) {}

  Request isend(const Call& call, Slice data, int to) override {
    count_sent(call, data, to);
    return inner_->isend(call, data, to);
  }
  Request irecv(const Call& call, Slice data, int from) override {
    count_received(call, data, from);
    return inner_->irecv(call, data, from);
  }
  Request irecv_reduce(const Call& call, Slice growing, int from, ReduceOp op) override {
    count_received(call, growing, from);
    return inner_->irecv_reduce(call, growing, from, op);
  }
  void send_recv(const Call& call, Slice leaving, int to, Slice arriving, int from) override {
    count_sent(call, leaving, to);
    count_received(call, arriving, from);
    inner_->send_recv(call, leaving, to, arriving, from);
  }
  void send_recv_reduce(const Call& call, Slice leaving, int to, Slice growing, int from,
                        ReduceOp op) override {
    count_sent(call, leaving, to);
    count_received(call, growing, from);
    inner_->send_recv_reduce(call, leaving, to, growing, from, op);
  }
  std::unique_ptr<Transport> subgroup(std::span<const int> members) override {
    return counting(inner_->subgroup(members), counters_);
  }
  TwoEnds two_ends() override {
    TwoEnds ends = inner_->two_ends();
    const int first = ends[0]->rank(), second = ends[1]->rank();
    ends[0] = std::make_unique<CountingTransport>(std::move(ends[0]), counters_, second);
    ends[1] = std::make_unique<CountingTransport>(std::move(ends[1]), counters_, first);
    return ends;
  }

 private:
  void count_sent(const Call& call, Slice data, int to) {
    if (to != other_end_) counters_.add_sent(call.label, data.bytes());
  }
  void count_received(const Call& call, Slice data, int from) {
    if (from != other_end_) counters_.add_received(call.label, data.bytes());
  }

  Counters& counters_;
  int other_end_;
};

}  // namespace

std::unique_ptr<Transport> counting(std::unique_ptr<Transport> inner, Counters& counters) {
  return std::make_unique<CountingTransport>(std::move(inner), counters);
}

}  // namespace lockstep
