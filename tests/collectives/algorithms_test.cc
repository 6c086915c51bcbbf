// Every algorithm of every operation, called by name: results against those computed without ranks,
// counters and virtual time against the closed forms.
//
// Data is distinct for each rank and index and integer-valued, so equality is exact in any order of
// summation.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "collectives/base/float8.h"
#include "collectives/base/half.h"
#include "collectives/operations/operations.h"
#include "tests/collectives/numbers.h"
#include "tests/collectives/world.h"

namespace lockstep {
namespace {

using test::combined;
using test::element;
using test::on_ranks;

// How a type stores a number, and how it divides at the end of an average.
template <typename T>
struct Number {
  static T from(double value) { return static_cast<T>(value); }
  static T averaged(double sum, int ranks) { return static_cast<T>(from(sum) / from(ranks)); }
};
template <>
struct Number<BFloat16> {
  static BFloat16 from(double value) { return bfloat16_from_float(static_cast<float>(value)); }
  static BFloat16 averaged(double sum, int ranks) {
    return from(static_cast<float>(sum) / static_cast<float>(ranks));
  }
};
template <>
struct Number<Half> {
  static Half from(double value) { return half_from_float(static_cast<float>(value)); }
  static Half averaged(double sum, int ranks) {
    return from(static_cast<float>(sum) / static_cast<float>(ranks));
  }
};

template <int mantissa, int bias, std::uint32_t most>
struct Number<Float8<mantissa, bias, most>> {
  using Narrow = Float8<mantissa, bias, most>;
  static Narrow from(double value) { return float8_from_float<Narrow>(static_cast<float>(value)); }
  static Narrow averaged(double sum, int ranks) {
    return from(static_cast<float>(sum) / static_cast<float>(ranks));
  }
};

// In 8 bits sums are exact up to 8.
constexpr int most_ranks_in_8_bits = 7;
template <typename T>
constexpr int spread_of = 13;
template <int mantissa, int bias, std::uint32_t most>
constexpr int spread_of<Float8<mantissa, bias, most>> = 2;

template <typename T>
Slice slice_of(std::vector<T>& values, DType dtype) {
  return {reinterpret_cast<std::byte*>(values.data()), std::ssize(values), dtype, &host_device()};
}

// What a rank holds at `index` after the operation; empty if any value is allowed.
std::optional<double> expected(const OperationEntry& entry, const Problem& x, int rank, Count index,
                               ReduceOp op, int spread) {
  const Parts part(x.count, x.ranks);
  int owner = 0;
  while (owner + 1 < x.ranks && index >= part.offset(owner + 1)) ++owner;
  switch (entry.operation) {
    case Operation::all_reduce:
      return combined(x.ranks, index, op, spread);
    case Operation::reduce_scatter:
      if (owner != rank) return std::nullopt;
      return combined(x.ranks, index, op, spread);
    case Operation::all_gather:
      return element(owner, index, op, spread);
    case Operation::broadcast:
      return element(x.root, index, op, spread);
    case Operation::reduce:
      if (rank != x.root) return std::nullopt;
      return combined(x.ranks, index, op, spread);
    case Operation::gather:
      if (rank != x.root) return std::nullopt;
      return element(owner, index, op, spread);
    case Operation::scatter:
      if (owner != rank) return std::nullopt;
      return element(x.root, index, op, spread);
    case Operation::all_to_all:
    case Operation::all_to_all_v:  // all_to_all_v_test.cc has counts that differ
      return element(owner, part.offset(rank) + index - part.offset(owner), op, spread);
    case Operation::send_recv:
      return element((rank + x.ranks - 1) % x.ranks, index, op, spread);
    case Operation::barrier:
      return std::nullopt;
  }
  return std::nullopt;
}

// Runs on one rank and checks its results.
template <typename T>
void run_and_check(Communicator& comm, const OperationEntry& entry, const AnyAlgorithm& algorithm,
                   const Problem& x, DType dtype, ReduceOp op) {
  std::vector<T> values(static_cast<std::size_t>(x.count)), out(values.size());
  const Parts part(x.count, x.ranks);
  const Count own_begin = part.offset(comm.rank()), own_end = part.offset(comm.rank() + 1);
  const bool brings_a_chunk =
      entry.operation == Operation::all_gather || entry.operation == Operation::gather;
  for (Count i = 0; i < x.count; ++i)
    values[i] = Number<T>::from(brings_a_chunk && (i < own_begin || i >= own_end)
                                    ? 99
                                    : element(comm.rank(), i, op, spread_of<T>));
  algorithm.run(comm, slice_of(values, dtype),
                {.op = op, .root = x.root, .out = entry.in_place ? Slice{} : slice_of(out, dtype)});
  const std::vector<T>& result = entry.in_place ? values : out;
  for (Count i = 0; i < x.count; ++i) {
    const auto value = expected(entry, x, comm.rank(), i, op, spread_of<T>);
    if (!value) continue;
    const T exact = entry.reduces && op == ReduceOp::avg ? Number<T>::averaged(*value, x.ranks)
                                                         : Number<T>::from(*value);
    ASSERT_EQ(std::memcmp(&result[i], &exact, sizeof exact), 0)
        << name_of(entry.operation) << "/" << algorithm.name << ", " << x.ranks << " ranks, root "
        << x.root << ", rank " << comm.rank() << ", index " << i << " of " << x.count << ", "
        << name_of(dtype) << " " << name_of(op);
  }
}

Traffic counted(const Counters& counters, Operation operation, Count element) {
  const auto labels = counters.by_label();
  const auto found = labels.find(name_of(operation));
  if (found == labels.end()) return {};
  const Volume& v = found->second;
  return {v.sent_messages, v.sent_bytes / element, v.received_messages, v.received_bytes / element};
}

Problem problem_of(const OperationEntry& entry, int ranks, Count count, Count element) {
  const bool needs_multiple =
      entry.operation == Operation::all_to_all || entry.operation == Operation::all_to_all_v;
  return {.ranks = ranks,
          .count = entry.operation == Operation::barrier ? 0
                   : needs_multiple                      ? count * ranks
                                                         : count,
          .element_bytes = element,
          .root = static_cast<int>(count % ranks),
          .ranks_per_node = ranks};
}

bool usable(const AnyAlgorithm& algorithm, int ranks, const LaunchOptions& options) {
  switch (algorithm.need) {
    case Need::nothing:
      return true;
    case Need::power_of_two_ranks:
      return std::has_single_bit(static_cast<unsigned>(ranks));
    case Need::full_nodes:
      return options.links.ranks_per_node == 0 || ranks % options.links.ranks_per_node == 0;
    case Need::shared_memory:
      return options.clock == Clock::wall;
    case Need::vendor:
      return false;
  }
  return false;
}

// Calls body(entry, algorithm) for all algorithms that can run.
template <typename Body>
void for_all(int ranks, const LaunchOptions& options, Body body) {
  for (const OperationEntry& entry : operations())
    for (const AnyAlgorithm& algorithm : entry.algorithms)
      if (usable(algorithm, ranks, options)) body(entry, algorithm);
}

const std::vector<int> world_sizes =
    LOCKSTEP_THOROUGH ? std::vector{1, 2, 3, 4, 5, 6, 7, 8, 9, 16} : std::vector{1, 2, 3, 4, 7};

// At least 31 for every world size: none, one, odd, below, at and above the ranks, and longer ones.
std::vector<Count> counts_for(int ranks) {
  std::vector<Count> counts = {ranks - 1,  ranks,       ranks + 1, 2 * ranks, 4 * ranks + 1,
                               48 * ranks, 210 * ranks, 97,        1000,      4096};
  for (Count i = 0; i <= 22; i += LOCKSTEP_THOROUGH ? 1 : 7) counts.push_back(i);
  return counts;
}

// The counters of every rank, and the time at which the last rank ended.
struct VirtualRun {
  std::vector<Traffic> traffic;
  double seconds = 0;
};

VirtualRun run_virtually(const OperationEntry& entry, const AnyAlgorithm& algorithm,
                         const Problem& x, const LinkModel& links) {
  VirtualRun outcome{.traffic = std::vector<Traffic>(static_cast<std::size_t>(x.ranks))};
  launch({.ranks = x.ranks, .trace = false, .fault = {}, .clock = Clock::unit, .links = links},
         [&](RankContext& context) {
           run_and_check<float>(context.world, entry, algorithm, x, DType::f32, ReduceOp::sum);
           outcome.traffic[context.world.rank()] =
               counted(context.counters, entry.operation, x.element_bytes);
           outcome.seconds = std::max(outcome.seconds, context.world.transport().now_seconds());
         });
  return outcome;
}

TEST(Algorithms, ResultsTrafficAndTimeInVirtualTime) {
  const LinkModel links = parse_links("alpha=64,beta=0.25");
  for (const int ranks : world_sizes) {
    const LaunchOptions options{.fault = {}, .clock = Clock::unit, .links = links};
    for_all(ranks, options, [&](const OperationEntry& entry, const AnyAlgorithm& algorithm) {
      for (const Count count : counts_for(ranks)) {
        const Problem x = problem_of(entry, ranks, count, 4);
        SCOPED_TRACE(fmt::format("{}/{}, {} ranks, count {}, root {}", name_of(entry.operation),
                                 algorithm.name, ranks, x.count, x.root));
        const VirtualRun outcome = run_virtually(entry, algorithm, x, links);
        for (int rank = 0; rank < ranks; ++rank) {
          const Traffic closed = algorithm.traffic(x, rank);
          EXPECT_EQ(outcome.traffic[rank], closed)
              << "rank " << rank << ": messages, elements sent " << closed.sent_messages << ", "
              << closed.sent_elements << ", counted " << outcome.traffic[rank].sent_messages << ", "
              << outcome.traffic[rank].sent_elements << "; received " << closed.received_messages
              << ", " << closed.received_elements << ", counted "
              << outcome.traffic[rank].received_messages << ", "
              << outcome.traffic[rank].received_elements;
        }
        const double closed = algorithm.seconds(x, links);
        if (!algorithm.exact || algorithm.exact(x))
          EXPECT_EQ(outcome.seconds, closed);
        else
          EXPECT_LE(outcome.seconds, closed) << "an upper bound";
        if (testing::Test::HasFailure()) return;
      }
    });
  }
}

template <typename T>
void check_everything(int ranks, const std::vector<Count>& counts, DType dtype, ReduceOp op,
                      LaunchOptions options) {
  options.ranks = ranks;
  for_all(ranks, options, [&](const OperationEntry& entry, const AnyAlgorithm& algorithm) {
    launch(options, [&](RankContext& context) {
      for (const Count count : counts)
        run_and_check<T>(context.world, entry, algorithm,
                         problem_of(entry, ranks, count, element_bytes(dtype)), dtype, op);
    });
  });
}

void check_every_type(int ranks, const std::vector<Count>& counts, ReduceOp op,
                      const LaunchOptions& options) {
  check_everything<float>(ranks, counts, DType::f32, op, options);
  check_everything<double>(ranks, counts, DType::f64, op, options);
  check_everything<Half>(ranks, counts, DType::f16, op, options);
  check_everything<BFloat16>(ranks, counts, DType::bf16, op, options);
  check_everything<std::int8_t>(ranks, counts, DType::i8, op, options);
  check_everything<std::uint8_t>(ranks, counts, DType::u8, op, options);
  check_everything<std::int32_t>(ranks, counts, DType::i32, op, options);
  check_everything<std::uint32_t>(ranks, counts, DType::u32, op, options);
  check_everything<std::int64_t>(ranks, counts, DType::i64, op, options);
  check_everything<std::uint64_t>(ranks, counts, DType::u64, op, options);
  if (ranks > most_ranks_in_8_bits) return;
  check_everything<Float8E4M3>(ranks, counts, DType::f8e4m3, op, options);
  check_everything<Float8E5M2>(ranks, counts, DType::f8e5m2, op, options);
}

TEST(Algorithms, EveryTypeAndReductionInVirtualTime) {
  const std::span ops = all_reduce_ops;
  for (const ReduceOp op : ops.first(LOCKSTEP_THOROUGH ? ops.size() : 1))
    for (const int ranks : LOCKSTEP_THOROUGH ? world_sizes : std::vector{3, 4})
      check_every_type(ranks, {0, 1, 50}, op, {.fault = {}, .clock = Clock::unit});
}

TEST(Algorithms, EveryTypeAndReductionOnThreads) {
  const std::span ops = all_reduce_ops;
  for (const ReduceOp op : ops.first(LOCKSTEP_THOROUGH ? ops.size() : 2))
    for (const int ranks : {2, 3}) check_every_type(ranks, {0, 1, 50}, op, {.fault = {}});
}

TEST(Algorithms, EveryWorldSizeOnThreads) {
  for (const int ranks : world_sizes)
    check_everything<float>(ranks, {0, 1, ranks - 1, ranks, 97, 1000}, DType::f32, ReduceOp::sum,
                            {.fault = {}});
}

TEST(Algorithms, DataOfSeveralSegmentsOnThreads) {
  for (const int ranks : LOCKSTEP_THOROUGH ? std::vector{2, 3, 4} : std::vector{3})
    check_everything<float>(ranks, {300'007}, DType::f32, ReduceOp::avg, {.fault = {}});
}

// More segments than a leaf sends ahead.
TEST(DoubleBinaryTree, LongDataOnThreads) {
  const OperationEntry& entry = find_operation("all_reduce");
  const AnyAlgorithm& tree = find_algorithm(entry.algorithms, "all_reduce", "double_binary_tree");
  constexpr Count segment_elements = 8192;
  for (const int ranks : LOCKSTEP_THOROUGH ? std::vector{2, 4, 5, 11} : std::vector{4})
    launch({.ranks = ranks, .fault = {}}, [&](RankContext& context) {
      const Problem x{.ranks = ranks, .count = 2 * 80 * segment_elements, .element_bytes = 8};
      run_and_check<double>(context.world, entry, tree, x, DType::f64, ReduceOp::sum);
    });
}

TEST(Algorithms, NodesOfSeveralRanks) {
  const LinkModel nodes = parse_links("alpha=2,beta=1,node=3,node-alpha=1,node-beta=0.5");
  for (const Clock clock : {Clock::unit, Clock::wall})
    for (const int ranks : {3, 6, 9})
      check_everything<float>(ranks, {0, 1, 50}, DType::f32, ReduceOp::sum,
                              {.fault = {}, .clock = clock, .links = nodes});

  // Six ranks on two nodes: two rounds in each direction inside, one in each direction between.
  double end = 0;
  launch({.ranks = 6, .fault = {}, .clock = Clock::unit, .links = nodes},
         [&](RankContext& context) {
           std::vector<float> values(60);
           find_operation("all_reduce")
               .algorithms.front()
               .run(context.world, host_slice(std::span(values)), {});
           end = std::max(end, context.world.transport().now_seconds());
         });
  const Problem x{.ranks = 6, .count = 60, .ranks_per_node = 3};
  const auto& entries = find_operation("all_reduce").algorithms;
  const auto hierarchical = std::ranges::find(entries, "hierarchical", &AnyAlgorithm::name);
  EXPECT_EQ(hierarchical->seconds(x, nodes), 4 * (1 + 80 * 0.5) + 2 * (2 + 40 * 1));
  EXPECT_GT(end, hierarchical->seconds(x, nodes)) << "a ring crosses between nodes all the time";
  double two_level_end = 0;
  launch({.ranks = 6, .fault = {}, .clock = Clock::unit, .links = nodes},
         [&](RankContext& context) {
           std::vector<float> values(60);
           hierarchical->run(context.world, host_slice(std::span(values)), {});
           two_level_end = std::max(two_level_end, context.world.transport().now_seconds());
         });
  EXPECT_EQ(two_level_end, hierarchical->seconds(x, nodes));
}

TEST(Algorithms, WhatCannotRunSaysWhy) {
  const auto refused = [](int ranks, const LinkModel& links, std::string_view operation,
                          std::string_view name, const std::string& part) {
    try {
      launch({.ranks = ranks, .fault = {}, .clock = Clock::unit, .links = links},
             [&](RankContext& context) {
               std::vector<float> values(8);
               const auto& entries = find_operation(operation).algorithms;
               std::ranges::find(entries, name, &AnyAlgorithm::name)
                   ->run(context.world, host_slice(std::span(values)), {});
             });
      ADD_FAILURE() << operation << "/" << name << " ran";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::bad_input);
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  };
  refused(6, {}, "all_gather", "recursive_doubling", "needs a power of two of ranks, there are 6");
  refused(4, {}, "all_reduce", "direct", "needs ranks that share memory");
  refused(4, {}, "all_reduce", "vendor", "under mpirun");
  refused(5, parse_links("alpha=1,node=3"), "all_reduce", "hierarchical",
          "the same number of consecutive ranks on every node");
  EXPECT_THROW(find_operation("all_redux"), Error);
}

// Long enough for several segments; nothing is stored.
TEST(Algorithms, TrafficAndTimeOfLongData) {
  for (const double alpha : LOCKSTEP_THOROUGH ? std::vector{1.0, 64.0, 1e6} : std::vector{64.0}) {
    const LinkModel links = parse_links(fmt::format("alpha={},beta=0.0009765625", alpha));
    for (const int ranks : LOCKSTEP_THOROUGH ? world_sizes : std::vector{3, 4}) {
      const LaunchOptions options{
          .ranks = ranks, .fault = {}, .clock = Clock::unit, .links = links};
      for_all(ranks, options, [&](const OperationEntry& entry, const AnyAlgorithm& algorithm) {
        for (const Count count : {Count{65536}, Count{1} << 20, Count{524288} * ranks,
                                  Count{100'003}, Count{1} << 22}) {
          const Problem x = problem_of(entry, ranks, count, 4);
          SCOPED_TRACE(fmt::format("{}/{}, {} ranks, count {}, alpha {}", name_of(entry.operation),
                                   algorithm.name, ranks, x.count, alpha));
          double end = 0;
          launch(options, [&](RankContext& context) {
            Communicator& comm = context.world;
            const Slice like{.dtype = DType::f32, .device = &none_device()};
            const Memory data = comm.scratch(like, x.count), out = comm.scratch(like, x.count);
            algorithm.run(comm, data.slice(x.count, DType::f32),
                          {.root = x.root, .out = out.slice(x.count, DType::f32)});
            EXPECT_EQ(counted(context.counters, entry.operation, 4),
                      algorithm.traffic(x, comm.rank()))
                << "rank " << comm.rank();
            end = std::max(end, comm.transport().now_seconds());
          });
          const double closed = algorithm.seconds(x, links);
          if (!algorithm.exact || algorithm.exact(x))
            EXPECT_EQ(end, closed);
          else
            EXPECT_LE(end, closed) << "an upper bound";
          if (testing::Test::HasFailure()) return;
        }
      });
    }
  }
}

}  // namespace
}  // namespace lockstep
