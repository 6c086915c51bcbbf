// What the exchanges of context parallelism share: a group of ranks, a stream that runs while
// the rank computes, and memory that is kept between layers.
#pragma once

#include <optional>

#include "collectives/communicator.h"
#include "collectives/stopwatch.h"
#include "collectives/stream.h"
#include "models/tensor.h"

namespace lockstep {

class Exchange {
 public:
  // Among the ranks of `comm`; null: one rank without the others, which exchanges nothing. Memory is
  // charged to `ledger` as communication.
  Exchange(Communicator* comm, int track, Ledger& ledger) : ledger_(ledger) {
    if (!comm) return;
    stream_.emplace(*comm, track, "context");
    waiting_.emplace(*comm);
  }

  // Runs work(communicator) on the stream, while the caller continues until wait().
  std::optional<Stream::Handle> start(const char* label,
                                      const std::function<void(Communicator&)>& work) {
    if (!stream_) return {};
    return stream_->enqueue([label, work](Communicator& comm) {
      const Trace::Span span(comm.records().trace, comm.track(), label, "exchange");
      comm.set_label(label);
      work(comm);
    });
  }
  void wait(std::optional<Stream::Handle>& handle) {
    if (!handle) return;
    const Trace::Span span(trace(), 0, "wait for other tokens", "wait");
    waiting_->time([&] { handle->wait(); });
    handle.reset();
  }
  // Tells the observer the combined effect of several exchanges. See CollectiveObserver.
  void announce(Operation operation, Slice from, Slice into) {
    if (stream_) stream_->communicator().announce(operation, from, into);
  }
  // Returns the number for messages of the next exchange. All ranks make exchanges in the same
  // order.
  std::int64_t next_number() { return exchanges_++; }
  // Null unless the rank is traced.
  Trace* trace() { return stream_ ? stream_->communicator().records().trace : nullptr; }
  double waiting_seconds() const { return waiting_ ? waiting_->seconds() : 0; }
  double busy_seconds() const { return stream_ ? stream_->busy_seconds() : 0; }

  // Returns at least `count` elements of `memory`, with any values.
  Slice room(Tensor& memory, Count count, DType dtype) {
    if (memory.count() < count || memory.dtype() != dtype)
      ensure(memory, {count}, dtype, ledger_, MemoryUse::communication);
    return memory.slice().first(count);
  }

 private:
  Ledger& ledger_;
  std::optional<Stream> stream_;
  std::optional<Stopwatch> waiting_;
  std::int64_t exchanges_ = 0;
};

}  // namespace lockstep
