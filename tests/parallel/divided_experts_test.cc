// Experts that ranks divide, against experts on one rank: the same bits, whatever routers choose. Traffic
// against counts made by hand. New memory holds NaNs.
#include <gtest/gtest.h>

#include <algorithm>

#include "collectives/base/device.h"
#include "models/ops/device_backend.h"
#include "parallel/expert/experts.h"
#include "parallel/plan/plan.h"
#include "tests/models/numbers.h"
#include "tests/parallel/expert_weights.h"
#include "tests/parallel/training.h"

namespace lockstep {
namespace {

constexpr int experts = 8, per_token = 2, tokens_of_rank = 4;
constexpr Count width = test::width_of_experts, hidden = test::hidden_of_experts;

// The experts of token t of all ranks' tokens.
using Choice = std::array<int, per_token> (*)(int token);

// What the router of some tokens has chosen.
Routing routing_of(Choice choice, int first, int tokens) {
  Routing routing;
  routing.counts.resize(experts);
  routing.experts.resize(static_cast<std::size_t>(tokens * per_token));
  routing.rows.resize(static_cast<std::size_t>(tokens * per_token));
  for (int e = 0; e < experts; ++e)
    for (int t = 0; t < tokens; ++t)
      for (int k = 0; k < per_token; ++k)
        if (choice(first + t)[static_cast<std::size_t>(k)] == e) {
          routing.rows[static_cast<std::size_t>(t * per_token + k)] =
              static_cast<std::int32_t>(routing.tokens.size());
          routing.tokens.push_back(t);
          ++routing.counts[static_cast<std::size_t>(e)];
        }
  return routing;
}

// Outputs and gradients of rows, by token and choice, and the gradients of weights, by name and place in
// the whole parameter.
struct Outcome {
  std::map<std::pair<int, int>, std::vector<double>> made, dinput;
  std::map<std::pair<std::string, Count>, std::vector<double>> gradients;
};

std::vector<double> numbers_of_row(int token, int k, double scale) {
  std::vector<double> row = normals(width, static_cast<std::uint64_t>(100 + token));
  for (double& x : row) x *= scale * (k + 1);
  return row;
}

// Forward, forward again and backward of the experts for some tokens.
Outcome pass_through(const Experts& layer, Parameters& parameters, Choice choice, int first,
                     int tokens, Ledger& ledger) {
  Outcome outcome;
  Backend& backend = host_backend();
  Routing routing = routing_of(choice, first, tokens);
  Rows rows{.sequences = 1, .length = tokens, .step = 0};
  const Count chosen = std::ssize(routing.tokens);
  LayerStash kept, gradients;
  std::vector<double> made(static_cast<std::size_t>(chosen * width)), dmade = made, dinput = made;
  const auto row_of = [&](int t, int k) {
    return routing.rows[static_cast<std::size_t>(t * per_token + k)] * width;
  };
  const auto fill = [&](std::span<double> all, double scale) {
    for (int t = 0; t < tokens; ++t)
      for (int k = 0; k < per_token; ++k)
        std::ranges::copy(numbers_of_row(first + t, k, scale), all.begin() + row_of(t, k));
  };
  for (const bool again : {false, true}) {
    rows.again = again;
    fill(host_span<double>(layer.input(kept, routing, ledger)), 1);
    layer.forward(backend, host_slice(std::span(made)), kept, routing, rows, ledger);
  }
  fill(dmade, 0.5);
  layer.backward_input(backend, host_slice(std::span(dinput)), host_slice(std::span(dmade)), kept,
                       gradients, routing, ledger);
  layer.backward_weight(backend, host_slice(std::span(dmade)), kept, gradients, routing);
  for (int t = 0; t < tokens; ++t)
    for (int k = 0; k < per_token; ++k) {
      const auto part = [&](const std::vector<double>& all) {
        return std::vector(all.begin() + row_of(t, k), all.begin() + row_of(t, k) + width);
      };
      outcome.made[{first + t, k}] = part(made);
      outcome.dinput[{first + t, k}] = part(dinput);
    }
  for (int i = 0; i < static_cast<int>(parameters.list().size()); ++i) {
    const Parameter& parameter = parameters.list()[static_cast<std::size_t>(i)];
    const auto all = host_span<double>(parameters.gradient(i));
    test::for_each_part(parameter, [&](Count in_whole, Count in_part, Count number) {
      for (Count j = 0; j < number; ++j)
        outcome.gradients[{parameter.name, in_whole + j}] = {all[in_part + j]};
    });
  }
  return outcome;
}

Outcome on_one_rank(Choice choice, int tokens) {
  Ledger ledger;
  Parameters parameters(DType::f64, ledger);
  const GptConfig config = test::config_of_experts(per_token);
  const Experts layer(parameters, "", config, {.experts = {0, experts}, .hidden = {0, hidden}});
  test::set_weights(parameters);
  return pass_through(layer, parameters, choice, 0, tokens, ledger);
}

struct Divided {
  Outcome outcome;
  std::map<std::string, Volume, std::less<>> traffic;
};
// How rows travel, on nodes of so many ranks; 0: all share one.
struct Way {
  const char* method = "all_to_all";
  int ranks_per_node = 0;
};
// `split.ranks` ranks divide the experts; for each of them, `split.tensor_ranks` split these.
std::vector<Divided> on_ranks(const ExpertSplit& split, Choice choice, Way way = {}) {
  const int parts = split.tensor_ranks, all_ranks = split.ranks * parts;
  std::vector<Divided> all(static_cast<std::size_t>(all_ranks));
  LaunchOptions world{.ranks = all_ranks, .timeout_s = 30, .fault = {}};
  world.links.ranks_per_node = way.ranks_per_node;
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
    const auto between = group(here.tensor_rank, parts, split.ranks),
               tensor = group(here.rank * parts, 1, parts);
    GptConfig config = test::config_of_experts(per_token);
    // All tokens may choose the same expert.
    if (std::string_view(way.method) == "padded") config.experts.capacity = experts;
    ExpertRanks ranks(*between, *tensor, here, config.experts, way.method, {}, context.ledger);
    Parameters parameters(
        DType::f64, context.ledger,
        place_in_split(
            {.ranks = parts, .rank = here.tensor_rank, .by_sequence = split.by_sequence}));
    const DividedExperts layer(parameters, "", config, ranks);
    test::set_weights(parameters);
    Divided& own = all[static_cast<std::size_t>(number)];
    const int source = split.by_sequence ? number : here.rank;
    own.outcome = pass_through(layer, parameters, choice, source * tokens_of_rank, tokens_of_rank,
                               context.ledger);
    EXPECT_EQ(ranks.dispatched().size(), 1);
    own.traffic = context.counters.by_label();
  });
  return all;
}
std::vector<Divided> on_ranks(int ranks, Choice choice, Way way = {}) {
  return on_ranks(ExpertSplit{.ranks = ranks}, choice, way);
}

