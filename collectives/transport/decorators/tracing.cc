#include "collectives/transport/decorators/tracing.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <vector>

namespace lockstep {
namespace {

// Waits for a message inside a span. A receive ends the arrow that its send began.
class TracedTransfer final : public Transfer {
 public:
  TracedTransfer(Request inner, Trace& trace, int track, std::string name, std::string arrow,
                 Count bytes)
      : inner_(std::move(inner)),
        trace_(trace),
        track_(track),
        name_(std::move(name)),
        arrow_(std::move(arrow)),
        bytes_(bytes) {}
  void wait() override {
    const Trace::Span span(&trace_, track_, name_, "message", bytes_);
    inner_->wait();
    if (!arrow_.empty()) trace_.flow_end(track_, arrow_);
  }
  std::optional<double> arrives_at() override { return inner_->arrives_at(); }

 private:
  Request inner_;
  Trace& trace_;
  int track_;
  std::string name_, arrow_;
  Count bytes_;
};

class TracingTransport final : public TransportDecorator {
 public:
  TracingTransport(std::unique_ptr<Transport> inner, Trace& trace, std::string group, int track,
                   int ends_per_rank = 1)
      : TransportDecorator(std::move(inner)),
        trace_(trace),
        group_(std::move(group)),
        track_(track),
        ranks_(size() / ends_per_rank),
        sent_(static_cast<std::size_t>(size())),
        received_(static_cast<std::size_t>(size())) {
    trace_.name_unnamed(track_, "messages of " + group_);
  }

  Request isend(const Call& call, Slice data, int to) override {
    const Trace::Span span(&trace_, track_, fmt::format("send to {}", to % ranks_), "message",
                           data.bytes());
    begin_arrow(call, data, to);
    return std::make_unique<TracedTransfer>(inner_->isend(call, data, to), trace_, track_,
                                            fmt::format("wait for send to {}", to % ranks_), "",
                                            data.bytes());
  }

  Request irecv(const Call& call, Slice data, int from) override {
    return std::make_unique<TracedTransfer>(inner_->irecv(call, data, from), trace_, track_,
                                            fmt::format("receive from {}", from % ranks_),
                                            arrow(from, rank(), received_[from]++), data.bytes());
  }

  Request irecv_reduce(const Call& call, Slice growing, int from, ReduceOp op) override {
    return std::make_unique<TracedTransfer>(inner_->irecv_reduce(call, growing, from, op), trace_,
                                            track_, fmt::format("reduce from {}", from % ranks_),
                                            arrow(from, rank(), received_[from]++),
                                            growing.bytes());
  }

  void send_recv(const Call& call, Slice leaving, int to, Slice arriving, int from) override {
    const Trace::Span span(&trace_, track_,
                           fmt::format("send to {}, receive from {}", to % ranks_, from % ranks_),
                           "message", arriving.bytes());
    begin_arrow(call, leaving, to);
    inner_->send_recv(call, leaving, to, arriving, from);
    trace_.flow_end(track_, arrow(from, rank(), received_[from]++));
  }
  void send_recv_reduce(const Call& call, Slice leaving, int to, Slice growing, int from,
                        ReduceOp op) override {
    const Trace::Span span(&trace_, track_,
                           fmt::format("send to {}, reduce from {}", to % ranks_, from % ranks_),
                           "message", growing.bytes());
    begin_arrow(call, leaving, to);
    inner_->send_recv_reduce(call, leaving, to, growing, from, op);
    trace_.flow_end(track_, arrow(from, rank(), received_[from]++));
  }

  std::unique_ptr<Transport> subgroup(std::span<const int> members) override {
    const std::vector<int> list(members.begin(), members.end());
    std::string name = fmt::format("{}/{}#{}", group_, fmt::join(list, ","), subgroups_[list]++);
    return std::make_unique<TracingTransport>(inner_->subgroup(members), trace_, std::move(name),
                                              ++tracks_ + track_);
  }
  // Each end, which has its own thread, gets its own track.
  TwoEnds two_ends() override {
    TwoEnds ends = inner_->two_ends();
    const std::string name = fmt::format("{}/two ends#{}", group_, two_ends_++);
    for (auto& end : ends)
      end = std::make_unique<TracingTransport>(std::move(end), trace_, name, ++tracks_ + track_, 2);
    return ends;
  }

 private:
  // The n-th message of a pair has the same name on both sides.
  std::string arrow(int from, int to, std::int64_t number) const {
    return fmt::format("{}:{}>{}:{}", group_, from, to, number);
  }

  void begin_arrow(const Call& call, Slice data, int to) {
    const Signature& signature = call.signature;
    const std::string_view algorithm(signature.algorithm.data());
    const std::string operation = fmt::format("{}{}{}", name_of(signature.operation),
                                              algorithm.empty() ? "" : "/", algorithm);
    trace_.flow_begin(track_, arrow(rank(), to, sent_[to]++),
                      {.bytes = data.bytes(),
                       .operation = operation,
                       .operation_bytes = signature.count * element_bytes(signature.dtype),
                       .label = std::string(call.label),
                       .address = reinterpret_cast<std::uintptr_t>(data.data)});
  }

  Trace& trace_;
  std::string group_;
  int track_;
  int ranks_;
  int tracks_ = 0, two_ends_ = 0;
  std::vector<std::int64_t> sent_, received_;
  std::map<std::vector<int>, int> subgroups_;
};

}  // namespace

std::unique_ptr<Transport> tracing(std::unique_ptr<Transport> inner, Trace& trace) {
  return std::make_unique<TracingTransport>(std::move(inner), trace, "world", 0);
}

}  // namespace lockstep
