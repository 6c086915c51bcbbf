// Every algorithm on every number of ranks, count, type and reduction, against the result computed
// without ranks. Data is distinct for each rank and index and integer-valued, so equality is exact
// in any order of summation.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstring>
#include <numeric>

#include "collectives/all_gather/all_gather.h"
#include "collectives/all_reduce/all_reduce.h"
#include "collectives/barrier/barrier.h"
#include "collectives/base/error.h"
#include "collectives/base/half.h"
#include "collectives/broadcast/broadcast.h"
#include "collectives/gather/gather.h"
#include "collectives/operations/split.h"
#include "collectives/reduce/reduce.h"
#include "collectives/reduce_scatter/reduce_scatter.h"
#include "tests/collectives/numbers.h"
#include "tests/collectives/world.h"

namespace lockstep {
namespace {

using test::combined;
using test::element;
using test::on_ranks;

constexpr int some_world_sizes[] = {1, 2, 3, 4, 5, 7, 8, 9, 16};

std::vector<Count> few_counts(int ranks) { return {0, 1, ranks - 1, ranks, ranks + 1, 1000}; }

template <typename T>
std::vector<T> values_of(int rank, Count count, ReduceOp op) {
  std::vector<T> values(static_cast<std::size_t>(count));
  for (Count i = 0; i < count; ++i) values[i] = static_cast<T>(element(rank, i, op));
  return values;
}

template <typename T>
T expected_value(int ranks, Count index, ReduceOp op) {
  const T total = static_cast<T>(combined(ranks, index, op));
  return op == ReduceOp::avg ? static_cast<T>(total / static_cast<T>(ranks)) : total;
}

template <typename T>
void check_all_reduce(int ranks, Count count, ReduceOp op) {
  on_ranks(ranks, [&](RankContext& context) {
    auto values = values_of<T>(context.world.rank(), count, op);
    all_reduce(context.world, host_slice(std::span(values)), op, "ring");
    for (Count i = 0; i < count; ++i)
      ASSERT_EQ(values[i], expected_value<T>(ranks, i, op))
          << "rank " << context.world.rank() << " index " << i << " of " << count << " "
          << name_of(op);
  });
}

TEST(AllReduce, EveryWorldSizeAndCount) {
  for (const int ranks : some_world_sizes)
    for (const Count count : few_counts(ranks))
      check_all_reduce<float>(ranks, count, ReduceOp::sum);
}

TEST(AllReduce, EveryReductionAndType) {
  for (const ReduceOp op : all_reduce_ops) {
    check_all_reduce<float>(3, 50, op);
    check_all_reduce<double>(3, 50, op);
    check_all_reduce<std::int8_t>(3, 50, op);
    check_all_reduce<std::uint8_t>(3, 50, op);
    check_all_reduce<std::int32_t>(3, 50, op);
    check_all_reduce<std::uint32_t>(3, 50, op);
    check_all_reduce<std::int64_t>(3, 50, op);
    check_all_reduce<std::uint64_t>(3, 50, op);
  }
}

TEST(AllReduce, OutOfPlaceLeavesItsInput) {
  for (const int ranks : {1, 2, 3, 5}) {
    for (const Count count : {0, 1, 7, 1000, 5000}) {
      for (const AllReduceAlgorithm& algorithm : all_reduce_algorithms()) {
        for (const ReduceOp op : {ReduceOp::sum, ReduceOp::avg}) {
          on_ranks(ranks, [&](RankContext& context) {
            if (!unmet(algorithm.need, context.world).empty()) return;
            auto in = values_of<double>(context.world.rank(), count, op);
            const auto before = in;
            std::vector<double> out(in.size(), -1);
            all_reduce(context.world, host_slice(std::span(out)), host_slice(std::span(in)), op,
                       algorithm.name);
            ASSERT_EQ(in, before) << algorithm.name;
            for (Count i = 0; i < count; ++i)
              ASSERT_EQ(out[i], expected_value<double>(ranks, i, op))
                  << algorithm.name << " of " << ranks << " ranks, index " << i << " of " << count;
          });
        }
      }
    }
  }
  on_ranks(2, [](RankContext& context) {
    std::vector<float> in(4), out(5);
    EXPECT_THROW(all_reduce(context.world, host_slice(std::span(out)), host_slice(std::span(in))),
                 Error);
  });
}

TEST(AllReduce, HalfTypesAddInFloat) {
  on_ranks(4, [](RankContext& context) {
    std::vector<BFloat16> values(33);
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = bfloat16_from_float(
          static_cast<float>(element(context.world.rank(), static_cast<Count>(i), ReduceOp::sum)));
    const Slice slice{reinterpret_cast<std::byte*>(values.data()), 33, DType::bf16, &host_device()};
    all_reduce(context.world, slice);
    for (std::size_t i = 0; i < values.size(); ++i)
      ASSERT_EQ(to_float(values[i]), combined(4, static_cast<Count>(i), ReduceOp::sum));
  });
}

TEST(AllReduce, SameBitsOnEveryRankForAnyData) {
  const auto results = on_ranks<std::vector<float>>(5, [](RankContext& context) {
    std::vector<float> values(777);
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = 1.0F / static_cast<float>(3 + i * 7 +
                                            static_cast<std::size_t>(context.world.rank()) * 31);
    all_reduce(context.world, host_slice(std::span(values)));
    return values;
  });
  for (const auto& result : results)
    EXPECT_EQ(std::memcmp(result.data(), results[0].data(), 777 * 4), 0);
}

TEST(AllReduce, TrafficEqualsItsClosedForm) {
  for (const int ranks : some_world_sizes) {
    for (const Count count : few_counts(ranks)) {
      Count all_ranks = 0;
      const auto volumes = on_ranks<Volume>(ranks, [&](RankContext& context) {
        std::vector<double> values(static_cast<std::size_t>(count), 1.0);
        all_reduce(context.world, host_slice(std::span(values)));
        return context.counters.by_label()["all_reduce"];
      });
      for (int rank = 0; rank < ranks; ++rank) {
        const Traffic expected = all_reduce_ring().traffic({.ranks = ranks, .count = count}, rank);
        EXPECT_EQ(volumes[rank].sent_bytes, expected.sent_elements * 8)
            << ranks << " ranks, count " << count;
        EXPECT_EQ(volumes[rank].sent_messages, expected.sent_messages);
        all_ranks += expected.sent_elements;
      }
      EXPECT_EQ(all_ranks, 2 * (ranks - 1) * count) << "each element crosses 2 (p - 1) links";
    }
  }
}

TEST(ReduceScatter, RankOwnsItsChunk) {
  for (const int ranks : some_world_sizes) {
    for (const Count count : few_counts(ranks)) {
      on_ranks(ranks, [&](RankContext& context) {
        auto values = values_of<float>(context.world.rank(), count, ReduceOp::sum);
        const Slice data = host_slice(std::span(values));
        reduce_scatter(context.world, data);
        const Slice own = Chunks(data, ranks)[context.world.rank()];
        const Count first = (own.data - data.data) / 4;
        for (Count i = 0; i < own.count; ++i)
          ASSERT_EQ(host_span<float>(own)[i], combined(ranks, first + i, ReduceOp::sum));
      });
    }
  }
}

TEST(AllGather, EveryRankHoldsAllChunks) {
  for (const int ranks : some_world_sizes) {
    for (const Count count : few_counts(ranks)) {
      on_ranks(ranks, [&](RankContext& context) {
        std::vector<std::int32_t> values(static_cast<std::size_t>(count), -1);
        const Slice data = host_slice(std::span(values));
        const Slice own = Chunks(data, ranks)[context.world.rank()];
        const Count first = (own.data - data.data) / 4;
        for (Count i = 0; i < own.count; ++i)
          host_span<std::int32_t>(own)[i] = static_cast<std::int32_t>(first + i);
        all_gather(context.world, data);
        for (Count i = 0; i < count; ++i) ASSERT_EQ(values[i], i);
      });
    }
  }
}

TEST(BroadcastReduceGather, EveryRootAndWorldSize) {
  for (const int ranks : some_world_sizes) {
    on_ranks(ranks, [&](RankContext& context) {
      Communicator& world = context.world;
      for (int root = 0; root < ranks; ++root) {
        auto values = values_of<float>(world.rank(), 21, ReduceOp::sum);
        broadcast(world, host_slice(std::span(values)), root);
        ASSERT_EQ(values, values_of<float>(root, 21, ReduceOp::sum));

        values = values_of<float>(world.rank(), 21, ReduceOp::avg);
        reduce(world, host_slice(std::span(values)), ReduceOp::avg, root);
        for (Count i = 0; world.rank() == root && i < 21; ++i)
          ASSERT_EQ(values[i], expected_value<float>(ranks, i, ReduceOp::avg));

        const auto texts =
            gather_text(world, std::string(static_cast<std::size_t>(world.rank() * 3), 'x'), root);
        if (world.rank() != root) {
          ASSERT_TRUE(texts.empty());
          continue;
        }
        for (int rank = 0; rank < ranks; ++rank) ASSERT_EQ(std::ssize(texts[rank]), rank * 3);
      }
    });
  }
}

TEST(Gather, OfTextsSendsTwoMessagesPerRankAndAnAnswer) {
  on_ranks(5, [](RankContext& context) {
    const bool is_root = context.world.rank() == 2;
    gather_text(context.world, "four", 2);
    const Volume total = context.counters.total();
    EXPECT_EQ(total.sent_messages, is_root ? 4 : 2);
    EXPECT_EQ(total.received_messages, is_root ? 2 * 4 : 1);
    EXPECT_EQ(total.sent_bytes, is_root ? 4 : 8 + 4);
  });
}

TEST(Gather, OfTextsTakesMemoryForOwnPartsOnly) {
  constexpr int ranks = 32;
  constexpr std::size_t bytes = 1 << 20;
  on_ranks(ranks, [](RankContext& context) {
    const auto letter = static_cast<char>('A' + context.world.rank());
    const auto texts = gather_text(context.world, std::string(bytes, letter));
    ASSERT_EQ(texts.size(), context.world.rank() == 0 ? ranks : 0);
    for (std::size_t i = 0; i < texts.size(); ++i)
      ASSERT_EQ(texts[i], std::string(bytes, static_cast<char>('A' + i)));
  });
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  // A buffer for all texts on each rank would take 1 GiB. Sanitizers take several times as much.
  constexpr std::int64_t most_kib = 512 << 10;
  if (LOCKSTEP_THOROUGH) {
    EXPECT_LT(usage.ru_maxrss, most_kib);
  }
}

TEST(Barrier, NobodyLeavesBeforeAllHaveCome) {
  for (const char* algorithm : {"direct", "dissemination"}) {
    std::atomic<int> arrived = 0;
    on_ranks(9, [&](RankContext& context) {
      for (int round = 1; round <= 20; ++round) {
        ++arrived;
        barrier(context.world, algorithm);
        ASSERT_GE(arrived.load(), 9 * round) << algorithm;
        barrier(context.world, algorithm);
      }
    });
  }
}

TEST(Split, GroupsByColorOrderedByKey) {
  on_ranks(6, [](RankContext& context) {
    const int rank = context.world.rank();
    const auto group = split(context.world, rank == 5 ? -1 : rank % 2, -rank);
    if (rank == 5) {
      ASSERT_EQ(group, nullptr);
      return;
    }
    ASSERT_EQ(group->size(), rank % 2 == 0 ? 3 : 2);
    // Keys are negative ranks, so the highest rank comes first.
    ASSERT_EQ(group->rank(), rank % 2 == 0 ? (4 - rank) / 2 : (3 - rank) / 2);
    std::vector<std::int32_t> sum = {rank};
    all_reduce(*group, host_slice(std::span(sum)));
    ASSERT_EQ(sum[0], rank % 2 == 0 ? 0 + 2 + 4 : 1 + 3);
  });
}

TEST(Split, GroupsKnowNothingOfEachOthersCalls) {
  on_ranks(6, [](RankContext& context) {
    const int number = context.world.rank() / 2;
    const auto pair = split(context.world, number, context.world.rank());
    for (int round = 0; round < 5 * number; ++round) {
      std::vector<std::int64_t> sum(40'000, context.world.rank());
      all_reduce(*pair, host_slice(std::span(sum)));
      ASSERT_EQ(sum, std::vector<std::int64_t>(40'000, 4 * number + 1));
      if (number == 1) barrier(*pair);
    }
  });
}

TEST(AllReduce, FarMoreRanksThanCores) { check_all_reduce<float>(64, 1000, ReduceOp::sum); }

TEST(AllReduce, UnknownAlgorithmNamesTheKnownOnes) {
  try {
    on_ranks(1, [](RankContext& context) {
      all_reduce(context.world, Slice{.device = &host_device()}, ReduceOp::sum, "ringg");
    });
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::bad_input);
    EXPECT_NE(std::string(error.what()).find("ring, bidirectional_ring"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace lockstep