class DividedExperts : public testing::Test {
 protected:
  DividedExperts() { poison_host_memory(true); }
  ~DividedExperts() override { poison_host_memory(false); }
};

// The experts of every token, by its number.
std::array<int, 2> in_steps(int t) { return {3 * t % 8, (5 * t + 1) % 8}; }
// All tokens choose the same two: most experts and, of several ranks, all but one get nothing.
std::array<int, 2> the_same(int) { return {6, 7}; }
// The first expert is cold, and so is the second rank of four.
std::array<int, 2> without_some(int t) { return {1, 4 + t % 4}; }

void expect_same_bits(const Outcome& divided, const Outcome& whole, int& compared) {
  const auto expect = [&](const auto& some, const auto& all) {
    for (const auto& [key, values] : some) {
      EXPECT_EQ(values, all.at(key));
      compared += static_cast<int>(values.size());
    }
  };
  expect(divided.made, whole.made);
  expect(divided.dinput, whole.dinput);
  expect(divided.gradients, whole.gradients);
}

TEST_F(DividedExperts, HaveTheBitsOfOneRank) {
  for (const Choice choice : {in_steps, the_same, without_some})
    for (const int ranks : {1, 2, 4}) {
      const Outcome whole = on_one_rank(choice, ranks * tokens_of_rank);
      int compared = 0;
      for (const Divided& own : on_ranks(ranks, choice))
        expect_same_bits(own.outcome, whole, compared);
      const Count of_expert = 2 * width * hidden + width + hidden;
      EXPECT_EQ(compared, experts * of_expert + ranks * tokens_of_rank * per_token * 2 * width);
    }
}

