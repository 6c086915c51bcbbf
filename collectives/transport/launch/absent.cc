#include "collectives/transport/launch/absent.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "collectives/base/device.h"

namespace lockstep {
namespace {

class Vanished final : public Transfer {
 public:
  void wait() override {}
};

class ZeroMessage final : public Transfer {
 public:
  explicit ZeroMessage(Slice into) : into_(into) {}
  void wait() override {
    if (into_.count > 0) into_.device->zero(into_);
  }

 private:
  Slice into_;
};

// There are no other ranks to inform.
class NobodyFails final : public FailureBoard {
 public:
  bool abort(const std::exception&) override { return true; }
  void depart() override {}
  void abandon() override {}
  Stop stopper() override {
    return [](std::string_view) {};
  }
};

class GroupNetwork final : public Network {
 public:
  GroupNetwork(const LinkModel& links, const std::vector<int>& world_ranks) {
    std::vector<int> nodes;
    for (const int rank : world_ranks) nodes.push_back(links.node(rank));
    ranks_per_node_ = lockstep::ranks_per_node(nodes);
  }
  int ranks_per_node() const override { return ranks_per_node_; }

 private:
  int ranks_per_node_ = 1;
};

class AbsentPeers final : public Transport {
 public:
  AbsentPeers(int rank, std::vector<int> world_ranks, const LinkModel& links)
      : Transport({.clock = &wall_clock(), .failures = &nobody_fails_, .network = &network_}),
        rank_(rank),
        world_ranks_(std::move(world_ranks)),
        links_(links),
        network_(links, world_ranks_) {
    capabilities_.has_peers = false;
  }

  std::string_view name() const override { return "absent"; }
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(world_ranks_.size()); }

  Request isend(const Call&, Slice, int) override { return std::make_unique<Vanished>(); }
  Request irecv(const Call&, Slice data, int) override {
    return std::make_unique<ZeroMessage>(data);
  }
  // Leaves the data unchanged: does not compute the reduction with zeros.
  Request irecv_reduce(const Call&, Slice, int, ReduceOp) override {
    return std::make_unique<Vanished>();
  }
  std::size_t wait_any(const Call&, std::span<const Request>, std::span<const int>) override {
    return 0;
  }

  std::unique_ptr<Transport> subgroup(std::span<const int> members) override {
    std::vector<int> world_ranks;
    for (const int member : members)
      world_ranks.push_back(world_ranks_[static_cast<std::size_t>(member)]);
    const auto own = std::ranges::find(members, rank_) - members.begin();
    return std::make_unique<AbsentPeers>(static_cast<int>(own), std::move(world_ranks), links_);
  }
  TwoEnds two_ends() override {
    std::vector<int> ends = world_ranks_;
    ends.insert(ends.end(), world_ranks_.begin(), world_ranks_.end());
    return {std::make_unique<AbsentPeers>(rank_, ends, links_),
            std::make_unique<AbsentPeers>(size() + rank_, ends, links_)};
  }

 private:
  int rank_;
  std::vector<int> world_ranks_;
  LinkModel links_;
  GroupNetwork network_;
  NobodyFails nobody_fails_;
};

}  // namespace

std::unique_ptr<Transport> absent_peers(int rank, int size, const LinkModel& links) {
  std::vector<int> everyone(static_cast<std::size_t>(size));
  std::iota(everyone.begin(), everyone.end(), 0);
  return std::make_unique<AbsentPeers>(rank, std::move(everyone), links);
}

}  // namespace lockstep
