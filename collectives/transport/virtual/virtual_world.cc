// A send leaves at its rank's time and passes through the link model. A receive ends when the
// message has arrived. The data stay with the sender and are copied only when it reuses them.
#include "collectives/transport/virtual/virtual_world.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "collectives/transport/virtual/transfers.h"
#include "collectives/transport/virtual/virtual_group.h"

namespace lockstep {
namespace {

class VirtualTransport final : public Transport,
                               public OperationBoard,
                               public FailureBoard,
                               public Network,
                               public RankClock {
 public:
  VirtualTransport(std::shared_ptr<VirtualGroup> group, int rank)
      : Transport({.clock = this,
                   .failures = this,
                   .network = this,
                   .concurrency = &group->world->concurrency,
                   .operations = this,
                   .waits = &group->wait_times(rank)}),
        group_(std::move(group)),
        rank_(rank) {}
  ~VirtualTransport() override {
    // A rank that fails has not ended its program: abort() follows with the reason.
    if (std::uncaught_exceptions() == 0) board().end(rank_);
  }

  std::string_view name() const override { return "virtual"; }
  int rank() const override { return rank_; }
  int size() const override { return board().size(); }

  void enter(const Call& call) override {
    board().enter(rank_, call.signature);
    board().check_notice(rank_, -1, call);
  }
  void leave() override { board().leave(rank_); }

  Request isend(const Call& call, Slice data, int to) override {
    return std::make_unique<VirtualSend>(group_->world->time, sent(call, data, to));
  }
  Request irecv(const Call& call, Slice data, int from) override {
    return Request(new VirtualReceive(received(call, data, from, std::nullopt)));
  }
  Request irecv_reduce(const Call& call, Slice growing, int from, ReduceOp op) override {
    return Request(new VirtualReceive(received(call, growing, from, op)));
  }
  void send_recv(const Call& call, Slice leaving, int to, Slice arriving, int from) override {
    exchange(call, leaving, to, arriving, from, std::nullopt);
  }
  void send_recv_reduce(const Call& call, Slice leaving, int to, Slice growing, int from,
                        ReduceOp op) override {
    exchange(call, leaving, to, growing, from, op);
  }

  std::size_t wait_any(const Call& call, std::span<const Request> receives,
                       std::span<const int> from) override {
    VirtualTime& time = group_->world->time;
    const AtWork work(time);
    time.catch_up();
    const double begin = time.thread().now();
    const auto arrival = [](const Request& receive) {
      return receive->arrives_at().value_or(std::numeric_limits<double>::infinity());
    };
    while (true) {
      const auto first = std::ranges::min_element(receives, {}, arrival);
      if (arrival(*first) <= time.thread().now()) {
        group_->count_wait(rank_, from[first - receives.begin()], begin);
        return static_cast<std::size_t>(first - receives.begin());
      }
      board().check_notice(rank_, from.front(), call);
      if (!std::isfinite(arrival(*first))) board().check_departed(rank_, from, call);
      const Board::Waiting waiting(board(), rank_, from.front(), call);
      for (const int peer : from) group_->channel(peer, rank_).receiver = &time.thread();
      const bool goes_on = time.wait(arrival(*first));
      for (const int peer : from) group_->channel(peer, rank_).receiver = nullptr;
      if (!goes_on) board().give_up(rank_, from, call);
    }
  }

  std::unique_ptr<Transport> subgroup(std::span<const int> members) override {
    const std::vector<int> list(members.begin(), members.end());
    const auto own = std::ranges::find(list, rank_);
    return std::make_unique<VirtualTransport>(group_->subgroup(rank_, list),
                                              static_cast<int>(own - list.begin()));
  }
  TwoEnds two_ends() override {
    const auto group = group_->with_two_ends(rank_);
    return {std::make_unique<VirtualTransport>(group, rank_),
            std::make_unique<VirtualTransport>(group, size() + rank_)};
  }

  bool abort(const std::exception& cause) override {
    VirtualWorld& world = *group_->world;
    const bool first = world.notice.raise(board().world_rank(rank_), cause);
    // Once: a rank that waits later checks the notice first.
    if (!std::exchange(world.woken_to_stop, true)) world.time.wake_all();
    return first;
  }
  void depart() override {
    board().end(rank_);
    group_->world->time.wake_all();
  }
  void abandon() override {
    group_->world->notice.claim(board().world_rank(rank_));
    group_->world->time.wake_all();
  }
  // The rank that runs notices it in its next operation, and wakes the others.
  Stop stopper() override {
    return [group = group_](std::string_view signal) { group->board.interrupt(signal); };
  }

  int ranks_per_node() const override { return group_->ranks_per_node; }
  void advance(double seconds) override {
    VirtualTime& time = group_->world->time;
    const AtWork work(time);
    time.sleep_until(time.thread().now() + seconds);
  }
  double now_seconds() const override {
    const AtWork work(group_->world->time);
    return group_->world->time.thread().now();
  }
  const void* thread() const override { return &group_->world->time.thread(); }
  LinkModel links() const override { return group_->world->links; }
  void align() override {
    VirtualTime& time = group_->world->time;
    const AtWork work(time);
    time.catch_up();
    const std::int64_t round = group_->rounds_aligned;
    if (++group_->aligning == group_->running) {
      group_->aligning = 0;
      ++group_->rounds_aligned;
      time.wake_all();
      return;
    }
    while (group_->rounds_aligned == round) {
      board().check_notice(rank_, -1, {});
      if (!time.wait()) board().give_up(rank_, std::span(&rank_, 1), {});
    }
  }

 private:
  Board& board() const { return group_->board; }

  // One for the messages of an operation that follow each other.
  const SignaturePointer& shared(const Signature& signature) {
    if (!signature_ || signature_->signature != signature) signature_ = group_->shared(signature);
    return signature_;
  }

  // What the rank uses when it goes on after a receive from that channel.
  void announce_uses(const VirtualChannel& receiving) {
    VirtualThread& thread = group_->world->time.thread();
    thread.will_use(&receiving);
    thread.will_use(capabilities().waits);
    thread.will_use(&group_);
    if (const Route* const route = to_.newest()) thread.will_use(route->channel);
  }
  VirtualReceive received(const Call& call, Slice into, int from, std::optional<ReduceOp> op) {
    VirtualChannel& channel = *from_.find(from, [&] { return &group_->channel(from, rank_); });
    announce_uses(channel);
    return VirtualReceive(*group_, channel, rank_, from, shared(call.signature), call.label, into,
                          op);
  }
  InFlight sent(const Call& call, Slice data, int to) {
    VirtualTime& time = group_->world->time;
    const AtWork work(time);
    time.catch_up();
    const Route& route = to_.find(to, [&] { return group_->route(rank_, to); });
    auto owned = std::make_unique<VirtualMessage>(route, shared(call.signature), data);
    VirtualMessage& message = *owned;
    route.channel->add(std::move(owned));
    return {&message, message.leave(time.thread().now(), *route.sender, route.link.alpha_s)};
  }
  // Both transfers on the stack.
  void exchange(const Call& call, Slice leaving, int to, Slice arriving, int from,
                std::optional<ReduceOp> op) {
    VirtualSend sending(group_->world->time, sent(call, leaving, to));
    VirtualReceive receiving = received(call, arriving, from, op);
    receiving.wait();
    sending.wait();
  }

  std::shared_ptr<VirtualGroup> group_;
  int rank_;
  SignaturePointer signature_;
  RecentPeers<Route> to_;
  RecentPeers<VirtualChannel*> from_;
};

}  // namespace

std::vector<std::unique_ptr<Transport>> virtual_world(VirtualTime& time,
                                                      const std::vector<int>& stand_ins,
                                                      const LinkModel& links,
                                                      const std::vector<LinkSlowdown>& slow_links) {
  const auto world = std::make_shared<VirtualWorld>(time, links, slow_links, stand_ins);
  std::vector<int> everyone(stand_ins.size());
  std::iota(everyone.begin(), everyone.end(), 0);
  const auto group = std::make_shared<VirtualGroup>(world, everyone);
  std::vector<std::unique_ptr<Transport>> ends;
  for (const int rank : everyone)
    if (group->runs(rank)) ends.push_back(std::make_unique<VirtualTransport>(group, rank));
  return ends;
}

}  // namespace lockstep