void expect_near(const std::vector<double>& some, const std::vector<double>& all, int& compared) {
  ASSERT_EQ(some.size(), all.size());
  for (std::size_t i = 0; i < some.size(); ++i) EXPECT_NEAR(some[i], all[i], 1e-12);
  compared += static_cast<int>(some.size());
}

// Ranks that split an expert add up what its hidden columns have made: in another order than one rank.
TEST_F(DividedExperts, MayBeSplitInTurn) {
  for (const Choice choice : {in_steps, the_same, without_some})
    for (const bool by_sequence : {false, true})
      for (const ExpertSplit split :
           {ExpertSplit{.ranks = 1, .tensor_ranks = 2}, ExpertSplit{.ranks = 2, .tensor_ranks = 2},
            ExpertSplit{.ranks = 2, .tensor_ranks = 3}}) {
        ExpertSplit of = split;
        of.by_sequence = by_sequence;
        const int sources = of.ranks * of.gathered_ranks();
        const Outcome whole = on_one_rank(choice, sources * tokens_of_rank);
        std::map<std::pair<std::string, Count>, std::vector<double>> gradients;
        int compared = 0;
        for (const Divided& own : on_ranks(of, choice)) {
          for (const auto& [key, values] : own.outcome.made)
            expect_near(values, whole.made.at(key), compared);
          for (const auto& [key, values] : own.outcome.dinput)
            expect_near(values, whole.dinput.at(key), compared);
          for (const auto& [key, values] : own.outcome.gradients) {
            const bool is_sum = by_sequence && key.first.ends_with("c_proj.bias");
            std::vector<double>& sum = gradients[key];
            sum = {values[0] + (is_sum && !sum.empty() ? sum[0] : 0)};
          }
        }
        for (const auto& [key, values] : gradients)
          expect_near(values, whole.gradients.at(key), compared);
        const Count of_expert = 2 * width * hidden + width + hidden;
        EXPECT_EQ(compared, experts * of_expert + of.ranks * of.tensor_ranks * tokens_of_rank *
                                                      per_token * 2 * width);
      }
}

// Two ranks divide the experts, and two split each of them: as tokens choose, these have got
// different numbers of rows.
TEST_F(DividedExperts, GatherAndScatterTheRowsOfSplitOnes) {
  const std::vector<Divided> ranks =
      on_ranks({.ranks = 2, .tensor_ranks = 2, .by_sequence = true}, in_steps);
  constexpr Count row = width * sizeof(double);
  std::array<std::array<Count, 2>, 2>
      got{};  // by half of the experts, and by rank that splits them
  for (int token = 0; token < 4 * tokens_of_rank; ++token)
    for (const int expert : in_steps(token))
      ++got[static_cast<std::size_t>(expert / 4)]
           [static_cast<std::size_t>(token / tokens_of_rank % 2)];
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    // Sends its rows, and the part of the sum for those of the other.
    const Count all = got[rank / 2][0] + got[rank / 2][1];
    for (const auto& [label, times] : {std::pair{ExpertRanks::split_forward_label, 2},
                                       std::pair{ExpertRanks::split_backward_label, 1}})
      EXPECT_EQ(ranks[rank].traffic.at(label),
                (Volume{times * all * row, times * all * row, times * 2, times * 2}))
          << label << " of rank " << rank;
    const Volume& counts = ranks[rank].traffic.at(ExpertRanks::counts_label);
    EXPECT_EQ(counts, (Volume{(4 + 8) * 8, (4 + 8) * 8, 2, 2}));
  }
}

