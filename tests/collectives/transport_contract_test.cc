// The guarantees of every transport, on threads and in virtual time. tests/cli/mpi_test.py also
// runs the tests of two ends and of device memory on processes.
#include <gtest/gtest.h>

#include <algorithm>

#include "collectives/base/error.h"
#include "tests/collectives/world.h"

namespace lockstep {
namespace {

using test::on_ranks;

TEST(TransportContract, SendsNeverWaitForTheReceiver) {
  on_ranks(2, [](RankContext& context) {
    Communicator& world = context.world;
    const int peer = 1 - world.rank();
    std::vector<std::vector<std::int64_t>> leaving, arriving(100, std::vector<std::int64_t>(1000));
    for (std::int64_t i = 0; i < 100; ++i) leaving.emplace_back(1000, i * 2 + world.rank());
    std::vector<Request> sends;
    for (auto& data : leaving) sends.push_back(world.isend(host_slice(std::span(data)), peer));
    for (auto& data : arriving) world.recv(host_slice(std::span(data)), peer);
    for (auto& send : sends) send->wait();
    for (std::int64_t i = 0; i < 100; ++i)
      ASSERT_EQ(arriving[i], std::vector<std::int64_t>(1000, i * 2 + peer))
          << "messages keep their order";
  });
}

TEST(TransportContract, ReceivesMatchInTheOrderTheyWerePosted) {
  on_ranks(2, [](RankContext& context) {
    Communicator& world = context.world;
    if (world.rank() == 0) {
      for (std::int32_t i = 0; i < 3; ++i) world.send(host_slice(std::span(&i, 1)), 1);
      return;
    }
    std::int32_t got[3];
    Request first = world.irecv(host_slice(std::span(got, 1)), 0);
    Request second = world.irecv(host_slice(std::span(got + 1, 1)), 0);
    Request third = world.irecv(host_slice(std::span(got + 2, 1)), 0);
    // Rank 0 waits for its first message to be received, so the test out of order starts with it.
    first->wait();
    second->wait();
    third->wait();
    ASSERT_EQ(got[0], 0);
    ASSERT_EQ(got[1], 1);
    ASSERT_EQ(got[2], 2);
  });
}

TEST(TransportContract, CountsForWhomARankWaits) {
  on_ranks(3, [](RankContext& context) {
    Communicator& world = context.world;
    std::byte data{};
    const Slice slice{&data, 1, DType::u8, &host_device()};
    if (world.rank() == 2) return;
    if (world.rank() == 1) {
      world.recv(slice, 0);  // rank 0 is about to wait
      sleep_for(0.2);
      return world.send(slice, 0);
    }
    world.send(slice, 1);
    const double before = world.transport().waits()->seconds();
    world.recv(slice, 1);
    const auto waits = world.transport().waits()->by_peer();
    ASSERT_EQ(waits.size(), 1u);
    EXPECT_EQ(waits.front().peer, 1);
    EXPECT_GT(waits.front().seconds, before);
  });
}

// Under mpirun the ranks are its processes. They map the host device's memory, so messages from
// there are read in place; other messages are copied.
TEST(DeviceMemory, MayBeUsedAgainOnceAMessageIsSent) {
  on_ranks(2, [](RankContext& context) {
    Communicator& world = context.world;
    for (const Count count : {Count{100}, Count{1000}, Count{3000}, Count{300'000}}) {
      const Memory memory(host_device(), nullptr, MemoryUse::communication, count * 8);
      std::vector<std::int64_t> other(static_cast<std::size_t>(count));
      for (const Slice slice : {memory.slice(count, DType::i64), host_slice(std::span(other))}) {
        const auto numbers = host_span<std::int64_t>(slice);
        for (std::int64_t i = 0; i < count; ++i) numbers[i] = i * 3 + world.rank();
        if (world.rank() == 0) {
          world.send(slice, 1);
          std::ranges::fill(numbers, -1);
          continue;
        }
        // Lets the sender arrive long before.
        sleep_for(0.05);
        world.irecv_reduce(slice, 0, ReduceOp::sum)->wait();
        for (std::int64_t i = 0; i < count; ++i) ASSERT_EQ(numbers[i], i * 6 + 1);
      }
    }
  });
}

TEST(DeviceMemory, IsSentInManyMessagesAtOnce) {
  on_ranks(2, [](RankContext& context) {
    constexpr Count messages = 100, count = 5000;
    Communicator& world = context.world;
    const Memory memory(host_device(), nullptr, MemoryUse::communication, messages * count * 8);
    const Slice all = memory.slice(messages * count, DType::i64);
    const auto numbers = host_span<std::int64_t>(all);
    if (world.rank() == 1) {
      for (Count i = 0; i < messages; ++i) world.recv(all.part(i * count, count), 0);
      for (std::int64_t i = 0; i < messages * count; ++i) ASSERT_EQ(numbers[i], i);
      return;
    }
    for (std::int64_t i = 0; i < messages * count; ++i) numbers[i] = i;
    std::vector<Request> sends;
    for (Count i = 0; i < messages; ++i)
      sends.push_back(world.isend(all.part(i * count, count), 1));
    // In any order.
    for (Count i = messages; i-- > 0;) sends[i]->wait();
  });
}

TEST(TransportContract, EmptyMessagesAndMessagesToOneself) {
  on_ranks(3, [](RankContext& context) {
    Communicator& world = context.world;
    std::vector<float> nothing;
    world.send_recv(host_slice(std::span(nothing)), world.right(), host_slice(std::span(nothing)),
                    world.left());
    float out = 3.5F, in = 0;
    world.send_recv(host_slice(std::span(&out, 1)), world.rank(), host_slice(std::span(&in, 1)),
                    world.rank());
    ASSERT_EQ(in, 3.5F);
  });
}

TEST(TransportContract, SendRecvReduceReadsTheNeighboursOldValue) {
  on_ranks(4, [](RankContext& context) {
    Communicator& world = context.world;
    std::vector<float> leaving(5000, static_cast<float>(world.rank())), growing(5000, 10);
    world.send_recv_reduce(host_slice(std::span(leaving)), world.right(),
                           host_slice(std::span(growing)), world.left(), ReduceOp::sum);
    ASSERT_EQ(growing, std::vector<float>(5000, 10 + static_cast<float>(world.left())));
    ASSERT_EQ(leaving[0], static_cast<float>(world.rank()));
  });
}

TEST(TransportContract, DuplicatesDoNotMix) {
  on_ranks(2, [](RankContext& context) {
    Communicator& world = context.world;
    Communicator other = world.duplicate(1);
    const int peer = 1 - world.rank();
    std::int32_t a = 1, b = 2, got = 0;
    const Request on_world = world.isend(host_slice(std::span(&a, 1)), peer);
    const Request on_other = other.isend(host_slice(std::span(&b, 1)), peer);
    other.recv(host_slice(std::span(&got, 1)), peer);
    ASSERT_EQ(got, 2);
    world.recv(host_slice(std::span(&got, 1)), peer);
    ASSERT_EQ(got, 1);
    on_world->wait();
    on_other->wait();
  });
}

TEST(TransportContract, UnfinishedSendIsCancelled) {
  on_ranks(2, [](RankContext& context) {
    if (context.world.rank() == 0) {
      std::vector<float> short_lived(100);
      const Request send = context.world.isend(host_slice(std::span(short_lived)), 1);
    }
  });
}

TEST(TransportContract, PeersOutOfRangeAreRefused) {
  on_ranks(2, [](RankContext& context) {
    float value = 0;
    EXPECT_THROW(context.world.isend(host_slice(std::span(&value, 1)), 2), Error);
    EXPECT_THROW(context.world.irecv(host_slice(std::span(&value, 1)), -1), Error);
  });
}

// Rank 0 receives one message of every other rank, in order of arrival.
std::vector<int> order_of_arrival(Communicator& world) {
  std::vector<int> data(static_cast<std::size_t>(world.size())), from, order;
  std::vector<Request> receives;
  for (int peer = 1; peer < world.size(); ++peer) {
    receives.push_back(world.irecv(host_slice(std::span(&data[peer], 1)), peer));
    from.push_back(peer);
  }
  while (!receives.empty()) {
    const auto place = static_cast<std::ptrdiff_t>(world.wait_any(receives, from));
    receives[place]->wait();
    order.push_back(from[place]);
    EXPECT_EQ(data[from[place]], 10 * from[place]);
    receives.erase(receives.begin() + place);
    from.erase(from.begin() + place);
  }
  return order;
}

TEST(WaitAny, TakesWhatHasCome) {
  for (const Clock clock : {Clock::wall, Clock::unit}) {
    std::vector<int> order;
    launch({.ranks = 5, .fault = {}, .clock = clock}, [&](RankContext& context) {
      Communicator& world = context.world;
      int mine = 10 * world.rank();
      if (world.rank() == 0) {
        order = order_of_arrival(world);
        return;
      }
      // The last rank sends first, 50 ms before the next.
      world.transport().advance(0.05 * (world.size() - world.rank()));
      world.send(host_slice(std::span(&mine, 1)), 0);
    });
    EXPECT_EQ(order, (std::vector<int>{4, 3, 2, 1})) << name_of(clock);
  }
}

TEST(WaitAny, NamesTheRankThatDepartedAndGoesOn) {
  for (const Clock clock : {Clock::wall, Clock::unit}) {
    int lost = -1;
    std::vector<int> order;
    launch({.ranks = 4, .fault = {}, .clock = clock}, [&](RankContext& context) {
      Communicator pair = context.world.duplicate(0);
      int data = 7;
      const Slice slice = host_slice(std::span(&data, 1));
      if (pair.rank() == 2) return pair.transport().depart();
      if (pair.rank() != 0) {
        pair.transport().advance(1 + 0.1 * pair.rank());
        return pair.send(slice, 0);
      }
      std::vector<Request> receives;
      std::vector<int> from = {1, 2, 3};
      for (const int peer : from) receives.push_back(pair.irecv(slice, peer));
      while (!receives.empty()) {
        std::ptrdiff_t place = 0;
        try {
          place = static_cast<std::ptrdiff_t>(pair.wait_any(receives, from));
          receives[place]->wait();
          order.push_back(from[place]);
        } catch (const Error& error) {
          EXPECT_EQ(error.kind(), ErrorKind::lost_rank);
          lost = error.context().failed_rank;
          place = std::ranges::find(from, lost) - from.begin();
        }
        receives.erase(receives.begin() + place);
        from.erase(from.begin() + place);
      }
    });
    EXPECT_EQ(lost, 2) << name_of(clock);
    EXPECT_EQ(order, (std::vector<int>{1, 3})) << name_of(clock);
  }
}

TEST(WaitAny, ADeadlineHoldsForAllOfThem) {
  try {
    on_ranks(
        3,
        [](RankContext& context) {
          int data = 0;
          const Slice slice = host_slice(std::span(&data, 1));
          if (context.world.rank() > 0) return context.world.recv(slice, 0);
          const int from[] = {1, 2};
          std::vector<Request> receives;
          for (const int peer : from) receives.push_back(context.world.irecv(slice, peer));
          context.world.wait_any(receives, from);
        },
        0.3);
    FAIL() << "waited for ever";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::timeout);
  }
}

// The first to arrive is chosen, not the first to leave: rank 1's long message is still in flight
// when rank 2's arrives over another link.
TEST(WaitAny, ChoosesByTheTimeOfArrivalInVirtualTime) {
  std::vector<std::pair<int, double>> taken;
  launch({.ranks = 3,
          .fault = {},
          .clock = Clock::unit,
          .links = parse_links("alpha=0,beta=1,node=2,node-alpha=0,node-beta=1")},
         [&](RankContext& context) {
           Communicator& world = context.world;
           std::vector<std::uint8_t> data(world.rank() == 1 ? 100 : 10), more(10);
           if (world.rank() == 2) world.transport().advance(20);
           if (world.rank() > 0) return world.send(host_slice(std::span(data)), 0);
           std::vector<std::uint8_t> first(100), second(10);
           std::vector<Request> receives;
           receives.push_back(world.irecv(host_slice(std::span(first)), 1));
           receives.push_back(world.irecv(host_slice(std::span(second)), 2));
           std::vector<int> from = {1, 2};
           while (!receives.empty()) {
             const auto place = static_cast<std::ptrdiff_t>(world.wait_any(receives, from));
             taken.emplace_back(from[place], world.transport().now_seconds());
             receives[place]->wait();
             receives.erase(receives.begin() + place);
             from.erase(from.begin() + place);
           }
         });
  EXPECT_EQ(taken, (std::vector<std::pair<int, double>>{{2, 30}, {1, 100}}));
}

// Answers one request of every rank with its double, in order of arrival, and sends the rank's number
// on to the next rank's second end.
void answer(Communicator& second, int ranks, Count count) {
  std::vector<std::vector<std::int64_t>> asked(static_cast<std::size_t>(ranks),
                                               std::vector<std::int64_t>(count));
  std::vector<Request> receives;
  std::vector<int> from;
  for (int rank = 0; rank < ranks; ++rank) {
    receives.push_back(second.irecv(host_slice(std::span(asked[rank])), rank));
    from.push_back(rank);
  }
  while (!receives.empty()) {
    const auto place = static_cast<std::ptrdiff_t>(second.wait_any(receives, from));
    receives[place]->wait();
    std::vector<std::int64_t>& data = asked[from[place]];
    for (std::int64_t& value : data) value *= 2;
    second.send(host_slice(std::span(data)), from[place]);
    receives.erase(receives.begin() + place);
    from.erase(from.begin() + place);
  }
  const int own = second.rank() - ranks;
  std::int64_t leaving = own, growing = 100;
  second.send_recv_reduce(host_slice(std::span(&leaving, 1)), ranks + (own + 1) % ranks,
                          host_slice(std::span(&growing, 1)), ranks + (own + ranks - 1) % ranks,
                          ReduceOp::sum);
  EXPECT_EQ(growing, 100 + (own + ranks - 1) % ranks);
}

// Every rank's first end sends requests to all second ends, its own included, and at the same time
// exchanges messages with its neighbours' first ends.
void ask(Communicator& first, int ranks, Count count) {
  const int right = (first.rank() + 1) % ranks, left = (first.rank() + ranks - 1) % ranks;
  std::vector<std::int64_t> mine(static_cast<std::size_t>(count), first.rank() + 1),
      exchanged(static_cast<std::size_t>(count)), answered(static_cast<std::size_t>(count));
  std::vector<Request> sends;
  for (int rank = 0; rank < ranks; ++rank)
    sends.push_back(first.isend(host_slice(std::span(mine)), ranks + rank));
  first.send_recv(host_slice(std::span(mine)), right, host_slice(std::span(exchanged)), left);
  EXPECT_EQ(exchanged, std::vector<std::int64_t>(static_cast<std::size_t>(count), left + 1));
  for (int rank = 0; rank < ranks; ++rank) {
    first.recv(host_slice(std::span(answered)), ranks + rank);
    EXPECT_EQ(answered[0] + answered.back(), 4 * (first.rank() + 1));
  }
  for (const Request& send : sends) send->wait();
}

void ask_and_answer(RankContext& context) {
  const int ranks = context.world.size(), rank = context.world.rank();
  auto [first, second] = context.world.two_ends(1);
  EXPECT_EQ(first.rank(), rank);
  EXPECT_EQ(second.rank(), ranks + rank);
  EXPECT_EQ(first.size(), 2 * ranks);
  EXPECT_EQ(second.size(), 2 * ranks);
  Count elements = 0;
  // Sizes that transports treat differently: in the packet, in shared memory, in segments.
  for (const Count count : {Count{1}, Count{3000}, Count{14000}, Count{300000}}) {
    const auto serving =
        second.transport().concurrency().start([&, end = &second] { answer(*end, ranks, count); });
    ask(first, ranks, count);
    elements += (2 * (ranks - 1) + 1) * count + 1;
  }
  EXPECT_EQ(context.counters.total().sent_bytes, elements * 8);
}

// Under mpirun the ranks are its processes.
TEST(TwoEnds, AreForAThreadEach) { on_ranks(3, ask_and_answer); }

TEST(TwoEnds, OfManyRanks) {
  for (const int ranks : {2, 9}) on_ranks(ranks, ask_and_answer);
}

TEST(TwoEnds, InVirtualTimeAndTraced) {
  for (const int ranks : {2, 5})
    launch({.ranks = ranks, .trace = true, .fault = {}, .clock = Clock::unit}, ask_and_answer);
}

// The ends of a rank share its egress and ingress, and messages between them take no time.
TEST(TwoEnds, CostWhatLeavesTheRank) {
  std::vector<double> arrivals(4);
  launch({.ranks = 2, .fault = {}, .clock = Clock::unit, .links = parse_links("alpha=3,beta=0.5")},
         [&](RankContext& context) {
           auto [first, second] = context.world.two_ends(1);
           const int peer = 1 - context.world.rank();
           std::vector<std::uint8_t> data(10), more(10);
           const Slice slice = host_slice(std::span(data)), other = host_slice(std::span(more));
           const Request to_itself = first.isend(slice, second.rank());
           second.recv(other, first.rank());
           EXPECT_EQ(context.world.transport().now_seconds(), 0);
           const Request one = first.isend(slice, peer), two = second.isend(slice, 2 + peer);
           first.recv(other, peer);
           arrivals[first.rank()] = context.world.transport().now_seconds();
           second.recv(other, 2 + peer);
           arrivals[second.rank()] = context.world.transport().now_seconds();
           to_itself->wait(), one->wait(), two->wait();
         });
  EXPECT_EQ(arrivals, (std::vector<double>{8, 8, 13, 13}));
}

TEST(TwoEnds, ErrorsNameTheRank) {
  for (const Clock clock : {Clock::wall, Clock::unit}) {
    launch({.ranks = 3, .fault = {}, .clock = clock}, [&](RankContext& context) {
      auto [first, second] = context.world.two_ends(1);
      std::uint8_t data = 0;
      if (context.world.rank() == 2) return second.transport().depart();
      if (context.world.rank() == 1) return;
      try {
        first.recv(host_slice(std::span(&data, 1)), 3 + 2);
        ADD_FAILURE() << "received from nobody";
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::lost_rank);
        EXPECT_EQ(error.context().failed_rank, 2);
        EXPECT_EQ(error.context().size, 3);
      }
    });
  }
}

}  // namespace
}  // namespace lockstep
