// Sends and receives in virtual time, from the call that starts them to their wait().
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "collectives/transport/transport.h"
#include "collectives/transport/virtual/virtual_group.h"

namespace lockstep {

// While it lives, the thread's CPU time is free, because it runs code of the transport.
class AtWork {
 public:
  explicit AtWork(VirtualTime& time) : time_(time) { time_.pause_compute(); }
  ~AtWork() { time_.resume_compute(); }
  AtWork(const AtWork&) = delete;

 private:
  VirtualTime& time_;
};

// A message on its way, and when its last byte has left.
struct InFlight {
  VirtualMessage* message;
  double left_at;
};

class VirtualSend final : public Transfer, public Recycled<VirtualSend> {
 public:
  VirtualSend(VirtualTime& time, InFlight sent)
      : time_(time), message_(sent.message), left_at_(sent.left_at) {
    message_->hold(&message_);
  }
  ~VirtualSend() override {
    if (!message_) return;
    message_->cancel();
    message_->hold(nullptr);
  }
  void wait() override {
    const AtWork work(time_);
    time_.sleep_until(left_at_);
    if (!message_) return;
    message_->keep_data();
    message_->hold(nullptr);
    message_ = nullptr;
  }

 private:
  VirtualTime& time_;
  VirtualMessage* message_;  // null once it was taken, or its data are kept
  double left_at_;
};

class VirtualReceive final : public Transfer, public Recycled<VirtualReceive> {
 public:
  // With an operation, reduces the message into `into`; without one, copies it there.
  VirtualReceive(VirtualGroup& group, VirtualChannel& channel, int rank, int from,
                 SignaturePointer of_operation, std::string_view label, Slice into,
                 std::optional<ReduceOp> op)
      : group_(group),
        channel_(channel),
        rank_(rank),
        from_(from),
        signature_(std::move(of_operation)),
        label_(label),
        into_(into),
        op_(op),
        number_(channel_.receives++) {}

  void wait() override {
    if (finished_) return;
    const MessagePointer message = arrived();
    if (op_)
      into_.device->reduce(into_, message->data(), *op_);
    else
      into_.device->copy(into_, message->data());
    finished_ = true;
  }
  std::optional<double> arrives_at() override {
    const VirtualMessage* message = channel_.find(number_);
    return message ? message->arrives_at() : std::nullopt;
  }

 private:
  Call call() const { return {signature_->signature, label_}; }

  MessagePointer arrived() {
    VirtualTime& time = group_.world->time;
    const AtWork work(time);
    time.catch_up();
    const double begin = time.thread().now();
    while (!arrives_at()) wait_for_sender();
    time.sleep_until(*arrives_at());
    group_.count_wait(rank_, from_, begin);
    MessagePointer message = channel_.take(number_);
    if (message->signature() != signature_)
      group_.board.match(rank_, from_, call(), message->signature()->signature);
    // Shares of ranks that stand for others may differ by an element.
    if (group_.runs(from_)) group_.board.match_size(rank_, from_, call(), into_, message->data());
    return message;
  }

  void wait_for_sender() {
    VirtualWorld& world = *group_.world;
    group_.board.check_notice(rank_, from_, call());
    const Board::Waiting waiting(group_.board, rank_, from_, call());
    channel_.receiver = &world.time.thread();
    world.time.thread().will_use(this);
    const bool goes_on = world.time.wait();
    channel_.receiver = nullptr;
    const std::span peers(&from_, 1);
    if (!goes_on) group_.board.give_up(rank_, peers, call());
    group_.board.check_notice(rank_, from_, call());
    if (!arrives_at()) group_.board.check_departed(rank_, peers, call());
  }

  VirtualGroup& group_;
  VirtualChannel& channel_;
  int rank_, from_;
  SignaturePointer signature_;
  std::string_view label_;
  Slice into_;
  std::optional<ReduceOp> op_;
  std::int64_t number_;
  bool finished_ = false;
};

}  // namespace lockstep
