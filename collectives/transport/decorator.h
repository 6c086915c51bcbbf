// A transport that passes everything on to another one. Counting, tracing and faulty transports
// change what they need.
#pragma once

#include <memory>
#include <utility>

#include "collectives/transport/transport.h"

namespace lockstep {

class TransportDecorator : public Transport {
 public:
  explicit TransportDecorator(std::unique_ptr<Transport> inner) : inner_(std::move(inner)) {}

  std::string_view name() const override { return inner_->name(); }
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  void enter(const Call& call) override { inner_->enter(call); }
  void leave() override { inner_->leave(); }
  Request isend(const Call& call, Slice data, int to) override {
    return inner_->isend(call, data, to);
  }
  Request irecv(const Call& call, Slice data, int from) override {
    return inner_->irecv(call, data, from);
  }
  Request irecv_reduce(const Call& call, Slice growing, int from, ReduceOp op) override {
    return inner_->irecv_reduce(call, growing, from, op);
  }
  std::unique_ptr<Window> open_window(Slice data, int from, std::int64_t ahead) override {
    return inner_->open_window(data, from, ahead);
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
  bool abort(const std::exception& cause) override { return inner_->abort(cause); }
  void depart() override { inner_->depart(); }
  void abandon() override { inner_->abandon(); }
  double now_seconds() const override { return inner_->now_seconds(); }
  double about_now_seconds() const override { return inner_->about_now_seconds(); }
  void pass(double seconds) override { inner_->pass(seconds); }
  LinkModel links() const override { return inner_->links(); }
  void align() override { inner_->align(); }
  Concurrency& concurrency() override { return inner_->concurrency(); }
  int ranks_per_node() const override { return inner_->ranks_per_node(); }
  SharedMemory* shared_memory() override { return inner_->shared_memory(); }
  VendorCollectives* vendor() override { return inner_->vendor(); }
  std::vector<std::string> hindrances() const override { return inner_->hindrances(); }

 protected:
  std::unique_ptr<Transport> inner_;
};

}  // namespace lockstep
