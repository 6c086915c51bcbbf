#include "collectives/transport/counting.h"

namespace lockstep {
namespace {

class CountingTransport final : public TransportDecorator {
 public:
  CountingTransport(std::unique_ptr<Transport> inner, Counters& counters)
      : TransportDecorator(std::move(inner)), counters_(counters) {}

  Request isend(const Call& call, Slice data, int to) override {
    counters_.add_sent(call.label, data.bytes());
    return inner_->isend(call, data, to);
  }
  Request irecv(const Call& call, Slice data, int from) override {
    counters_.add_received(call.label, data.bytes());
    return inner_->irecv(call, data, from);
  }
  Request irecv_reduce(const Call& call, Slice growing, int from, ReduceOp op) override {
    counters_.add_received(call.label, growing.bytes());
    return inner_->irecv_reduce(call, growing, from, op);
  }
  void send_recv(const Call& call, Slice leaving, int to, Slice arriving, int from) override {
    counters_.add_sent(call.label, leaving.bytes());
    counters_.add_received(call.label, arriving.bytes());
    inner_->send_recv(call, leaving, to, arriving, from);
  }
  void send_recv_reduce(const Call& call, Slice leaving, int to, Slice growing, int from,
                        ReduceOp op) override {
    counters_.add_sent(call.label, leaving.bytes());
    counters_.add_received(call.label, growing.bytes());
    inner_->send_recv_reduce(call, leaving, to, growing, from, op);
  }
  std::unique_ptr<Transport> subgroup(std::span<const int> members) override {
    return counting(inner_->subgroup(members), counters_);
  }

 private:
  Counters& counters_;
};

}  // namespace

std::unique_ptr<Transport> counting(std::unique_ptr<Transport> inner, Counters& counters) {
  return std::make_unique<CountingTransport>(std::move(inner), counters);
}

}  // namespace lockstep
