// A bounded number of sends in flight, for algorithms that cut their data into many segments.
#pragma once

#include <cstdint>
#include <deque>

#include "collectives/communicator.h"

namespace lockstep {

// At most `most` sends are unfinished; send() first waits for the oldest if there are so many.
class SendsInFlight {
 public:
  SendsInFlight(Communicator& comm, std::size_t most) : comm_(comm), most_(most) {}

  void send(Slice data, int to) {
    if (sends_.size() == most_) finish_oldest();
    sends_.push_back(comm_.isend(data, to));
  }
  // Waits for the first `count` sends. Their data may then be overwritten.
  void finish(std::int64_t count) {
    while (finished_ < count) finish_oldest();
  }
  void finish_all() {
    while (!sends_.empty()) finish_oldest();
  }

 private:
  void finish_oldest() {
    sends_.front()->wait();
    sends_.pop_front();
    ++finished_;
  }

  Communicator& comm_;
  std::size_t most_;
  std::deque<Request> sends_;
  std::int64_t finished_ = 0;
};

}  // namespace lockstep
