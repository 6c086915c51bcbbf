#include "parallel/data/bucket.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "collectives/base/error.h"

namespace lockstep {
namespace {

Parameters parameters_of(const std::vector<Count>& counts, Ledger& ledger) {
  Parameters parameters(DType::f32, ledger);
  for (std::size_t i = 0; i < counts.size(); ++i)
    parameters.add({.name = fmt::format("p{}", i), .shape = {counts[i]}});
  return parameters;
}

TEST(Buckets, CoverEveryParameterOnceInReverseOrder) {
  Ledger ledger;
  const Parameters parameters = parameters_of({10, 1, 5, 100, 7, 3}, ledger);
  for (const std::int64_t first : {1, 20, 40, 1000})
    for (const std::int64_t rest : {1, 20, 400, 100000}) {
      const auto buckets = make_buckets(parameters, first, rest);
      int next = 5;
      Count end = parameters.count();
      for (const Bucket& bucket : buckets) {
        EXPECT_EQ(bucket.last, next);
        EXPECT_EQ(bucket.offset + bucket.count, end) << "contiguous in the flat buffer";
        next = bucket.first - 1;
        end = bucket.offset;
      }
      EXPECT_EQ(next, -1);
      EXPECT_EQ(end, 0);
    }
}

TEST(Buckets, CloseOnceTheyHoldTheirCap) {
  Ledger ledger;
  const Parameters parameters = parameters_of({10, 10, 10, 10, 10}, ledger);
  // 40 bytes each. The first bucket, with a limit of 41 bytes, has two of them; the others, with 120,
  // have three.
  const auto buckets = make_buckets(parameters, 41, 120);
  ASSERT_EQ(buckets.size(), 2U);
  EXPECT_EQ(buckets[0].first, 3);
  EXPECT_EQ(buckets[1].first, 0);
}

// A bucket that holds exactly its limit is closed; one element more, and it takes another tensor.
TEST(Buckets, CloseAtASumOfTensors) {
  Ledger ledger;
  const Parameters parameters = parameters_of({8, 4, 6, 2, 10, 3}, ledger);
  const auto counts = [&](Count first, Count rest) {
    std::vector<Count> all;
    for (const Bucket& bucket : make_buckets(parameters, first * 4, rest * 4))
      all.push_back(bucket.count);
    return all;
  };
  EXPECT_EQ(counts(13, 8), (std::vector<Count>{13, 8, 12}));
  EXPECT_EQ(counts(14, 8), (std::vector<Count>{15, 10, 8}));
  EXPECT_EQ(counts(12, 8), (std::vector<Count>{13, 8, 12}));
  EXPECT_EQ(counts(13, 9), (std::vector<Count>{13, 12, 8}));
  EXPECT_EQ(counts(13, 7), (std::vector<Count>{13, 8, 12}));
}

TEST(Buckets, RefuseNoBytes) {
  Ledger ledger;
  EXPECT_THROW(make_buckets(parameters_of({1}, ledger), 0, 1), Error);
}

using Leaving = std::vector<std::size_t>;

TEST(BucketQueue, LetsBucketsLeaveInOneOrderAndRebuildsItFromWhatFinishedFirst) {
  Ledger ledger;
  const Parameters parameters = parameters_of({10, 10, 10, 10}, ledger);
  BucketQueue queue(parameters, make_buckets(parameters, 1, 80));  // of 3, of 2 and 1, of 0
  ASSERT_EQ(queue.buckets().size(), 3U);

  queue.begin();
  EXPECT_EQ(queue.ready(0), Leaving{}) << "two buckets are before it";
  EXPECT_EQ(queue.ready(2), Leaving{}) << "half of this one is missing";
  EXPECT_EQ(queue.ready(3), Leaving{0});
  EXPECT_EQ(queue.ready(1), (Leaving{1, 2}));
  queue.rebuild();
  EXPECT_EQ(queue.order(), (Leaving{2, 0, 1}));

  queue.begin();
  EXPECT_EQ(queue.ready(0), Leaving{2}) << "it was the first to be finished";
  EXPECT_EQ(queue.ready(1), Leaving{});
  EXPECT_EQ(queue.ready(2), Leaving{});
  EXPECT_EQ(queue.ready(3), (Leaving{0, 1}));
}

}  // namespace
}  // namespace lockstep
