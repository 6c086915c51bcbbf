// A group of ranks in virtual time: its channels and its board.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <unordered_map>
#include <utility>
#include <vector>

#include "collectives/base/error.h"
#include "collectives/transport/failure/board.h"
#include "collectives/transport/subgroups.h"
#include "collectives/transport/virtual/message.h"

namespace lockstep {

class VirtualGroup {
 public:
  VirtualGroup(std::shared_ptr<VirtualWorld> shared_world, std::vector<int> world_ranks)
      : world(std::move(shared_world)),
        slots(world_ranks.size()),
        board(slots.data(), {&world->notice, world->waits}, std::move(world_ranks),
              std::numeric_limits<double>::infinity(), "virtual") {
    std::vector<int> nodes;
    for (int rank = 0; rank < board.size(); ++rank)
      nodes.push_back(world->links.node(board.world_rank(rank)));
    ranks_per_node = lockstep::ranks_per_node(nodes);
    find_stand_ins();
  }

  WaitTimes& wait_times(int rank) {
    return world->wait_times[static_cast<std::size_t>(board.world_rank(rank))];
  }
  // The rank has waited for `peer` since `begin`.
  void count_wait(int rank, int peer, double begin) {
    wait_times(rank).add(board.world_rank(peer), world->time.thread().now() - begin);
  }
  // A message to a rank that does not run arrives at its stand-in, which treats it as the message
  // of the rank from which it receives.
  VirtualChannel& channel(int from, int to) {
    const std::int64_t sender = stand_ins_[static_cast<std::size_t>(from)];
    auto& channel = channels_[sender * board.size() + stand_ins_[static_cast<std::size_t>(to)]];
    if (!channel) channel = new VirtualChannel(world->time);
    return *channel;
  }
  Route route(int from, int to) {
    const int sender = board.world_rank(from), receiver = board.world_rank(to);
    const bool to_other_end = sender == receiver && from != to;
    auto& ports = to_other_end ? world->between_ends : world->ports(sender, receiver);
    return {.channel = &channel(from, to),
            .sender = &ports[static_cast<std::size_t>(sender)],
            .receiver = &ports[static_cast<std::size_t>(stand_in_of_world(to))],
            .link = to_other_end ? Link{} : world->link(sender, receiver)};
  }
  // Ranks in the same operation share its signature.
  const SignaturePointer& shared(const Signature& signature) {
    if (!newest_ || newest_->signature != signature) newest_ = new SharedSignature(signature);
    return newest_;
  }
  std::shared_ptr<VirtualGroup> subgroup(int rank, const std::vector<int>& members) {
    return subgroups_.join(rank, members, [&] {
      std::vector<int> world_ranks;
      for (const int member : members) world_ranks.push_back(board.world_rank(member));
      return std::make_shared<VirtualGroup>(world, std::move(world_ranks));
    });
  }
  // Returns the group with two ends per rank: first every rank's first end, then every rank's
  // second end.
  std::shared_ptr<VirtualGroup> with_two_ends(int rank) {
    std::vector<int> everyone(slots.size());
    std::iota(everyone.begin(), everyone.end(), 0);
    require(running == board.size(), "two ends of each rank in a symmetric world",
            "let all ranks run");
    return subgroups_.join(rank, everyone, [&] {
      return std::make_shared<VirtualGroup>(world, board.world_ranks_twice());
    });
  }

  std::shared_ptr<VirtualWorld> world;
  std::vector<BoardSlot> slots;
  Board board;
  int ranks_per_node = 1;
  int running = 0;   // ranks that run
  int aligning = 0;  // ranks that have arrived at this align()
  std::int64_t rounds_aligned = 0;
  // False for a rank whose stand-in runs.
  bool runs(int rank) const { return stand_ins_[static_cast<std::size_t>(rank)] == rank; }

 private:
  int stand_in_of_world(int rank) const {
    return world->stand_ins[static_cast<std::size_t>(board.world_rank(rank))];
  }

  void find_stand_ins() {
    stand_ins_.resize(static_cast<std::size_t>(board.size()));
    std::iota(stand_ins_.begin(), stand_ins_.end(), 0);
    running = board.size();
    if (!world->has_stand_ins) return;
    std::unordered_map<int, int> places;  // of the ranks that run, by rank of the world
    for (int rank = 0; rank < board.size(); ++rank)
      if (stand_in_of_world(rank) == board.world_rank(rank)) places[board.world_rank(rank)] = rank;
    for (int rank = 0; rank < board.size(); ++rank) {
      if (stand_in_of_world(rank) == board.world_rank(rank)) continue;
      const auto found = places.find(stand_in_of_world(rank));
      if (found == places.end())
        throw Error(ErrorKind::bad_input,
                    fmt::format("rank {} in the place of rank {}, which is in another group",
                                stand_in_of_world(rank), board.world_rank(rank)),
                    {.hint = "let more ranks run"});
      stand_ins_[static_cast<std::size_t>(rank)] = found->second;
      --running;
    }
  }

  std::vector<int> stand_ins_;  // by rank of this group
  std::unordered_map<std::int64_t, ChannelPointer> channels_;
  SignaturePointer newest_;
  Subgroups<VirtualGroup> subgroups_;
};

// What one rank knows of the peers with which it exchanged messages last: most algorithms stay with
// a few for a while. Their numbers lie together, so that a search reads little memory.
template <typename Known>
class RecentPeers {
 public:
  // `look_up()` is called for a peer that is not among them.
  template <typename LookUp>
  const Known& find(int peer, LookUp look_up) {
    newest_ = static_cast<std::size_t>(std::ranges::find(peers_, peer) - peers_.begin());
    if (newest_ == peers_.size()) {
      newest_ = added_++ % peers_.size();
      known_[newest_] = look_up();
      peers_[newest_] = peer;
    }
    return known_[newest_];
  }
  // The one found last; null before that.
  const Known* newest() const { return added_ > 0 ? &known_[newest_] : nullptr; }

 private:
  static constexpr std::size_t most = 16;
  static constexpr std::array<int, most> nobody() {
    std::array<int, most> peers{};
    peers.fill(-1);
    return peers;
  }

  std::array<int, most> peers_ = nobody();
  std::size_t newest_ = 0, added_ = 0;
  std::array<Known, most> known_{};
};

}  // namespace lockstep
