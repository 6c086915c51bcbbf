// Compressed reduce-scatters of ranks that shard gradients: against plain loops over all ranks, with their
// bytes, bounds of their errors, and training under several plans.
#include "parallel/exchange/compressed_scatter.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/parallel/exchanged_numbers.h"
#include "tests/parallel/training.h"

namespace lockstep {
namespace {

using test::decoded;
using test::gradients_of;
using Numbers = test::Numbers;

// A reduce-scatter of chunks of no round size, whose ranks are on nodes of so many.
constexpr Count scattered = 2100;
std::vector<Range> chunks_of(int ranks) {
  std::vector<Range> chunks;
  Count first = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const Count end =
        rank + 1 == ranks ? scattered : std::min<Count>(scattered, first + 290 + rank);
    chunks.push_back({first, end - first});
    first = end;
  }
  return chunks;
}

struct Scattered {
  std::vector<Numbers> sums;  // by rank: its chunk
  std::vector<Volume> sent;   // by rank
  std::vector<std::int64_t> memory;
};

template <typename Gradients>
Scattered scatter(const std::string& text, int ranks, int ranks_per_node, Gradients gradients) {
  const ExchangeMethod method = exchange_from_text(text);
  const std::vector<Range> chunks = chunks_of(ranks);
  Scattered all{.sums = std::vector<Numbers>(static_cast<std::size_t>(ranks)),
                .sent = std::vector<Volume>(static_cast<std::size_t>(ranks)),
                .memory = std::vector<std::int64_t>(static_cast<std::size_t>(ranks))};
  launch(
      {.ranks = ranks, .timeout_s = 30, .fault = {}, .links = {.ranks_per_node = ranks_per_node}},
      [&](RankContext& context) {
        Communicator& comm = context.world;
        const auto rank = static_cast<std::size_t>(comm.rank());
        const std::int64_t before = context.ledger.bytes(MemoryUse::communication);
        const auto scatter =
            make_compressed_scatter(method, DType::f64, chunks, comm, host_device());
        all.memory[rank] = context.ledger.bytes(MemoryUse::communication) - before;
        Numbers x = gradients(comm.rank(), 0, scattered);
        scatter->run(comm, host_slice(std::span(x)), chunks);
        const Range own = chunks[rank];
        all.sums[rank].assign(x.begin() + own.first, x.begin() + own.first + own.count);
        all.sent[rank] = context.counters.total();
      });
  return all;
}

Numbers part_of(const Numbers& x, Range range) {
  return {x.begin() + range.first, x.begin() + range.first + range.count};
}
void add_to(Numbers& sum, const Numbers& x) {
  if (sum.empty()) sum.resize(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) sum[i] += x[i];
}

// Each rank gets the sum of its own chunk, bit for bit that of loops over all ranks, and sends what the
// closed forms say: of one hop, or of two on nodes of several ranks.
TEST(Scatter, AddsUpEncodedChunks) {
  int of_two_hops = 0;
  for (const auto& [method, codec] : {std::pair<std::string, std::string>{"int8", "int8"},
                                      {"mxfp8", "mxfp8"},
                                      {"qgz:4", "int4"},
                                      {"qgz:8", "int8"}})
    for (const int of_node : {1, 2, 4})
      for (int ranks = of_node; ranks <= 8; ranks += of_node) {
        const std::string what = fmt::format("{} {} ranks, {} a node", method, ranks, of_node);
        const Scattered got = scatter(method, ranks, of_node, gradients_of);
        const std::vector<Range> chunks = chunks_of(ranks);
        const bool has_two = method.starts_with("qgz") && of_node > 1 && of_node < ranks;
        of_two_hops += has_two;
        for (int to = 0; to < ranks; ++to) {
          const Range chunk = chunks[static_cast<std::size_t>(to)];
          Numbers sum, of_one;
          for (int from = 0; from < ranks; ++from) {
            add_to(has_two ? of_one : sum,
                   decoded(codec, part_of(gradients_of(from, 0, scattered), chunk)));
            if (has_two && from % of_node == of_node - 1) {
              add_to(sum, decoded(codec, of_one));
              of_one.clear();
            }
          }
          EXPECT_EQ(got.sums[static_cast<std::size_t>(to)], sum) << what << " rank " << to;
        }
        for (int rank = 0; rank < ranks; ++rank) {
          const auto place = static_cast<std::size_t>(rank);
          Volume expected;
          const auto add = [&](const std::vector<int>& sent) {
            ++expected.sent_messages;
            for (const int chunk : sent)
              expected.sent_bytes +=
                  encoded_bytes(codec, chunks[static_cast<std::size_t>(chunk)].count);
          };
          for (int to = 0; to < ranks; ++to) {
            if (to == rank) continue;
            if (!has_two || to % of_node == rank % of_node) add({to});
            if (!has_two || to / of_node != rank / of_node) continue;
            std::vector<int> of_place;
            for (int chunk = to % of_node; chunk < ranks; chunk += of_node)
              of_place.push_back(chunk);
            add(of_place);
          }
          EXPECT_EQ(got.sent[place].sent_bytes, expected.sent_bytes) << what;
          EXPECT_EQ(got.sent[place].sent_messages, expected.sent_messages) << what;
          const ExchangeMethod how = exchange_from_text(method);
          const Traffic traffic = scatter_traffic(how, chunks, rank, of_node);
          EXPECT_EQ(traffic.sent_elements, expected.sent_bytes) << what;
          EXPECT_EQ(traffic.sent_messages, expected.sent_messages) << what;
          EXPECT_EQ(traffic.received_elements, got.sent[place].received_bytes) << what;
          EXPECT_EQ(got.memory[place], scatter_memory_bytes(how, DType::f64, chunks, rank, of_node))
              << what;
        }
      }
  EXPECT_EQ(of_two_hops, 2 * (3 + 1));
}

// Figures of the paper for 2^20 numbers on two nodes of four: half a byte each, and four bytes for 256.
TEST(Scatter, SendsALthPartBetweenNodes) {
  std::vector<Range> chunks;
  for (Count rank = 0; rank < 8; ++rank) chunks.push_back({rank << 17, 1 << 17});
  const ExchangeMethod method = exchange_from_text("qgz:4");
  const Count of_chunk = (1 << 16) + 4 * (1 << 9);
  const Traffic two = scatter_traffic(method, chunks, 0, 4),
                one = scatter_traffic(method, chunks, 0, 1);
  EXPECT_EQ(encoded_bytes("int4", 1 << 17), of_chunk);
  EXPECT_EQ(two.sent_elements, 393'216 + 65'536 + 7 * 4 * (1 << 9));
  EXPECT_EQ(one.sent_elements, two.sent_elements);
  EXPECT_EQ(two.sent_messages, 3 + 1);
  EXPECT_EQ(one.sent_messages, 7);
}

// Half a step for each rounding of a number, and never much less than all of them.
TEST(Scatter, IsWithinTheBoundOfItsRoundings) {
  constexpr int ranks = 8, of_node = 4;
  const auto half_steps = [](const Numbers& x, int most) {
    Numbers all;
    for (std::size_t first = 0; first < x.size(); first += 256) {
      double largest = 0;
      const std::size_t end = std::min(first + 256, x.size());
      for (std::size_t i = first; i < end; ++i) largest = std::max(largest, std::abs(x[i]));
      all.resize(end, largest / most / 2);
    }
    return all;
  };
  for (const auto& [method, codec, most] :
       {std::tuple{"qgz:4", "int4", 7}, {"qgz:8", "int8", 127}}) {
    const Scattered got = scatter(method, ranks, of_node, gradients_of);
    double nearest = 0;
    for (std::size_t to = 0; to < ranks; ++to) {
      const Range chunk = chunks_of(ranks)[to];
      Numbers exact, bound, of_one;
      for (int from = 0; from < ranks; ++from) {
        const Numbers x = part_of(gradients_of(from, 0, scattered), chunk);
        add_to(exact, x);
        add_to(bound, half_steps(x, most));
        add_to(of_one, decoded(codec, x));
        if (from % of_node < of_node - 1) continue;
        add_to(bound, half_steps(of_one, most));
        of_one.clear();
      }
      for (std::size_t i = 0; i < exact.size(); ++i) {
        const double off = std::abs(got.sums[to][i] - exact[i]);
        ASSERT_LE(off, bound[i] * (1 + 1e-6)) << method << " " << to << " " << i;
        nearest = std::max(nearest, off / bound[i]);
      }
    }
    EXPECT_GT(nearest, 0.4) << method;
  }
}

// A number that is not finite shows at the owner of its chunk, whose norm all ranks add up.
TEST(Scatter, ShowsWhatIsNotFinite) {
  for (const double wrong :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()})
    for (const char* method : {"int8", "mxfp8", "qgz:4", "qgz:8"}) {
      const Scattered got = scatter(method, 4, 2, [&](int rank, int step, Count count) {
        Numbers x = gradients_of(rank, step, count);
        if (rank == 2) x[300] = wrong;
        return x;
      });
      for (std::size_t to = 0; to < 4; ++to)
        EXPECT_EQ(std::ranges::any_of(got.sums[to], [](double x) { return !std::isfinite(x); }),
                  to == 1)
            << method << " " << to;
    }
}

