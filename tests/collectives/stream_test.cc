#include "collectives/stream.h"

#include <gtest/gtest.h>

#include "collectives/all_reduce/all_reduce.h"
#include "tests/collectives/world.h"

namespace lockstep {
namespace {

using test::on_ranks;

TEST(Stream, RunsInOrderBesideTheRanksOwnCollectives) {
  on_ranks(4, [](RankContext& context) {
    Stream stream(context.world, 1, "communication");
    std::vector<std::vector<float>> buckets(10, std::vector<float>(100, 1.0F));
    std::vector<Stream::Handle> handles;
    for (auto& bucket : buckets)
      handles.push_back(stream.enqueue(
          [&](Communicator& comm) { all_reduce(comm, host_slice(std::span(bucket))); }));
    std::vector<float> own = {static_cast<float>(context.world.rank())};
    all_reduce(context.world, host_slice(std::span(own)));
    ASSERT_EQ(own[0], 0 + 1 + 2 + 3);
    for (auto& handle : handles) handle.wait();
    for (const auto& bucket : buckets) ASSERT_EQ(bucket, std::vector<float>(100, 4.0F));
    ASSERT_GT(stream.busy_seconds(), 0);
  });
}

TEST(Stream, ErrorReachesWhoWaitsAndDropsTheRest) {
  on_ranks(1, [](RankContext& context) {
    Stream stream(context.world, 1, "communication");
    bool ran = false;
    auto bad = stream.enqueue([](Communicator&) { throw std::runtime_error("on purpose"); });
    auto after = stream.enqueue([&](Communicator&) { ran = true; });
    ASSERT_THROW(bad.wait(), std::runtime_error);
    ASSERT_THROW(after.wait(), std::runtime_error);
    ASSERT_FALSE(ran);
  });
}

// Rank 1 throws while its stream waits in a collective for rank 0. The stream must not block the
// rank's end.
TEST(Stream, RankThatThrowsDoesNotWaitForItsStream) {
  const auto start = std::chrono::steady_clock::now();
  try {
    on_ranks(2, [](RankContext& context) {
      Stream stream(context.world, 1, "communication");
      std::vector<float> data(10);
      if (context.world.rank() == 1) {
        stream.enqueue([&](Communicator& comm) { all_reduce(comm, host_slice(std::span(data))); });
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        throw std::runtime_error("on purpose");
      }
      all_reduce(context.world, host_slice(std::span(data)));
    });
    FAIL() << "nothing was thrown";
  } catch (const std::exception& error) {
    EXPECT_STREQ(error.what(), "rank 1 of 2: [lost rank] on purpose");
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

}  // namespace
}  // namespace lockstep
