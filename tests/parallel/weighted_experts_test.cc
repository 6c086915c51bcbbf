// Experts that multiply by the router's weights where they are, against experts on one rank: outputs and
// gradients, for every way in which rows travel and whatever routers choose. Traffic against counts made
// by hand. New memory holds NaNs.
#include "parallel/expert/weighted_experts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "collectives/base/device.h"
#include "models/ops/device_backend.h"
#include "parallel/expert/experts.h"
#include "parallel/expert/uneven_ring.h"
#include "tests/models/numbers.h"
#include "tests/parallel/expert_weights.h"
#include "tests/parallel/training.h"

namespace lockstep {
namespace {

constexpr int experts = 8, per_token = 3, tokens_of_rank = 4;
constexpr Count width = test::width_of_experts, hidden = test::hidden_of_experts;

// The experts of token t of all ranks' tokens.
using Choice = std::array<int, per_token> (*)(int token);
std::array<int, 3> in_steps(int t) { return {3 * t % 8, (3 * t + 1) % 8, (3 * t + 4) % 8}; }
// All tokens choose the same: most experts and, of four ranks, half get nothing.
std::array<int, 3> the_same(int) { return {7, 0, 6}; }
// The first expert is cold, and so is the second rank of four.
std::array<int, 3> without_some(int t) { return {4 + t % 4, 1, 4 + (t + 1) % 4}; }
// A token that no expert takes, for lack of capacity, and one that loses its first choice.
bool is_dropped(int token, int k) { return token == 2 || (token == 1 && k == 0); }

GptConfig config_of_experts(std::string_view method) {
  GptConfig config = test::config_of_experts(per_token);
  // All tokens may choose the same expert.
  if (method == "padded") config.experts.capacity = experts;
  return config;
}

Routing routing_of(Choice choice, int first, int tokens) {
  Routing routing;
  routing.counts.resize(experts);
  for (int t = first; t < first + tokens; ++t)
    for (int k = 0; k < per_token; ++k) {
      routing.experts.push_back(choice(t)[static_cast<std::size_t>(k)]);
      routing.weights.push_back(0.3 + 0.1 * ((t + k) % 5));
      routing.rows.push_back(-1);
    }
  for (int e = 0; e < experts; ++e)
    for (std::size_t i = 0; i < routing.experts.size(); ++i) {
      const int token = static_cast<int>(i) / per_token;
      if (routing.experts[i] != e || is_dropped(first + token, static_cast<int>(i) % per_token))
        continue;
      routing.rows[i] = static_cast<std::int32_t>(routing.tokens.size());
      routing.tokens.push_back(token);
      ++routing.counts[static_cast<std::size_t>(e)];
    }
  return routing;
}

struct Outcome {
  std::vector<double> out, dx;                                // [tokens, C]
  std::vector<double> products;                               // [tokens, K]
  std::map<std::pair<std::string, Count>, double> gradients;  // by name and place in the whole
};

// Forward, forward again and backward of some tokens, added to something.
Outcome pass_through(const Experts& layer, Parameters& parameters, Choice choice, int first,
                     int tokens, Ledger& ledger) {
  Backend& backend = host_backend();
  Routing routing = routing_of(choice, first, tokens);
  Rows rows{.sequences = 1, .length = tokens, .step = 0};
  const auto numbers = [&](std::uint64_t kind) {
    std::vector<double> all;
    for (int t = first; t < first + tokens; ++t)
      for (const double x : normals(width, 1000 * kind + static_cast<std::uint64_t>(t)))
        all.push_back(x);
    return all;
  };
  std::vector<double> x = numbers(1), dout = numbers(2);
  const std::vector<double> base = numbers(3);
  Outcome outcome{.out = {},
                  .dx = {},
                  .products = std::vector<double>(routing.experts.size()),
                  .gradients = {}};
  LayerStash kept, gradients;
  for (const bool again : {false, true}) {
    rows.again = again;
    // What runs meanwhile makes the base.
    outcome.out.assign(x.size(), 0);
    layer.mix(backend, slice(outcome.out), slice(outcome.out), slice(x), kept, routing, rows,
              ledger, [&] { std::ranges::copy(base, outcome.out.begin()); });
  }
  outcome.dx.assign(x.size(), 0);
  layer.mix_backward_input(backend, slice(outcome.dx), slice(outcome.dx), slice(outcome.products),
                           slice(dout), kept, gradients, routing, ledger,
                           [&] { std::ranges::copy(base, outcome.dx.begin()); });
  layer.mix_backward_weight(backend, kept, gradients, routing);
  for (int i = 0; i < static_cast<int>(parameters.list().size()); ++i) {
    const Parameter& parameter = parameters.list()[static_cast<std::size_t>(i)];
    const auto all = host_span<double>(parameters.gradient(i));
    test::for_each_part(parameter, [&](Count in_whole, Count in_part, Count number) {
      for (Count j = 0; j < number; ++j)
        outcome.gradients[{parameter.name, in_whole + j}] = all[in_part + j];
    });
  }
  return outcome;
}

Outcome on_one_rank(Choice choice, int tokens) {
  Ledger ledger;
  Parameters parameters(DType::f64, ledger);
  const Experts layer(parameters, "", config_of_experts(""),
                      {.experts = {0, experts}, .hidden = {0, hidden}});
  test::set_weights(parameters);
  return pass_through(layer, parameters, choice, 0, tokens, ledger);
}

struct Weighted {
  Outcome outcome;
  std::map<std::string, Volume, std::less<>> traffic;
};
std::vector<Weighted> on_ranks(const ExpertSplit& split, Choice choice, const std::string& method) {
  const int parts = split.tensor_ranks, all_ranks = split.ranks * parts;
  std::vector<Weighted> all(static_cast<std::size_t>(all_ranks));
  LaunchOptions world{.ranks = all_ranks, .timeout_s = 30, .fault = {}};
  world.links.ranks_per_node = method == "two_level" && parts == 1 ? 2 : 0;
  launch(world, [&](RankContext& context) {
    const int number = context.world.rank();
    const auto group = [&](int first, int stride, int count) {
      std::vector<int> members;
      for (int i = 0; i < count; ++i) members.push_back(first + i * stride);
      return context.world.subgroup(members);
    };
    ExpertSplit here = split;
    here.rank = number / parts, here.tensor_rank = number % parts;
    here.most_tokens = tokens_of_rank;
    here.weights_at_experts = true;
    const auto between = group(here.tensor_rank, parts, split.ranks),
               tensor = group(here.rank * parts, 1, parts);
    const GptConfig config = config_of_experts(method);
    ExpertRanks ranks(*between, *tensor, here, config.experts, method, {}, context.ledger);
    Parameters parameters(
        DType::f64, context.ledger,
        place_in_split(
            {.ranks = parts, .rank = here.tensor_rank, .by_sequence = split.by_sequence}));
    const auto layer = make_divided_experts(parameters, "", config, ranks);
    test::set_weights(parameters);
    Weighted& own = all[static_cast<std::size_t>(number)];
    const int source = split.by_sequence ? number : here.rank;
    own.outcome = pass_through(*layer, parameters, choice, source * tokens_of_rank, tokens_of_rank,
                               context.ledger);
    EXPECT_EQ(ranks.dispatched().size(), 1);
    own.traffic = context.counters.by_label();
  });
  return all;
}

class WeightedExperts : public testing::TestWithParam<const char*> {
 protected:
  WeightedExperts() { poison_host_memory(true); }
  ~WeightedExperts() override { poison_host_memory(false); }
};

// `of_rank`: the first of this rank's numbers among all.
void expect_near(const std::vector<double>& some, const std::vector<double>& all,
                 std::size_t of_rank, int& compared) {
  for (std::size_t i = 0; i < some.size(); ++i)
    EXPECT_NEAR(some[i], all.at(of_rank + i), 1e-12) << i;
  compared += static_cast<int>(some.size());
}

TEST_P(WeightedExperts, EqualOneRank) {
  for (const Choice choice : {in_steps, the_same, without_some})
    for (const ExpertSplit split :
         {ExpertSplit{.ranks = 2}, ExpertSplit{.ranks = 4},
          ExpertSplit{.ranks = 2, .tensor_ranks = 2},
          ExpertSplit{.ranks = 2, .tensor_ranks = 2, .by_sequence = true}}) {
      const int sources = split.ranks * split.gathered_ranks();
      const Outcome whole = on_one_rank(choice, sources * tokens_of_rank);
      std::map<std::pair<std::string, Count>, double> gradients;
      int compared = 0;
      const std::vector<Weighted> ranks = on_ranks(split, choice, GetParam());
      for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
        const Outcome& own = ranks[rank].outcome;
        const std::size_t source =
            split.by_sequence ? rank : rank / static_cast<std::size_t>(split.tensor_ranks);
        expect_near(own.out, whole.out, source * own.out.size(), compared);
        expect_near(own.dx, whole.dx, source * own.dx.size(), compared);
        expect_near(own.products, whole.products, source * own.products.size(), compared);
        for (const auto& [key, value] : own.gradients) {
          const bool is_sum = split.by_sequence && key.first.ends_with("c_proj.bias");
          double& sum = gradients[key];
          sum = is_sum ? sum + value : value;
        }
      }
      for (const auto& [key, value] : gradients)
        EXPECT_NEAR(value, whole.gradients.at(key), 1e-12) << key.first << " " << key.second;
      EXPECT_EQ(gradients.size(), whole.gradients.size());
      EXPECT_EQ(compared, std::ssize(ranks) * tokens_of_rank * (2 * width + per_token));
    }
}

INSTANTIATE_TEST_SUITE_P(Methods, WeightedExperts,
                         testing::Values("all_to_all", "two_level", "padded", "deduplicated",
                                         "all_gather"),
                         [](const auto& test) { return std::string(test.param); });

// Rows of a rank that leave it, by label: each choice, or each token once for a rank.
Count rows_leaving(Choice choice, int ranks, int from, bool once) {
  Count rows = 0;
  for (int t = from * tokens_of_rank; t < (from + 1) * tokens_of_rank; ++t) {
    std::multiset<int> to;
    for (int k = 0; k < per_token; ++k)
      if (!is_dropped(t, k)) to.insert(choice(t)[static_cast<std::size_t>(k)] / (experts / ranks));
    to.erase(from);
    rows += once ? std::ssize(std::set(to.begin(), to.end())) : std::ssize(to);
  }
  return rows;
}

TEST(WeightedExpertsTraffic, IsThatOfRowsAndTheirWeights) {
  constexpr int ranks = 4;
  constexpr Count row = width * sizeof(double), weight = sizeof(double), number = 4;
  bool saves = false;
  for (const bool once : {false, true}) {
    const Count of_row = once ? 2 : 1;  // experts of a rank
    const std::vector<Weighted> all =
        on_ranks({.ranks = ranks}, in_steps, once ? "deduplicated" : "all_to_all");
    for (int rank = 0; rank < ranks; ++rank) {
      const Count rows = rows_leaving(in_steps, ranks, rank, once);
      saves = saves || rows < rows_leaving(in_steps, ranks, rank, false);
      const auto& traffic = all[static_cast<std::size_t>(rank)].traffic;
      const auto sent = [&](const char* label) { return traffic.at(label).sent_bytes; };
      const auto received = [&](const char* label) { return traffic.at(label).received_bytes; };
      // Forward ran twice; weights travelled once.
      EXPECT_EQ(sent("dispatch forward"), 2 * rows * row);
      EXPECT_EQ(received("combine forward"), 2 * rows * row);
      EXPECT_EQ(sent("combine backward"), rows * row);
      EXPECT_EQ(received("dispatch backward"), rows * row);
      EXPECT_EQ(sent("router weights forward"), rows * of_row * weight);
      EXPECT_EQ(received("router weights backward"), rows * of_row * weight);
      EXPECT_EQ(traffic.contains("router choices"), once);
      if (once) {
        EXPECT_EQ(sent("router choices"), rows * of_row * number);
      }
      EXPECT_EQ(sent("expert counts"), 3 * (once ? 1 : 2) * 8);
      EXPECT_EQ(traffic.at("router weights forward").sent_messages, ranks - 1);
    }
  }
  EXPECT_TRUE(saves);
}

TEST(WeightedExpertsTraffic, IsThatOfAllTokensIfAllAreGathered) {
  for (const Weighted& rank : on_ranks({.ranks = 4}, in_steps, "all_gather")) {
    constexpr Count rows = 3 * tokens_of_rank, bytes = rows * width * sizeof(double);
    EXPECT_EQ(rank.traffic.at("dispatch forward"), (Volume{2 * bytes, 2 * bytes, 6, 6}));
    EXPECT_EQ(rank.traffic.at("combine forward"), (Volume{2 * bytes, 2 * bytes, 6, 6}));
    EXPECT_EQ(rank.traffic.at("dispatch backward"), (Volume{bytes, bytes, 3, 3}));
    constexpr Count weights = rows * per_token * sizeof(double);
    EXPECT_EQ(rank.traffic.at("router weights forward"), (Volume{weights, weights, 3, 3}));
    EXPECT_EQ(rank.traffic.at("router weights backward"), (Volume{weights, weights, 3, 3}));
    EXPECT_EQ(rank.traffic.at("router choices"), (Volume{weights / 2, weights / 2, 3, 3}));
    EXPECT_EQ(rank.traffic.at("expert counts"), (Volume{24, 24, 3, 3}));
  }
}

// Three ranks with 1, 2 and 4 elements.
TEST(UnevenRing, SendsEachPartOnceAround) {
  const std::vector<Count> counts = {1, 2, 4};
  launch({.ranks = 3, .timeout_s = 30, .fault = {}}, [&](RankContext& context) {
    const int rank = context.world.rank();
    std::vector<double> all(7, rank + 1);
    const UnevenChunks parts(host_slice(std::span(all)), counts);
    const Volume before = context.counters.total();
    {
      const CollectiveCall call(context.world, Operation::all_gather, "ring", Slice{});
      ring_gather(context.world, parts);
    }
    EXPECT_EQ(all, (std::vector<double>{1, 2, 2, 3, 3, 3, 3}));
    const Volume gathered = context.counters.total();
    const Traffic expected = ring_gather_traffic(counts, rank);
    EXPECT_EQ(gathered.sent_bytes - before.sent_bytes, expected.sent_elements * 8);
    EXPECT_EQ(expected.sent_elements, 7 - counts[static_cast<std::size_t>((rank + 1) % 3)]);
    std::ranges::fill(all, rank + 1);
    {
      const CollectiveCall call(context.world, Operation::reduce_scatter, "ring", Slice{});
      ring_add_up(context.world, parts);
    }
    for (const double sum : host_span<double>(parts[rank])) EXPECT_EQ(sum, 6);
    EXPECT_EQ(context.counters.total().sent_bytes - gathered.sent_bytes,
              reversed(expected).sent_elements * 8);
  });
}

}  // namespace
}  // namespace lockstep