// Every expert gets four rows, and yet some ranks send twice as many bytes as others.
TEST_F(DividedExperts, SendWhatTheirRowsSay) {
  const std::vector<Divided> ranks = on_ranks(4, in_steps);
  const std::array<Count, 4> leaving = {4, 6, 8, 6};
  constexpr Count row = width * sizeof(double), messages = 3;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const auto expect = [&](const char* label, Count times) {
      const Volume& volume = ranks[rank].traffic.at(label);
      EXPECT_EQ(volume.sent_bytes, times * leaving[rank] * row) << label << " of rank " << rank;
      EXPECT_EQ(volume.sent_messages, times * messages) << label;
    };
    // Forward ran twice, and its counts travelled once.
    expect(ExpertRanks::dispatch_label, 2);
    expect(ExpertRanks::combine_label, 2);
    expect(ExpertRanks::combine_backward_label, 1);
    expect(ExpertRanks::dispatch_backward_label, 1);
    const Volume& counts = ranks[rank].traffic.at(ExpertRanks::counts_label);
    EXPECT_EQ(counts, (Volume{3 * 2 * 8, 3 * 2 * 8, 3, 3}));
  }
}

// The rows from one rank to the experts of another.
Count rows_between(Choice choice, int ranks, int from, int to) {
  Count rows = 0;
  for (int t = from * tokens_of_rank; t < (from + 1) * tokens_of_rank; ++t)
    for (const int e : choice(t)) rows += e / (experts / ranks) == to;
  return rows;
}

TEST_F(DividedExperts, HaveTheSameBitsHoweverTheirRowsTravel) {
  for (const Choice choice : {in_steps, the_same, without_some})
    for (const int ranks : {1, 2, 4, 8}) {
      const std::vector<Divided> direct = on_ranks(ranks, choice);
      for (const Way way : {Way{"two_level", 1}, Way{"two_level", 2}, Way{"two_level", 4},
                            Way{"two_level", 0}, Way{"padded", 0}}) {
        if (ranks % std::max(way.ranks_per_node, 1) != 0) continue;
        int compared = 0;
        const std::vector<Divided> other = on_ranks(ranks, choice, way);
        for (std::size_t rank = 0; rank < direct.size(); ++rank)
          expect_same_bits(other[rank].outcome, direct[rank].outcome, compared);
        EXPECT_GT(compared, experts * 2 * width * hidden) << way.method;
      }
    }
}

// On two nodes of two ranks, all send equally much on both levels, though not by the direct way.
TEST_F(DividedExperts, SendFourRowsInsideAndFourBetweenNodes) {
  const std::vector<Divided> ranks = on_ranks(4, in_steps, {"two_level", 2});
  constexpr Count row = width * sizeof(double);
  for (const Divided& rank : ranks) {
    EXPECT_EQ(rank.traffic.at("dispatch forward, in nodes"),
              (Volume{2 * 4 * row, 2 * 4 * row, 2, 2}));
    EXPECT_EQ(rank.traffic.at("dispatch forward, between nodes"),
              (Volume{2 * 4 * row, 2 * 4 * row, 2, 2}));
    // Two experts of each rank; forward ran twice, and its counts travelled once.
    EXPECT_EQ(rank.traffic.at("expert counts, in nodes"), (Volume{2 * 2 * 8, 2 * 2 * 8, 1, 1}));
    EXPECT_EQ(rank.traffic.at("expert counts, between nodes"),
              (Volume{2 * 2 * 8, 2 * 2 * 8, 1, 1}));
    EXPECT_FALSE(rank.traffic.contains("dispatch forward"));
  }
}

