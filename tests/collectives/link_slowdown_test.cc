// Slow links of virtual time: their times by closed form, which messages they slow, and what is refused.
#include "collectives/base/link_slowdown.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "collectives/base/error.h"
#include "collectives/transport/launch/launch_symmetric.h"
#include "tests/collectives/world.h"

namespace lockstep {
namespace {

constexpr double alpha = 3, beta = 0.5, node_beta = 0.25;

// The seconds until a message of so many bytes has arrived, between nodes of two ranks.
double arrival(int ranks, const std::vector<LinkSlowdown>& slow_links, int from, int to,
               Count bytes) {
  double end = 0;
  launch({.ranks = ranks,
          .clock = Clock::unit,
          .links = {.inside = {alpha, node_beta}, .between = {alpha, beta}, .ranks_per_node = 2},
          .slow_links = slow_links},
         [&](RankContext& context) {
           Communicator& comm = context.world;
           std::vector<std::uint8_t> data(static_cast<std::size_t>(bytes));
           if (comm.rank() == from) comm.send(host_slice(std::span(data)), to);
           if (comm.rank() != to) return;
           comm.recv(host_slice(std::span(data)), from);
           end = comm.transport().now_seconds();
         });
  return end;
}

// The closed form: alpha + F * beta * n, with the F of the slowest part on the way.
void expect_arrivals(int ranks, const std::vector<LinkSlowdown>& slow_links,
                     const std::function<double(int, int)>& factor) {
  for (int from = 0; from < ranks; ++from)
    for (int to = 0; to < ranks; ++to)
      for (const Count bytes : {0, 1, 24}) {
        if (from == to) continue;
        const double of_byte = from / 2 == to / 2 ? node_beta : beta;
        EXPECT_EQ(arrival(ranks, slow_links, from, to, bytes),
                  alpha + factor(from, to) * of_byte * static_cast<double>(bytes))
            << from << " to " << to;
      }
}

TEST(LinkSlowdown, ARankSlowsAllItsMessages) {
  for (const int slow : {0, 3, 5})
    expect_arrivals(6, {{.rank = slow, .factor = 8}},
                    [&](int from, int to) { return from == slow || to == slow ? 8.0 : 1.0; });
}

TEST(LinkSlowdown, ACableSlowsBothDirectionsOfOnePair) {
  for (const auto& [a, b] : {std::pair(1, 4), std::pair(4, 0), std::pair(2, 3)})
    expect_arrivals(6, {{.rank = a, .peer = b, .factor = 2.5}}, [&](int from, int to) {
      return std::minmax(from, to) == std::minmax(a, b) ? 2.5 : 1.0;
    });
}

TEST(LinkSlowdown, TheSlowestPartOnTheWayCounts) {
  expect_arrivals(
      6,
      {{.rank = 1, .factor = 4},
       {.rank = 5, .factor = 2},
       {.rank = 5, .peer = 1, .factor = 3},
       {.rank = 0, .peer = 2, .factor = 7}},
      [](int from, int to) {
        const auto [low, high] = std::minmax(from, to);
        return low == 1 || high == 1 ? 4.0 : high == 5 ? 2.0 : low == 0 && high == 2 ? 7.0 : 1.0;
      });
}

// A rank's messages queue at its slow link, on which each takes longer.
TEST(LinkSlowdown, MessagesQueueAtASlowLink) {
  std::vector<double> ends(3);
  launch({.ranks = 3,
          .clock = Clock::unit,
          .links = parse_links("alpha=3,beta=0.5"),
          .slow_links = {{.rank = 0, .factor = 4}}},
         [&](RankContext& context) {
           Communicator& comm = context.world;
           std::vector<std::uint8_t> data(10);
           const Slice slice = host_slice(std::span(data));
           if (comm.rank() == 0) comm.send(slice, 1), comm.send(slice, 2);
           if (comm.rank() > 0) comm.recv(slice, 0);
           ends[static_cast<std::size_t>(comm.rank())] = comm.transport().now_seconds();
         });
  EXPECT_EQ(ends, (std::vector<double>{40, 3 + 20, 3 + 40}));
}

TEST(LinkSlowdown, ReadsWhatItWrites) {
  for (const LinkSlowdown& each :
       {LinkSlowdown{.rank = 7, .factor = 10}, LinkSlowdown{.rank = 6, .peer = 0, .factor = 1.25}})
    EXPECT_EQ(given_slowdown(text_of(each), 8), each);
  EXPECT_EQ(given_slowdown("2-5:1e3", 6), (LinkSlowdown{.rank = 2, .peer = 5, .factor = 1000}));
  EXPECT_EQ(text_of(LinkSlowdown{.rank = 2, .peer = 5, .factor = 10}), "2-5:10");
}

TEST(LinkSlowdown, RefusesWhatNoLinkIs) {
  const auto refusal = [](const std::string& text) -> std::string {
    try {
      given_slowdown(text, 4);
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_status(), 2);
      return error.what();
    }
    return "accepted";
  };
  for (const char* text : {"", "2", "2:", ":10", "2:x", "2:10x", "2-:10", "-:10", "2-3", "2-3-1:10",
                           "2,3:10", "2 :10", "1.5:10", "99999999999:10"})
    EXPECT_NE(refusal(text).find("write RANK:FACTOR"), std::string::npos) << text;
  for (const char* text : {"4:10", "-2:10", "0-4:10", "9-1:10", "1--2:10"})
    EXPECT_NE(refusal(text).find("ranks are 0 to 3"), std::string::npos) << text;
  EXPECT_NE(refusal("2-2:10").find("to itself"), std::string::npos);
  for (const char* text : {"2:1", "2:0.5", "2:0", "2:-3", "2:inf", "2:nan", "2:1e7", "0-1:1"})
    EXPECT_NE(refusal(text).find("use a factor above 1"), std::string::npos) << text;
}

TEST(LinkSlowdown, NeedsVirtualTimeOfAllRanks) {
  const auto refuses = [](Clock clock, const std::vector<int>& stand_ins) {
    const LaunchOptions world{.ranks = 2, .clock = clock, .slow_links = {{.rank = 1, .factor = 2}}};
    try {
      stand_ins.empty() ? launch(world, [](RankContext&) {})
                        : launch_symmetric(world, stand_ins, [](RankContext&) {});
    } catch (const Error& error) {
      return error.exit_status() == 2;
    }
    return false;
  };
  EXPECT_TRUE(refuses(Clock::wall, {}));
  EXPECT_TRUE(refuses(Clock::unit, {0, 0}));
  EXPECT_FALSE(refuses(Clock::unit, {0, 1}));
  EXPECT_FALSE(refuses(Clock::cpu, {}));
}

}  // namespace
}  // namespace lockstep
