// Symmetric worlds: ranks that stand in for others take the time of the whole world.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "collectives/all_gather/all_gather.h"
#include "collectives/all_reduce/all_reduce.h"
#include "collectives/base/error.h"
#include "collectives/broadcast/broadcast.h"
#include "collectives/operations/operations.h"
#include "collectives/transport/launch/launch_symmetric.h"

namespace lockstep {
namespace {

using Body = std::function<void(Communicator&)>;

LaunchOptions world_of(int ranks, const char* links) {
  return {.ranks = ranks,
          .fault = {},
          .clock = Clock::unit,
          .links = parse_links(links),
          .device = &none_device()};
}

// The time at which each rank that runs ends, with what it has counted.
using Ends = std::map<int, std::pair<double, Volume>>;
Ends ends_of(const std::function<void(const std::function<void(RankContext&)>&)>& start,
             const Body& body) {
  Ends ends;
  start([&](RankContext& context) {
    body(context.world);
    Volume sum;
    for (const auto& [label, volume] : context.counters.by_label()) sum += volume;
    ends[context.world.rank()] = {context.world.transport().now_seconds(), sum};
  });
  return ends;
}

// One rank of every `period` consecutive ones runs.
void expect_same(int ranks, int period, const char* links, const Body& body) {
  std::vector<int> stand_ins(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank)
    stand_ins[static_cast<std::size_t>(rank)] = rank % period;
  const LaunchOptions world = world_of(ranks, links);
  const Ends all = ends_of([&](const auto&run) { launch(world, run); }, body),
             few = ends_of([&](const auto&run) { launch_symmetric(world, stand_ins, run); }, body);
  EXPECT_EQ(std::ssize(few), period);
  for (const auto& [rank, end] : all)
    EXPECT_EQ(end, few.at(rank % period)) << rank << " of " << ranks;
}

Body collective(const std::function<void(Communicator&, Slice)>& run) {
  return [run](Communicator& comm) {
    const Memory data = comm.scratch({.dtype = DType::f32, .device = &none_device()}, 2400);
    for (int i = 0; i < 3; ++i) run(comm, data.slice(2400, DType::f32));
  };
}

constexpr const char* flat = "alpha=8,beta=0.5";
constexpr const char* nodes = "alpha=64,beta=2,node=4,node-alpha=8,node-beta=0.5";

TEST(SymmetricWorld, RingsTakeTheTimeOfAllRanks) {
  for (const int ranks : {2, 3, 5, 8}) {
    expect_same(ranks, 1, flat, collective([](auto& c, Slice s) { all_reduce(c, s); }));
    expect_same(ranks, 1, flat, collective([](auto& c, Slice s) { all_gather(c, s); }));
  }
}

TEST(SymmetricWorld, PairsTakeTheTimeOfAllRanks) {
  for (const char* algorithm : {"recursive_doubling", "halving_doubling"})
    for (const int ranks : {2, 4, 16})
      expect_same(ranks, 1, flat, collective([=](Communicator& comm, Slice data) {
                    all_reduce(comm, data, ReduceOp::sum, algorithm);
                  }));
}

// A ring over nodes has slow and fast links: one node runs.
TEST(SymmetricWorld, NodesStandForNodes) {
  for (const int ranks : {8, 12, 32})
    expect_same(ranks, 4, nodes, collective([](auto& c, Slice s) { all_reduce(c, s); }));
}

TEST(SymmetricWorld, GroupsHaveStandInsToo) {
  expect_same(8, 4, nodes, [](Communicator& comm) {
    const int rank = comm.rank();
    const auto across = comm.subgroup(std::vector<int>{rank % 4, rank % 4 + 4});
    const int first = rank / 4 * 4;
    const auto inside = comm.subgroup(std::vector<int>{first, first + 1, first + 2, first + 3});
    const Memory data = comm.scratch({.dtype = DType::f32, .device = &none_device()}, 400);
    comm.transport().advance(rank % 4);
    all_reduce(*inside, data.slice(400, DType::f32));
    all_reduce(*across, data.slice(400, DType::f32));
    comm.transport().align();
  });
}

// What a table says of its algorithm: one rank may run for all, and on unequal links one node.
TEST(SymmetricWorld, AlgorithmsWithEqualRanksTakeTheTimeOfAllRanks) {
  constexpr const char* equal_nodes = "alpha=8,beta=0.5,node=4,node-alpha=8,node-beta=0.5";
  constexpr Count count = 3200;
  int compared = 0;
  for (const OperationEntry& entry : operations())
    for (const AnyAlgorithm& algorithm : entry.algorithms) {
      if (!algorithm.ranks_are_equal) continue;
      ++compared;
      SCOPED_TRACE(testing::Message() << entry.name << "/" << algorithm.name);
      const Body body = [&](Communicator& comm) {
        const Slice like{.dtype = DType::f32, .device = &none_device()};
        const Memory in = comm.scratch(like, count), out = comm.scratch(like, count);
        const Arguments arguments{.out =
                                      entry.out_of_place ? out.slice(count, DType::f32) : Slice{}};
        for (int i = 0; i < 3; ++i) algorithm.run(comm, in.slice(count, DType::f32), arguments);
      };
      for (const int ranks : {2, 4, 16, 32}) {
        expect_same(ranks, 1, flat, body);
        expect_same(ranks, 1, equal_nodes, body);
        if (ranks >= 4) expect_same(ranks, 4, nodes, body);
      }
    }
  EXPECT_EQ(compared, 17);
}

// A rank that gets nothing from its kind is stuck, and says so; without it the test would pass
// whatever a stand-in did.
TEST(SymmetricWorld, RefusesWhatIsNotSymmetric) {
  const LaunchOptions world = world_of(4, flat);
  const auto run = [](RankContext& context) {
    const Memory data = context.world.scratch({.dtype = DType::f32, .device = &none_device()}, 8);
    broadcast(context.world, data.slice(8, DType::f32), 3);
  };
  EXPECT_THROW(launch_symmetric(world, {0, 0, 0, 0}, run), Error);
  EXPECT_THROW(launch_symmetric(world, {0, 0, 0}, run), Error) << "not for every rank";
  EXPECT_THROW(launch_symmetric(world, {1, 0, 0, 0}, run), Error) << "1 does not run";
  LaunchOptions real = world;
  real.clock = Clock::wall;
  EXPECT_THROW(launch_symmetric(real, {0, 0, 0, 0}, run), Error);
  const auto other_group = [](RankContext& context) {
    context.world.subgroup(std::vector<int>{context.world.rank(), 3});
  };
  EXPECT_THROW(launch_symmetric(world, {0, 1, 2, 1}, other_group), Error)
      << "1 is not in the group";
}

}  // namespace
}  // namespace lockstep
