// A rank with more peers than it keeps at hand: their messages in virtual time, and its waits for
// them.
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "tests/collectives/world.h"

namespace lockstep {
namespace {

TEST(ManyPeers, EachGetsItsOwnMessages) {
  constexpr int ranks = 40;
  std::vector<int> heard, expected;
  std::vector<std::pair<int, double>> waits;
  const auto program = [&](RankContext& context) {
    Communicator& comm = context.world;
    std::vector<std::int32_t> number(1);
    const Slice slice = host_slice(std::span(number));
    for (int round = 0; round < 2; ++round) {
      for (int peer = ranks - 1; peer > 0; --peer) {
        if (comm.rank() == peer) {
          number[0] = 100 * round + peer;
          comm.send(slice, 0);
          comm.recv(slice, 0);
          EXPECT_EQ(number[0], peer);
        } else if (comm.rank() == 0) {
          comm.recv(slice, peer);
          heard.push_back(number[0]);
          expected.push_back(100 * round + peer);
          number[0] = peer;
          comm.send(slice, peer);
        }
      }
    }
    if (comm.rank() != 0) return;
    for (const WaitTimes::Waited& waited : comm.transport().waits()->by_peer())
      waits.emplace_back(waited.peer, waited.seconds);
  };
  launch(
      {.ranks = ranks, .fault = {}, .clock = Clock::unit, .links = parse_links("alpha=1,beta=0")},
      program);
  EXPECT_EQ(heard, expected);
  // One second for the first messages, which all leave at once, and two until the next.
  EXPECT_EQ(waits, (std::vector<std::pair<int, double>>{{ranks - 1, 3}}));
}

TEST(ManyPeers, WaitsForThemAddUp) {
  constexpr int ranks = 300;
  WaitTimes times(ranks);
  for (int round = 0; round < 2; ++round)
    for (int peer = ranks - 1; peer >= 0; peer -= 3) times.add(peer, peer + 1);
  const std::vector<WaitTimes::Waited> waits = times.by_peer();
  ASSERT_EQ(waits.size(), ranks / 3);
  double sum = 0;
  for (std::size_t i = 0; i < waits.size(); ++i) {
    EXPECT_EQ(waits[i].peer, 3 * static_cast<int>(i) + 2) << "in order";
    EXPECT_EQ(waits[i].seconds, 2 * (waits[i].peer + 1));
    sum += waits[i].seconds;
  }
  EXPECT_EQ(times.seconds(), sum);
}

}  // namespace
}  // namespace lockstep
