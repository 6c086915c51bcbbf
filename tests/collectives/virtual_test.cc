// Virtual time: the cost of messages, who waits for whom, streams overlapped with the rank, and
// failures without a deadline.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <ctime>

#include "collectives/all_reduce/all_reduce.h"
#include "collectives/barrier/barrier.h"
#include "collectives/base/error.h"
#include "collectives/stream.h"
#include "tests/collectives/world.h"

namespace lockstep {
namespace {

// Runs `body` on every rank and returns each rank's time at its end.
std::vector<double> times(int ranks, const std::string& links,
                          const std::function<void(Communicator&)>& body,
                          Clock clock = Clock::unit) {
  std::vector<double> ends(static_cast<std::size_t>(ranks));
  launch({.ranks = ranks, .fault = {}, .clock = clock, .links = parse_links(links)},
         [&](RankContext& context) {
           body(context.world);
           ends[context.world.rank()] = context.world.transport().now_seconds();
         });
  return ends;
}

Slice bytes_of(std::vector<std::uint8_t>& bytes) { return host_slice(std::span(bytes)); }

TEST(VirtualTime, AMessageCostsLatencyAndBandwidth) {
  const auto ends = times(2, "alpha=3,beta=0.5", [](Communicator& comm) {
    std::vector<std::uint8_t> data(10);
    if (comm.rank() == 0) comm.send(bytes_of(data), 1);
    if (comm.rank() == 1) comm.recv(bytes_of(data), 0);
  });
  EXPECT_EQ(ends, (std::vector<double>{5, 8})) << "the sender is free when the last byte has left";
}

// [peer, seconds] pairs of a rank's waits.
std::vector<std::pair<int, double>> waits_of(Communicator& comm) {
  std::vector<std::pair<int, double>> waits;
  for (const WaitTimes::Waited& waited : comm.transport().waits()->by_peer())
    waits.emplace_back(waited.peer, waited.seconds);
  return waits;
}

TEST(VirtualTime, CountsForWhomARankWaits) {
  std::vector<std::vector<std::pair<int, double>>> waits(3);
  times(3, "alpha=3,beta=0.5", [&](Communicator& comm) {
    std::vector<std::uint8_t> data(10);
    const Slice slice = bytes_of(data);
    if (comm.rank() == 1) comm.transport().advance(20);
    if (comm.rank() == 2) comm.transport().advance(100);
    // In a group the ranks have other numbers.
    const auto group = comm.subgroup(std::vector<int>{2, 1, 0});
    if (comm.rank() == 0) {
      group->recv(slice, 1);
      WaitTimes account(3), &own = *comm.transport().waits();
      own.add_to(&account);
      group->recv(slice, 0);
      own.add_to(nullptr);
      group->recv(slice, 0);
      own.add_to(&own);
      EXPECT_EQ(account.by_peer().size(), 1u);
      EXPECT_EQ(account.by_peer().front().peer, 2);
      EXPECT_EQ(account.by_peer().front().seconds, 100 + 5 + 3 - (20 + 5 + 3));
      EXPECT_EQ(account.seconds(), 80);
      EXPECT_EQ(own.seconds(), 20 + 5 + 3);
    } else {
      group->send(slice, 2);
      if (comm.rank() == 1) group->send(slice, 0);
      if (comm.rank() == 2) {
        group->recv(slice, 1);
        group->send(slice, 2);
      }
    }
    waits[static_cast<std::size_t>(comm.rank())] = waits_of(comm);
  });
  using Waits = std::vector<std::pair<int, double>>;
  EXPECT_EQ(waits[0], (Waits{{1, 20 + 5 + 3}})) << "the others were not added here";
  EXPECT_EQ(waits[1], Waits{}) << "a send does not wait";
  EXPECT_EQ(waits[2], Waits{}) << "the message was there";
}

TEST(VirtualTime, MessagesQueueWhereTheyLeaveAndWhereTheyArrive) {
  const auto ends = times(4, "alpha=3,beta=0.5", [](Communicator& comm) {
    std::vector<std::uint8_t> data(10), three(30);
    if (comm.rank() == 0) {
      for (int from = 1; from < 4; ++from) comm.recv(bytes_of(data), from);
    } else {
      comm.send(bytes_of(data), 0);
    }
  });
  EXPECT_EQ(ends[0], 3 + 3 * 5) << "three messages share one ingress";
  const auto served = times(4, "alpha=3,beta=0.5", [](Communicator& comm) {
    std::vector<std::uint8_t> data(10);
    std::vector<Request> sends;
    for (int to = 1; comm.rank() == 0 && to < 4; ++to)
      sends.push_back(comm.isend(bytes_of(data), to));
    for (const Request& send : sends) send->wait();
    if (comm.rank() > 0) comm.recv(bytes_of(data), 0);
  });
  EXPECT_EQ(served, (std::vector<double>{15, 8, 13, 18}));
}

TEST(VirtualTime, NodesHaveLinksOfTheirOwn) {
  const auto ends =
      times(4, "alpha=100,beta=1,node=2,node-alpha=1,node-beta=0.5", [](Communicator& comm) {
        std::vector<std::uint8_t> data(10);
        // Ranks 0 and 1 share a node; 0 sends to both its neighbour and the other node at once.
        if (comm.rank() == 0) {
          const Request far = comm.isend(bytes_of(data), 2), near = comm.isend(bytes_of(data), 1);
          far->wait();
          near->wait();
        }
        if (comm.rank() == 1 || comm.rank() == 2) comm.recv(bytes_of(data), 0);
      });
  EXPECT_EQ(ends, (std::vector<double>{10, 6, 110, 0}));
}

TEST(VirtualTime, TheSenderMayWriteToItsDataWhenItsSendHasEnded) {
  times(2, "alpha=100,beta=1", [](Communicator& comm) {
    std::vector<std::uint8_t> data = {1, 2, 3};
    if (comm.rank() == 0) {
      comm.send(bytes_of(data), 1);
      std::ranges::fill(data, std::uint8_t{9});
    } else {
      comm.recv(bytes_of(data), 0);
      EXPECT_EQ(data, (std::vector<std::uint8_t>{1, 2, 3}));
    }
  });
}

TEST(VirtualTime, MessagesMayBeTakenInAnyOrder) {
  times(2, "alpha=1,beta=1", [](Communicator& comm) {
    std::vector<std::vector<std::uint8_t>> data = {{1}, {2}, {3}, {4}};
    std::vector<Request> receives;
    for (std::size_t i = 0; i < data.size(); ++i) {
      // Sent after the receiver has taken the one before and left the first two.
      if (i == 3 && comm.rank() == 0) comm.transport().advance(100);
      if (comm.rank() == 0) comm.send(bytes_of(data[i]), 1);
      if (comm.rank() == 1) receives.push_back(comm.irecv(bytes_of(data[i] = {0}), 0));
    }
    if (comm.rank() == 0) return;
    for (const std::size_t i : {2U, 0U, 3U, 1U}) {
      receives[i]->wait();
      EXPECT_EQ(data[i][0], i + 1);
      if (i == 2) comm.transport().advance(1000);
    }
  });
}

TEST(VirtualTime, AStreamRunsBesideItsRank) {
  const double alone = all_reduce_ring().seconds({.ranks = 4, .count = 400, .element_bytes = 1},
                                                 parse_links("alpha=3,beta=0.5"));
  const auto ends = times(4, "alpha=3,beta=0.5", [&](Communicator& comm) {
    std::vector<std::uint8_t> data(400);
    Stream stream(comm, 1, "communication");
    Stream::Handle first =
        stream.enqueue([&](Communicator& own) { all_reduce(own, bytes_of(data)); });
    Stream::Handle second =
        stream.enqueue([&](Communicator& own) { all_reduce(own, bytes_of(data)); });
    EXPECT_FALSE(first.done());
    barrier(comm);
    EXPECT_EQ(comm.transport().now_seconds(), 50 + 3) << "the second round queues behind a chunk";
    first.wait();
    EXPECT_GE(comm.transport().now_seconds(), alone);
    EXPECT_FALSE(second.done());
    second.wait();
    EXPECT_TRUE(second.done());
  });
  for (const double end : ends) EXPECT_NEAR(end, 2 * alone, 2 * 3 + 1) << "the barrier hid";
}

TEST(VirtualTime, ProcessorTimeCountsUnderTheClockCpu) {
  const auto burn = [](double seconds) {
    const std::clock_t end = std::clock() + static_cast<std::clock_t>(seconds * CLOCKS_PER_SEC);
    while (std::clock() < end) {
    }
  };
  const auto ends = times(
      8, "free",
      [&](Communicator& comm) {
        burn(0.02);
        barrier(comm);
      },
      Clock::cpu);
  for (const double end : ends) {
    EXPECT_GE(end, 0.019);
    EXPECT_LT(end, 0.1) << "eight ranks compute at the same virtual time";
  }
}

TEST(VirtualTime, TheSameEveryTime) {
  const auto run = [] {
    return times(7, "alpha=0.1,beta=0.003", [](Communicator& comm) {
      for (const Count count : {3, 50, 1}) {
        std::vector<std::uint8_t> data(static_cast<std::size_t>(count));
        all_reduce(comm, bytes_of(data), ReduceOp::sum, "double_binary_tree");
        all_reduce(comm, bytes_of(data), ReduceOp::sum, "linear");
      }
    });
  };
  const auto first = run();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(run(), first);
}

void expect_failure(ErrorKind kind, const std::string& part,
                    const std::function<void(Communicator&)>& body) {
  try {
    times(3, "free", body);
    FAIL() << "ended well";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

TEST(VirtualTime, WhoWaitsForeverIsToldAtOnce) {
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::uint8_t> data(4);
  expect_failure(ErrorKind::timeout, "all ranks wait",
                 [&](Communicator& comm) { comm.recv(bytes_of(data), comm.left()); });
  expect_failure(ErrorKind::lost_rank, "rank 2 has ended its program", [&](Communicator& comm) {
    if (comm.rank() != 2) all_reduce(comm, bytes_of(data));
  });
  expect_failure(ErrorKind::mismatch, "all_reduce", [&](Communicator& comm) {
    all_reduce(comm, bytes_of(data).first(comm.rank() == 1 ? 3 : 4));
  });
  expect_failure(ErrorKind::wrong_result, "rank 1 says so", [&](Communicator& comm) {
    if (comm.rank() == 1) throw Error(ErrorKind::wrong_result, "rank 1 says so");
    all_reduce(comm, bytes_of(data));
  });
  expect_failure(ErrorKind::wrong_result, "in its stream", [&](Communicator& comm) {
    std::vector<std::uint8_t> own(4);
    Stream stream(comm, 1, "communication");
    auto handle = stream.enqueue([&](Communicator& mine) {
      if (mine.rank() == 1) throw Error(ErrorKind::wrong_result, "in its stream");
      all_reduce(mine, bytes_of(own));
    });
    handle.wait();
  });
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

// 2.1 million messages.
TEST(VirtualTime, AThousandRanksTakeSeconds) {
  constexpr int ranks = LOCKSTEP_THOROUGH ? 1024 : 32;
  constexpr Count count = 1 << 20;
  const auto start = std::chrono::steady_clock::now();
  const auto ends = times(ranks, "ndr", [](Communicator& comm) {
    const Memory data = comm.scratch({.dtype = DType::f32, .device = &none_device()}, count);
    all_reduce(comm, data.slice(count, DType::f32));
  });
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
  EXPECT_NEAR(*std::ranges::max_element(ends),
              all_reduce_ring().seconds({.ranks = ranks, .count = count}, parse_links("ndr")),
              1e-9);
}

// Of more segments than a leaf sends ahead, with latencies of 0 to 1000 segments.
TEST(VirtualTime, OfADoubleBinaryTreeIsWithinItsClosedForm) {
  constexpr Count segment = Count{64} << 10, count = 2 * 200 * segment;
  for (const int ranks : {2, 3, 4, 6, 8, 16, 31, 32})
    for (const int latency : {0, 10, 50, 1000}) {
      const std::string links = fmt::format("alpha={},beta=1", latency * segment);
      const auto ends = times(ranks, links, [](Communicator& comm) {
        const Memory data = comm.scratch({.dtype = DType::u8, .device = &none_device()}, count);
        all_reduce(comm, data.slice(count, DType::u8), ReduceOp::sum, "double_binary_tree");
      });
      const double closed = all_reduce_double_binary_tree().seconds(
          {.ranks = ranks, .count = count, .element_bytes = 1}, parse_links(links));
      const double share = *std::ranges::max_element(ends) / closed;
      const bool power_of_two = (ranks & (ranks - 1)) == 0;
      EXPECT_LE(share, 1) << ranks << " ranks, latency " << latency;
      EXPECT_GE(share, ranks == 2 ? 1 : power_of_two ? 0.85 : 0.5) << ranks << ", " << latency;
    }
}

TEST(VirtualTime, SixteenThousandRanksArePossible) {
  constexpr int ranks = LOCKSTEP_THOROUGH ? 16384 : 64;
  const auto ends = times(ranks, "alpha=1,beta=0", [](Communicator& comm) {
    const Memory data = comm.scratch({.dtype = DType::f32, .device = &none_device()}, 1000);
    all_reduce(comm, data.slice(1000, DType::f32), ReduceOp::sum, "recursive_doubling");
  });
  EXPECT_EQ(*std::ranges::max_element(ends), floor_log2(ranks));
}

TEST(Links, AreReadAndRefused) {
  const LinkModel links =
      parse_links("alpha=2us,beta=50GB/s,node=8,node-alpha=500ns,node-beta=450GB/s");
  EXPECT_DOUBLE_EQ(links.between.alpha_s, 2e-6);
  EXPECT_DOUBLE_EQ(links.between.beta_s_per_byte, 1 / 50e9);
  EXPECT_DOUBLE_EQ(links.inside.seconds(450), 501e-9);
  EXPECT_EQ(links.ranks_per_node, 8);
  EXPECT_EQ(parse_links(text_of(links)).inside, links.inside);
  EXPECT_EQ(parse_links("alpha=1ms").inside.alpha_s, 1e-3) << "one kind of link";
  EXPECT_EQ(parse_links("dgx").ranks_per_node, 8);
  for (const char* text : {"fast", "alpha", "alpha=", "alpha=-1", "alpha=1min", "alpha=nan",
                           "beta=0GB/s", "beta=1GB", "node=0", "node=1.5", "node=2us", "gamma=1"})
    EXPECT_THROW(parse_links(text), Error) << text;
  const std::vector<int> regular = {0, 0, 1, 1}, mixed = {0, 1, 0, 1}, unequal = {0, 0, 0, 1},
                         one = {5, 5, 5};
  EXPECT_EQ(ranks_per_node(regular), 2);
  EXPECT_EQ(ranks_per_node(mixed), 0);
  EXPECT_EQ(ranks_per_node(unequal), 0);
  EXPECT_EQ(ranks_per_node(one), 3);
}

}  // namespace
}  // namespace lockstep