TEST(Scatter, TrainsUnderShardedPlans) {
  struct Case {
    const char* technique;
    int ranks, zero_stage, replicas;
    const char* sharding;
    DType dtype;
  };
  int compared = 0;
  for (const char* method : {"int8", "mxfp8", "qgz:4"})
    for (const auto& [technique, ranks, zero_stage, replicas, sharding, dtype] :
         {Case{"zero", 3, 1, 1, "flat", DType::f32},
          {"zero", 2, 2, 1, "flat", DType::bf16},
          {"zero", 4, 3, 2, "flat", DType::f64},
          {"fsdp", 3, 3, 1, "per-parameter", DType::f32},
          {"3d", 8, 2, 1, "flat", DType::f64}}) {
      TrainOptions options = test::golden_run(technique, dtype);
      options.exchange = method;
      options.micro_batches = 2;
      options.zero_stage = zero_stage;
      options.replicas = replicas;
      options.sharding = sharding;
      if (options.technique == "3d") {
        options.mesh_lengths[Axis::tp] = 2;
        options.sequence_parallel = true;
      }
      const TrainResult result =
          test::run({.ranks = ranks,
                     .timeout_s = 30,
                     .fault = {},
                     .links = {.ranks_per_node = ranks % 4 == 0 ? ranks / 2 : 1}},
                    options);
      EXPECT_TRUE(theory_holds(result)) << method << " " << technique << zero_stage;
      EXPECT_LT(result.steps.back().loss, result.steps.front().loss) << method << technique;
      ++compared;
    }
  EXPECT_EQ(compared, 15);
}

}  // namespace
}  // namespace lockstep
