// A group of ranks that are threads: its mailboxes, bells and board, and how a rank waits.
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "collectives/base/links.h"
#include "collectives/transport/failure/board.h"
#include "collectives/transport/subgroups.h"
#include "collectives/transport/threads/core_place.h"
#include "collectives/transport/threads/mailbox.h"
#include "collectives/transport/threads/rendezvous.h"

namespace lockstep {

class ThreadsGroup;

// State that all groups of one world share.
struct ThreadsWorld {
  AbortNotice notice{};
  std::vector<RankWaits> waits;      // by rank
  std::deque<WaitTimes> wait_times;  // by rank
  double timeout_s = 30;
  double spin_us = 0;
  bool oversubscribed = false;  // more ranks than cores
  LinkModel nodes;
  std::mutex mutex;
  std::vector<std::weak_ptr<ThreadsGroup>> groups;  // to wake everyone on a failure

  void wake_all();
};

class ThreadsGroup {
 public:
  ThreadsGroup(std::shared_ptr<ThreadsWorld> shared_world, std::vector<int> world_ranks)
      : world(std::move(shared_world)),
        bells(world_ranks.size()),
        places(world_ranks.size()),
        slots(world_ranks.size()),
        mailboxes(world_ranks.size() * world_ranks.size()),
        board(slots.data(), {&world->notice, world->waits}, std::move(world_ranks),
              world->timeout_s, "threads"),
        rendezvous(static_cast<std::size_t>(board.size())) {
    std::vector<int> nodes;
    for (int rank = 0; rank < size(); ++rank)
      nodes.push_back(world->nodes.node(board.world_rank(rank)));
    ranks_per_node = lockstep::ranks_per_node(nodes);
  }

  int size() const { return board.size(); }
  WaitTimes& wait_times(int rank) {
    return world->wait_times[static_cast<std::size_t>(board.world_rank(rank))];
  }
  Mailbox& mailbox(int from, int to) {
    return mailboxes[static_cast<std::size_t>(from) * bells.size() + static_cast<std::size_t>(to)];
  }
  std::shared_ptr<ThreadsGroup> subgroup(int rank, const std::vector<int>& members);
  // Returns the group with two ends per rank: first every rank's first end, then every rank's
  // second end.
  std::shared_ptr<ThreadsGroup> with_two_ends(int rank);

  std::shared_ptr<ThreadsWorld> world;
  std::vector<Bell> bells;
  std::vector<CorePlace> places;
  std::vector<BoardSlot> slots;
  std::vector<Mailbox> mailboxes;
  Board board;
  Rendezvous rendezvous;
  int ranks_per_node = 1;

 private:
  Subgroups<ThreadsGroup> subgroups_;
};

// Blocks a rank of a group until ready() is true. It waits for something from one of `peers`: spins
// for a while, then sleeps until its bell rings.
template <typename Ready>
void wait_in(ThreadsGroup& group, int rank, std::span<const int> peers, const Call& call,
             Ready ready) {
  using Clock = std::chrono::steady_clock;
  if (ready()) return;
  const ThreadsWorld& world = *group.world;
  const auto begin = Clock::now();
  const auto end = begin + std::chrono::duration<double, std::micro>(world.spin_us);
  // A message from another core takes less time than a yield. But the other rank may need this
  // core: always with more ranks than cores, and perhaps while other programs run.
  constexpr int looks_before_yields = 2000;
  for (int look = 0; look < looks_before_yields && !world.oversubscribed; ++look)
    if (ready()) return;
  if (world.oversubscribed)
    group.places[rank].go_home(group.board.world_rank(rank));
  else
    group.places[rank].part_from(group.places[peers.front()], group.board.world_rank(rank));
  auto last = begin;
  const auto count = [&] {
    if (last == begin) return;
    group.wait_times(rank).add(group.board.world_rank(peers.front()),
                               std::chrono::duration<double>(last - begin).count());
  };
  const int looks_per_yield = world.oversubscribed ? 1 : 64;
  do {
    for (int look = 0; look < looks_per_yield; ++look)
      if (ready()) return count();
    std::this_thread::yield();
    last = Clock::now();
  } while (last < end);
  // Short sleeps: with a mismatch this rank may get no message, so it must check the board.
  constexpr double longest_sleep_s = 0.05;
  std::uint32_t rung = group.bells[rank].count();
  group.board.wait(
      rank, peers, call,
      [&] {
        rung = group.bells[rank].count();
        return ready();
      },
      [&] { group.bells[rank].sleep(rung, longest_sleep_s); });
  last = Clock::now();
  count();
}

template <typename Ready>
void wait_in(ThreadsGroup& group, int rank, int peer, const Call& call, Ready ready) {
  wait_in(group, rank, std::span(&peer, 1), call, ready);
}

std::shared_ptr<ThreadsGroup> make_group(const std::shared_ptr<ThreadsWorld>& world,
                                         std::vector<int> world_ranks);

}  // namespace lockstep
