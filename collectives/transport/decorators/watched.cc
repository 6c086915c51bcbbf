#include "collectives/transport/decorators/watched.h"

#include <numeric>

namespace lockstep {
namespace {

class WatchedReceive final : public Transfer {
 public:
  WatchedReceive(Request inner, ArrivalWatch& watch, const Arrival& arrival)
      : inner_(std::move(inner)), watch_(watch), arrival_(arrival) {}

  void wait() override {
    watch_.before(arrival_);
    inner_->wait();
    watch_.after(arrival_);
  }
  std::optional<double> arrives_at() override { return inner_->arrives_at(); }

 private:
  Request inner_;
  ArrivalWatch& watch_;
  Arrival arrival_;
};

class WatchedTransport final : public TransportDecorator {
 public:
  // `members`: the world's ranks in this group.
  WatchedTransport(std::unique_ptr<Transport> inner, ArrivalWatch& watch, std::vector<int> members)
      : TransportDecorator(std::move(inner)), watch_(watch), members_(std::move(members)) {
    capabilities_.windows = nullptr;
  }

  Request irecv(const Call& call, Slice data, int from) override {
    return std::make_unique<WatchedReceive>(inner_->irecv(call, data, from), watch_,
                                            arrival(data, from, false));
  }
  Request irecv_reduce(const Call& call, Slice growing, int from, ReduceOp op) override {
    return std::make_unique<WatchedReceive>(inner_->irecv_reduce(call, growing, from, op), watch_,
                                            arrival(growing, from, true));
  }
  void send_recv(const Call& call, Slice leaving, int to, Slice arriving, int from) override {
    const Arrival here = arrival(arriving, from, false);
    watch_.before(here);
    inner_->send_recv(call, leaving, to, arriving, from);
    watch_.after(here);
  }
  void send_recv_reduce(const Call& call, Slice leaving, int to, Slice growing, int from,
                        ReduceOp op) override {
    const Arrival here = arrival(growing, from, true);
    watch_.before(here);
    inner_->send_recv_reduce(call, leaving, to, growing, from, op);
    watch_.after(here);
  }
  std::unique_ptr<Transport> subgroup(std::span<const int> members) override {
    std::vector<int> of_world;
    for (const int member : members) of_world.push_back(members_[static_cast<std::size_t>(member)]);
    return std::make_unique<WatchedTransport>(inner_->subgroup(members), watch_,
                                              std::move(of_world));
  }
  TwoEnds two_ends() override {
    TwoEnds ends = inner_->two_ends();
    std::vector<int> of_world = members_;
    of_world.insert(of_world.end(), members_.begin(), members_.end());
    for (auto& end : ends)
      end = std::make_unique<WatchedTransport>(std::move(end), watch_, of_world);
    return ends;
  }

 private:
  Arrival arrival(Slice data, int from, bool reduces) const {
    const auto of_world = [&](int member) { return members_[static_cast<std::size_t>(member)]; };
    return {of_world(rank()), of_world(from), data, reduces};
  }

  ArrivalWatch& watch_;
  std::vector<int> members_;
};

}  // namespace

std::unique_ptr<Transport> watched(std::unique_ptr<Transport> inner, ArrivalWatch& watch) {
  std::vector<int> everyone(static_cast<std::size_t>(inner->size()));
  std::iota(everyone.begin(), everyone.end(), 0);
  return std::make_unique<WatchedTransport>(std::move(inner), watch, std::move(everyone));
}

}  // namespace lockstep
