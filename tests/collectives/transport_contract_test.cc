// What every transport promises, on the threads transport.
#include <gtest/gtest.h>

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
    // Rank 0 waits for its first message to be taken, so waiting out of order starts with that one.
    first->wait();
    second->wait();
    third->wait();
    ASSERT_EQ(got[0], 0);
    ASSERT_EQ(got[1], 1);
    ASSERT_EQ(got[2], 2);
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

}  // namespace
}  // namespace lockstep