// Inside nodes, rank (i, a) sends (i, b) the rows for rank b of every node; between nodes, it sends
// (j, a) those of its whole node. Back, what it had received.
TEST_F(DividedExperts, SendOnTwoLevelsWhatTheirRowsSay) {
  constexpr int ranks = 8;
  constexpr Count row = width * sizeof(double);
  for (const Choice choice : {in_steps, the_same, without_some})
    for (const int places : {2, 4}) {
      const std::vector<Divided> all = on_ranks(ranks, choice, {"two_level", places});
      for (int rank = 0; rank < ranks; ++rank) {
        Count inside = 0, back_inside = 0, between = 0, back_between = 0;
        const auto node = [&](int r) { return r / places; };
        const auto place = [&](int r) { return r % places; };
        for (int from = 0; from < ranks; ++from)
          for (int to = 0; to < ranks; ++to) {
            const Count rows = rows_between(choice, ranks, from, to);
            const bool to_place = place(to) == place(rank), of_node = node(from) == node(rank);
            if (from == rank && !to_place) inside += rows;
            if (from != rank && of_node && to_place) back_inside += rows;
            if (of_node && to_place && node(to) != node(rank)) between += rows;
            if (to == rank && !of_node) back_between += rows;
          }
        const auto& traffic = all[static_cast<std::size_t>(rank)].traffic;
        const auto sent = [&](const char* label) { return traffic.at(label).sent_bytes; };
        EXPECT_EQ(sent("dispatch forward, in nodes"), 2 * inside * row);
        EXPECT_EQ(sent("dispatch forward, between nodes"), 2 * between * row);
        EXPECT_EQ(sent("combine backward, between nodes"), between * row);
        EXPECT_EQ(sent("dispatch backward, in nodes"), back_inside * row);
        EXPECT_EQ(sent("combine forward, between nodes"), 2 * back_between * row);
        const Count messages = traffic.at("dispatch backward, in nodes").sent_messages;
        EXPECT_EQ(messages, places - 1);
      }
    }
}

TEST_F(DividedExperts, SendEqualMessagesIfPadded) {
  for (const Choice choice : {in_steps, the_same, without_some})
    for (const Divided& rank : on_ranks(4, choice, {"padded", 0})) {
      // Two experts of each rank; each takes at most four rows.
      constexpr Count bytes = 3 * 2 * 4 * width * sizeof(double);
      EXPECT_EQ(rank.traffic.at("dispatch forward"), (Volume{2 * bytes, 2 * bytes, 6, 6}));
      EXPECT_EQ(rank.traffic.at("combine backward"), (Volume{bytes, bytes, 3, 3}));
      EXPECT_EQ(rank.traffic.at("dispatch backward"), (Volume{bytes, bytes, 3, 3}));
    }
}

TEST_F(DividedExperts, AreRefusedOnUnequalNodesWithTwoLevels) {
  try {
    on_ranks(4, in_steps, {"two_level", 3});
    FAIL() << "nodes of three ranks and of one";
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_status(), 2);
    EXPECT_NE(std::string(error.what()).find("--token-dispatcher-type two_level needs"),
              std::string::npos)
        << error.what();
  }
}

TEST(TokenDispatchers, HaveTheNamesOfTheOption) {
  TrainOptions options;
  const OptionGroup group = describe_expert_axis(options);
  const auto option = std::ranges::find(group.options, "token-dispatcher-type", &Option::flag);
  ASSERT_NE(option, group.options.end());
  std::vector<std::string> names;
  for (const DispatchMethod& method : dispatch_methods()) names.emplace_back(method.name);
  EXPECT_EQ(option->choices, names);
  EXPECT_EQ(options.token_dispatcher, names.front());
  EXPECT_THROW(dispatch_method("ring"), Error);
}

