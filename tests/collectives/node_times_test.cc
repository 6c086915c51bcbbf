// Closed forms of the time on nodes: simulated times equal them where they are said to be exact.
// Nothing is stored.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "collectives/operations/operations.h"
#include "collectives/rounds.h"
#include "collectives/transport/launch/launch.h"

namespace lockstep {
namespace {

double simulated(const AnyAlgorithm& algorithm, const Problem& x, const LinkModel& links) {
  double end = 0;
  launch({.ranks = x.ranks, .fault = {}, .clock = Clock::unit, .links = links},
         [&](RankContext& context) {
           Communicator& comm = context.world;
           const Slice like{.dtype = DType::f32, .device = &none_device()};
           const Memory data = comm.scratch(like, x.count), out = comm.scratch(like, x.count);
           algorithm.run(comm, data.slice(x.count, DType::f32),
                         {.root = x.root, .out = out.slice(x.count, DType::f32)});
           end = std::max(end, comm.transport().now_seconds());
         });
  return end;
}

struct Nodes {
  int ranks, ranks_per_node;
};

// Calls body(operation and algorithm, problem, links) for all that can run.
template <typename Body>
void for_all(const std::vector<Nodes>& shapes, const std::vector<std::string>& all_links,
             Body body) {
  for (const auto& [ranks, ranks_per_node] : shapes)
    for (const std::string& text : all_links)
      for (const OperationEntry& entry : operations())
        for (const AnyAlgorithm& algorithm : entry.algorithms)
          for (const Count chunk : {0, 1, 96, 100'000}) {
            const bool power = std::has_single_bit(static_cast<unsigned>(ranks));
            if (algorithm.need == Need::shared_memory || algorithm.need == Need::vendor ||
                (algorithm.need == Need::power_of_two_ranks && !power))
              continue;
            const bool equal = entry.operation == Operation::all_to_all ||
                               entry.operation == Operation::all_to_all_v || chunk % 2 == 0;
            const Problem x{.ranks = ranks,
                            .count = entry.operation == Operation::barrier
                                         ? 0
                                         : chunk * ranks + (equal ? 0 : ranks / 2),
                            .element_bytes = 4,
                            .root = chunk == 96 ? ranks_per_node : 0,
                            .ranks_per_node = ranks_per_node};
            const LinkModel links = parse_links(fmt::format("{},node={}", text, ranks_per_node));
            SCOPED_TRACE(fmt::format("{}/{}, {} ranks on nodes of {}, count {}, {}", entry.name,
                                     algorithm.name, ranks, ranks_per_node, x.count, text));
            body(fmt::format("{}/{}", entry.name, algorithm.name), algorithm, x, links);
            if (testing::Test::HasFailure()) return;
          }
}

TEST(NodeTimes, EqualTheClosedFormsThatKnowNodes) {
  const std::vector<Nodes> shapes =
      LOCKSTEP_THOROUGH
          ? std::vector<Nodes>{{4, 2},  {6, 2},  {6, 3},  {8, 2},  {8, 4},  {9, 3}, {16, 4},
                               {12, 4}, {12, 6}, {16, 2}, {16, 8}, {32, 4}, {15, 5}}
          : std::vector<Nodes>{{8, 2}, {6, 3}, {16, 8}};
  // Slow and fast links inside, with and without latency that counts.
  const std::vector<std::string> links = {
      "alpha=64,beta=0.25,node-alpha=16,node-beta=0.0625",
      "alpha=1024,beta=0.001953125,node-alpha=1024,node-beta=0.0009765625",
      "alpha=1024,beta=0.0009765625,node-alpha=1,node-beta=0.0009765625"};
  std::set<std::string> exact;
  for_all(shapes, links,
          [&](const std::string& name, const AnyAlgorithm& algorithm, const Problem& x,
              const LinkModel& model) {
            const Estimate form = estimate(algorithm, x, model);
            const double seconds = simulated(algorithm, x, model);
            if (form.is_exact) {
              if (x.count > 0) exact.insert(name);
              EXPECT_EQ(seconds, form.seconds);
            } else {
              EXPECT_FALSE(form.is_bound);
              EXPECT_LE(seconds, 1.5 * form.seconds) << "an estimate";
            }
          });
  const std::set<std::string> wanted = {"all_gather/recursive_doubling",
                                        "all_gather/ring",
                                        "all_reduce/binomial_tree",
                                        "all_reduce/halving_doubling",
                                        "all_reduce/hierarchical",
                                        "all_reduce/recursive_doubling",
                                        "all_reduce/ring",
                                        "all_reduce/segmented_ring",
                                        "all_reduce/torus",
                                        "all_to_all_v/pairwise",
                                        "broadcast/binomial_tree",
                                        "reduce/binomial_tree",
                                        "reduce_scatter/recursive_halving",
                                        "reduce_scatter/ring",
                                        "send_recv/shift"};
  EXPECT_EQ(exact, wanted);
}

TEST(NodeTimes, OneNodeUsesItsOwnLinks) {
  const LinkModel links = parse_links("alpha=1024,beta=1,node=8,node-alpha=2,node-beta=0.5");
  for (const int ranks : {4, 8})
    for (const AnyAlgorithm& algorithm : find_operation("all_reduce").algorithms) {
      if (algorithm.need == Need::shared_memory || algorithm.need == Need::vendor) continue;
      const Problem x{.ranks = ranks, .count = 64 * ranks, .ranks_per_node = ranks};
      const Estimate form = estimate(algorithm, x, links);
      EXPECT_TRUE(form.is_exact) << algorithm.name;
      EXPECT_EQ(form.seconds, simulated(algorithm, x, links)) << algorithm.name;
    }
}

// auto takes the fastest of the algorithms with exact closed forms.
TEST(NodeTimes, AutoTakesTheFastest) {
  const OperationEntry& all_reduce = find_operation("all_reduce");
  const LinkModel links = parse_links("dgx");
  for (const auto& [ranks, ranks_per_node] : {Nodes{8, 8}, Nodes{16, 8}, Nodes{64, 8}})
    for (const Count count : {64, 1 << 18, 1 << 22}) {
      const Problem x{.ranks = ranks, .count = count, .ranks_per_node = ranks_per_node};
      double fastest = std::numeric_limits<double>::infinity(), chosen_s = fastest;
      std::string chosen;
      launch({.ranks = ranks, .fault = {}, .clock = Clock::unit, .links = links},
             [&](RankContext& context) {
               if (context.world.rank() == 0)
                 chosen = usable_algorithm(all_reduce.algorithms, Operation::all_reduce, "auto",
                                           context.world, {.count = count, .dtype = DType::f32})
                              .name;
             });
      for (const AnyAlgorithm& algorithm : all_reduce.algorithms) {
        if (algorithm.need == Need::shared_memory || algorithm.need == Need::vendor) continue;
        const double seconds = simulated(algorithm, x, links);
        if (algorithm.name == chosen) chosen_s = seconds;
        if (!algorithm.is_baseline && estimate(algorithm, x, links).is_exact)
          fastest = std::min(fastest, seconds);
      }
      EXPECT_LE(chosen_s, fastest) << chosen << ", " << ranks << " ranks, count " << count;
    }
}

}  // namespace
}  // namespace lockstep
