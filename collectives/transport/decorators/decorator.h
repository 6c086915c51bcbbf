// A transport that forwards every call to an inner transport, which it owns. The counting, tracing
// and faulty transports override some of the calls.
#pragma once

#include <memory>
#include <utility>

#include "collectives/transport/transport.h"

namespace lockstep {

// Offers the capabilities of `inner`. A decorator that changes one replaces it in its constructor.
class TransportDecorator : public Transport {
 public:
  explicit TransportDecorator(std::unique_ptr<Transport> inner)
      : Transport(inner->capabilities()), inner_(std::move(inner)) {}

  std::string_view name() const override { return inner_->name(); }
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  Request isend(const Call& call, Slice data, int to) override {
    return inner_->isend(call, data, to);
  }
  Request irecv(const Call& call, Slice data, int from) override {
    return inner_->irecv(call, data, from);
  }
  Request irecv_reduce(const Call& call, Slice growing, int from, ReduceOp op) override {
    return inner_->irecv_reduce(call, growing, from, op);
  }
  void send_recv(const Call& call, Slice leaving, int to, Slice arriving, int from) override {
    inner_->send_recv(call, leaving, to, arriving, from);
  }
  void send_recv_reduce(const Call& call, Slice leaving, int to, Slice growing, int from,
                        ReduceOp op) override {
    inner_->send_recv_reduce(call, leaving, to, growing, from, op);
  }
  std::size_t wait_any(const Call& call, std::span<const Request> receives,
                       std::span<const int> from) override {
    return inner_->wait_any(call, receives, from);
  }
  std::unique_ptr<Transport> subgroup(std::span<const int> members) override {
    return inner_->subgroup(members);
  }
  TwoEnds two_ends() override { return inner_->two_ends(); }

 protected:
  std::unique_ptr<Transport> inner_;
};

}  // namespace lockstep