// Two stages of four replicas along tp 2: rank = 8 stage + 2 replica + place along tp. Neighbouring replicas
// divide experts, and every second one has the same.
TEST(DividedExpertsPlan, HaveTheseGroups) {
  TrainOptions options = test::run_with_experts("moe");
  options.mesh_lengths[Axis::tp] = options.mesh_lengths[Axis::pp] = 2;
  options.expert_ranks = 2;
  options.micro_batches = 2;
  const Plan plan = plan_of(options, 16);
  using Group = Mesh::Group;
  const Group divide[] = {{0, 2}, {1, 3}, {0, 2}, {1, 3}, {4, 6}, {5, 7}, {4, 6}, {5, 7}},
              same[] = {{0, 4}, {1, 5}, {2, 6}, {3, 7}, {0, 4}, {1, 5}, {2, 6}, {3, 7}};
  for (int rank = 0; rank < 16; ++rank) {
    const auto at_stage = [&](Group group) {
      for (int& each : group) each += rank / 8 * 8;
      return group;
    };
    EXPECT_EQ(plan.expert_group(rank), at_stage(divide[rank % 8])) << rank;
    EXPECT_EQ(plan.replica_group(rank, ParameterSet::experts), at_stage(same[rank % 8])) << rank;
    EXPECT_EQ(plan.replica_group(rank, ParameterSet::dense),
              at_stage({rank % 2, rank % 2 + 2, rank % 2 + 4, rank % 2 + 6}))
        << rank;
  }
}

TEST(DividedExpertsPlan, AreRefusedWhereTheyDoNotFit) {
  int refused = 0;
  const auto expect = [&](int ranks, void (*set)(TrainOptions&), const char* said) {
    TrainOptions options = test::run_with_experts("moe");
    set(options);
    EXPECT_NE(test::refusal(ranks, options).find(said), std::string::npos)
        << test::refusal(ranks, options);
    ++refused;
  };
  expect(
      3, [](TrainOptions&) {}, "--ep 3: so many ranks cannot divide 4 experts; use 1");
  expect(
      4, [](TrainOptions& o) { o.expert_ranks = 8; },
      "--ep 8: so many ranks cannot divide 4 experts; use 1, 2 or 4");
  expect(
      6, [](TrainOptions& o) { o.expert_ranks = 4; }, "--ep 4 of 6 replicas; use 1 or 2");
  expect(
      4, [](TrainOptions& o) { o.zero_stage = 1, o.replicas = 2; },
      "--ep 4 with the shards on 2 ranks");
  expect(
      8,
      [](TrainOptions& o) { o.expert_ranks = 4, o.zero_stage = 3, o.reshard_after_forward = "4"; },
      "--reshard-after-forward 4 with --ep 4; use a multiple");
  expect(
      4, [](TrainOptions& o) { o.model = "nano", o.init.clear(); },
      "--ep 4 of a model without experts; name a --model that has experts");
  expect(
      8, [](TrainOptions& o) { o.mesh_lengths[Axis::tp] = 4, o.expert_tensor_ranks = 2; },
      "--etp 2 with --tp 4; the ranks that split an expert are all tensor-parallel ranks, or one");
  expect(
      4, [](TrainOptions& o) { o.token_dispatcher = "padded"; },
      "--token-dispatcher-type padded without a capacity");
  expect(
      4, [](TrainOptions& o) { o.token_dispatcher = "ring"; },
      "--token-dispatcher-type 'ring'; choose all_to_all, two_level, padded, deduplicated or "
      "all_gather");
  for (const auto set : {+[](TrainOptions& o) { o.token_dispatcher = "deduplicated"; },
                         +[](TrainOptions& o) { o.token_dispatcher = "all_gather"; }})
    expect(4, set, "so it needs the weights; add --router-weights-at expert");
  EXPECT_EQ(refused, 11);
}

}  // namespace
}  // namespace lockstep
