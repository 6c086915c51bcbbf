// The direct all-reduce, whose ranks read and write each other's memory. On threads, and by
// tests/cli/mpi_test.py on processes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "collectives/all_reduce/all_reduce.h"
#include "collectives/base/with_type.h"
#include "tests/collectives/world.h"

namespace lockstep {
namespace {

using test::on_ranks;

// Memory of ranks in turn: where processes share it, or where they do not.
class Buffer {
 public:
  Buffer(Count count, DType dtype, bool shared)
      : memory_(host_device(), nullptr, MemoryUse::communication,
                shared ? std::max(count * element_bytes(dtype), shared_from) : 1),
        private_(static_cast<std::size_t>(shared ? 0 : count * element_bytes(dtype))),
        slice_{shared ? memory_.data() : private_.data(), count, dtype, &host_device()} {}
  Slice slice() const { return slice_; }

 private:
  static constexpr Count shared_from = 8192;  // shorter memory is private everywhere

  Memory memory_;
  std::vector<std::byte> private_;
  Slice slice_;
};

// Any order of summation but that of the ranks would round sums of these differently.
double value_of(int rank, Count index, int round) {
  return static_cast<double>((rank * 31 + index * 7 + round * 3) % 97) * 0.37 +
         (rank % 2 == 0 ? 1e6 : 1e-3);
}

void fill(Slice data, int rank, int round) {
  std::vector<double> values(static_cast<std::size_t>(data.count));
  const bool narrow = !is_floating(data.dtype);
  for (Count i = 0; i < data.count; ++i)
    values[i] =
        narrow ? static_cast<double>((rank + i + round) % 11 + 1) : value_of(rank, i, round);
  if (!narrow) return data.device->convert(data, host_slice(std::span(values)));
  with_type(data.dtype, [&]<typename T>(T) {
    if constexpr (std::is_integral_v<T>)
      std::ranges::transform(values, reinterpret_cast<T*>(data.data),
                             [](double value) { return static_cast<T>(value); });
  });
}

// The combination of all ranks' data in the order of the ranks, without ranks.
std::vector<std::byte> expected(int ranks, Slice like, ReduceOp op, int round) {
  std::vector<std::byte> result(static_cast<std::size_t>(like.bytes())), next(result.size());
  const Slice sum{result.data(), like.count, like.dtype, like.device};
  const Slice one{next.data(), like.count, like.dtype, like.device};
  fill(sum, 0, round);
  for (int rank = 1; rank < ranks; ++rank) {
    fill(one, rank, round);
    like.device->reduce(sum, one, op);
  }
  if (op == ReduceOp::avg) like.device->divide(sum, ranks);
  return result;
}

class DirectAllReduce : public testing::TestWithParam<int> {};

INSTANTIATE_TEST_SUITE_P(Ranks, DirectAllReduce, testing::Range(1, 9));

TEST_P(DirectAllReduce, AddsInTheOrderOfTheRanksWhereverTheDataLie) {
  const int ranks = GetParam();
  on_ranks(ranks, [&](RankContext& context) {
    Communicator& world = context.world;
    const int rank = world.rank();
    int round = 0;
    for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i8, DType::u8,
                              DType::i32, DType::u32, DType::i64, DType::u64})
      for (const ReduceOp op : {ReduceOp::sum, ReduceOp::avg, ReduceOp::max})
        // The fourth is the longest that is copied, for one of the types; the last ones are shown.
        for (const Count count : {Count{0}, Count{1}, Count{ranks} - 1, 4096 / element_bytes(dtype),
                                  4096 / element_bytes(dtype) + 1, Count{5003}}) {
          ++round;
          const Buffer in(count, dtype, (rank + round) % 3 != 0), out(count, dtype, round % 2 == 0);
          fill(in.slice(), rank, round);
          const auto result = expected(ranks, in.slice(), op, round);
          const auto is_right = [&](Slice got) {
            return count == 0 || std::memcmp(got.data, result.data(), result.size()) == 0;
          };
          all_reduce(world, out.slice(), in.slice(), op, "direct");
          ASSERT_TRUE(is_right(out.slice())) << "out of place, " << count << " " << name_of(dtype);
          all_reduce(world, in.slice(), op, "direct");
          ASSERT_TRUE(is_right(in.slice())) << "in place, " << count << " " << name_of(dtype);
        }
    EXPECT_EQ(context.counters.by_label().count("all_reduce"), 0U);
  });
}

// A rank may be one operation ahead of another.
TEST_P(DirectAllReduce, DoesNotMixOperationsThatFollowEachOther) {
  const int ranks = GetParam();
  on_ranks(ranks, [&](RankContext& context) {
    Communicator& world = context.world;
    const Buffer data(5000, DType::i64, true);
    const auto numbers = host_span<std::int64_t>(data.slice());
    std::int64_t wrong = 0;
    for (std::int64_t round = 0; round < 300; ++round) {
      const std::span<std::int64_t> part = numbers.first(round % 3 == 0 ? 5000 : 10);
      std::ranges::fill(part, round + world.rank());
      all_reduce(world, host_slice(part), ReduceOp::sum, "direct");
      const std::int64_t sum = round * ranks + ranks * (ranks - 1) / 2;
      wrong += std::ranges::count_if(part, [=](std::int64_t number) { return number != sum; });
      std::ranges::fill(part, -1);
    }
    EXPECT_EQ(wrong, 0);
  });
}

TEST_P(DirectAllReduce, RunsInGroupsAtTheSameTime) {
  const int ranks = GetParam();
  on_ranks(ranks, [&](RankContext& context) {
    Communicator& world = context.world;
    std::vector<int> members;
    for (int rank = world.rank() % 2; rank < ranks; rank += 2) members.push_back(rank);
    // Members are numbered from the last one.
    std::ranges::reverse(members);
    const auto group = world.subgroup(members);
    const Buffer data(3001, DType::f32, true);
    const auto numbers = host_span<float>(data.slice());
    for (int round = 0; round < 20; ++round) {
      std::ranges::fill(numbers, static_cast<float>(world.rank() + round));
      all_reduce(*group, data.slice(), ReduceOp::sum, "direct");
      float sum = 0;
      for (const int member : members) sum += static_cast<float>(member + round);
      ASSERT_EQ(std::ranges::count(numbers, sum), std::ssize(numbers));
    }
  });
}

// MPI holds only some of these messages, and moves the others while their sender calls MPI.
TEST(DirectWait, LetsOtherMessagesLeave) {
  on_ranks(2, [](RankContext& context) {
    Communicator& world = context.world;
    constexpr Count messages = 4000, length = 500;
    std::vector<std::int32_t> numbers(messages * length, world.rank() == 0 ? 7 : 0);
    const Slice all = host_slice(std::span(numbers));
    std::vector<Request> sends;
    for (Count i = 0; i < messages; ++i)
      if (world.rank() == 0)
        sends.push_back(world.isend(all.part(i * length, length), 1));
      else
        world.recv(all.part(i * length, length), 0);
    float one = 1;
    all_reduce(world, host_slice(std::span(&one, 1)), ReduceOp::sum, "direct");
    EXPECT_EQ(one, 2);
    EXPECT_EQ(std::ranges::count(numbers, 7), std::ssize(numbers));
    for (const Request& send : sends) send->wait();
  });
}

}  // namespace
}  // namespace lockstep
