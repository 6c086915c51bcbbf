// Context parallelism compared with the reference run in float64 and with one rank; its pairs, traffic
// and memory compared with the closed forms. Random plans mix it with the other axes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "models/gpt_config.h"
#include "models/layers/whole_layers.h"
#include "parallel/context/attention.h"
#include "parallel/plan/context_split.h"
#include "parallel/predict/predict.h"
#include "tests/parallel/training.h"

namespace lockstep {
namespace {

using test::expect_golden;
using test::expect_same_steps;
using test::Folder;
using test::golden_run;
using test::refusal;
using test::run;
using testing::HasSubstr;

struct ContextCase {
  int ranks;
  const char* name;
  const char* technique;
  const char* layout = "zig-zag";
  std::optional<int> ulysses = {}, ring = {};
  const char* hops = "c-1";
};
void PrintTo(const ContextCase& c, std::ostream* out) { *out << c.ranks << " ranks, " << c.name; }

TrainOptions context_run(const ContextCase& c, DType dtype = DType::f64) {
  TrainOptions options = golden_run(c.technique, dtype);
  options.layout = c.layout;
  options.ulysses_ranks = c.ulysses;
  options.ring_ranks = c.ring;
  options.gradient_hops = c.hops;
  return options;
}

// A factory of layers with an mlp of its own, as one with experts has.
struct OwnMlpLayers final : WrappedLayers {
  OwnMlpLayers() : WrappedLayers(whole_layers()) {}
  std::unique_ptr<Mlp> mlp(Parameters&, int layer, const GptConfig&,
                           const MaskOptions&) const override {
    mlps.push_back(layer);
    return nullptr;
  }
  mutable std::vector<int> mlps;
};

TEST(ContextLayers, ReplaceTheAttentionOnly) {
  Ledger ledger;
  Parameters parameters(DType::f64, ledger);
  ContextRanks ranks(ContextSplit{}, ledger);
  const OwnMlpLayers inner;
  const ContextLayers layers(inner, ranks);
  const GptConfig config{.layers = 1, .heads = 2, .width = 8, .context = 4, .vocabulary = 8};
  EXPECT_EQ(layers.mlp(parameters, 3, config, {}), nullptr);
  EXPECT_EQ(inner.mlps, std::vector{3});
  const auto attention = layers.attention(parameters, 0, config, {});
  EXPECT_NE(dynamic_cast<const ContextAttention*>(attention.get()), nullptr);
}

class ContextRuns : public testing::TestWithParam<ContextCase> {};

TEST_P(ContextRuns, ReproduceTheGoldenRun) {
  TrainOptions options = context_run(GetParam());
  options.micro_batches = 2;
  const TrainResult result = run(GetParam().ranks, options);
  expect_golden(result, 1e-10);
  EXPECT_TRUE(theory_holds(result));
  expect_golden(run(GetParam().ranks, context_run(GetParam(), DType::f32)), 1e-5);
}

TEST_P(ContextRuns, FinalWeightsEqualSerial) {
  test::expect_same_weights(GetParam().ranks, context_run(GetParam()));
}

// Dropout by place, evaluation, labels at the borders of a rank's tokens, and recomputation.
TEST_P(ContextRuns, EqualOneRankWithDropoutValidationAndRecomputation) {
  const auto with_all = [](TrainOptions options) {
    options.dropout = 0.2;
    options.label_smoothing = 0.1;
    options.validation_fraction = 0.2;
    options.steps = 3;
    return options;
  };
  const TrainResult serial = run(1, with_all(golden_run("serial")));
  for (const char* recompute : {"selective", "full"}) {
    TrainOptions options = with_all(context_run(GetParam()));
    options.recompute = recompute;
    const TrainResult result = run(GetParam().ranks, options);
    expect_same_steps(result, serial, 1e-10);
    EXPECT_TRUE(theory_holds(result)) << recompute;
    ASSERT_EQ(result.validation.size(), 1U);
    EXPECT_NEAR(result.validation[0].loss / serial.validation[0].loss, 1, 1e-10);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Variants, ContextRuns,
    test::sampled<ContextCase>(
        {ContextCase{1, "one", "ring-attention"}, ContextCase{2, "ring", "ring-attention"},
         ContextCase{4, "ring", "ring-attention"},
         ContextCase{4, "ring_contiguous", "ring-attention", "contiguous"},
         ContextCase{4, "ring_striped", "ring-attention", "striped"},
         ContextCase{2, "ring_all_hops", "ring-attention", "zig-zag", {}, {}, "c"},
         ContextCase{4, "ring_all_hops", "ring-attention", "striped", {}, {}, "c"},
         ContextCase{2, "gather", "cp"}, ContextCase{4, "gather_contiguous", "cp", "contiguous"},
         ContextCase{4, "gather_striped", "cp", "striped"}, ContextCase{2, "ulysses", "ulysses"},
         ContextCase{4, "ulysses", "ulysses"}, ContextCase{4, "mix", "cp", "zig-zag", 2, 2},
         ContextCase{4, "mix_striped", "cp", "striped", 2, 2},
         ContextCase{4, "mix_gather", "cp", "contiguous", 2}}),
    [](const auto& test) {
      return std::string(test.param.name) + "_" + std::to_string(test.param.ranks);
    });

// Ring and all-gather take blocks in the same order, so they add in the same order.
TEST(ContextParallelism, RingAndAllGatherHaveTheSameBits) {
  for (const char* layout : {"contiguous", "zig-zag", "striped"}) {
    const TrainResult ring = run(4, context_run({4, "", "ring-attention", layout}));
    const TrainResult gather = run(4, context_run({4, "", "cp", layout}));
    EXPECT_EQ(ring.steps[0].loss, gather.steps[0].loss) << layout;
  }
}

// Heads that ranks cannot divide equally, and fewer key/value heads than ranks.
TEST(ContextParallelism, HeadsNeedNotBeAMultipleOfTheRanks) {
  for (const int kv_heads : {1, 2, 3, 6}) {
    const Folder folder;
    write_file(folder.file("config.json"), gpt_config_json({.layers = 2,
                                                            .heads = 6,
                                                            .width = 48,
                                                            .context = 24,
                                                            .vocabulary = 128,
                                                            .kv_heads = kv_heads}));
    const auto run_of = [&](TrainOptions options) {
      options.model = folder.file("config.json");
      options.init.clear();
      options.steps = 3;
      options.dropout = 0.1;
      return options;
    };
    const TrainResult serial = run(1, run_of(golden_run("serial")));
    for (const ContextCase& c :
         {ContextCase{2, "", "ulysses"}, ContextCase{3, "", "ulysses"},
          ContextCase{4, "", "ulysses"}, ContextCase{6, "", "cp", "zig-zag", 3, 2},
          ContextCase{3, "", "ring-attention", "striped"}}) {
      const TrainResult result = run(c.ranks, run_of(context_run(c)));
      expect_same_steps(result, serial, 1e-10);
      EXPECT_TRUE(theory_holds(result)) << kv_heads << " " << c.technique << " " << c.ranks;
    }
  }
}

TEST(ContextParallelism, SharesOfHeadsCoverAllOnce) {
  for (const auto& [heads, kv_heads] :
       {std::pair<Count, Count>{6, 6}, {6, 3}, {6, 2}, {6, 1}, {8, 2}, {12, 4}})
    for (int ranks = 1; ranks <= heads; ++ranks) {
      Count next = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const HeadShare share = HeadSplit{.ranks = ranks, .rank = rank}.share(heads, kv_heads);
        EXPECT_EQ(share.first, next);
        EXPECT_GT(share.count, 0);
        EXPECT_EQ(share.count % share.kv_count, 0);
        const Count sharers = heads / kv_heads;
        for (Count head = share.first; head < share.first + share.count; ++head)
          EXPECT_EQ(share.first_kv + (head - share.first) / (share.count / share.kv_count),
                    head / sharers);
        next += share.count;
      }
      EXPECT_EQ(next, heads);
    }
}

// All ranks of all groups have each position once, and the closed forms count what positions say.
TEST(ContextParallelism, LayoutsCoverTheSequenceAndPairsHaveClosedForms) {
  constexpr Count length = 48;
  for (const TokenOrder order : {TokenOrder::contiguous, TokenOrder::zig_zag, TokenOrder::striped})
    for (const int groups : {1, 2, 3, 4})
      for (const int parts : {1, 2, 4}) {
        std::vector<int> seen(length);
        Count all = 0;
        for (int group = 0; group < groups; ++group) {
          TokenLayout layout{.order = order, .ranks = groups, .rank = group, .parts = parts};
          const Positions queries = layout.positions_of_group(length);
          EXPECT_EQ(attention_pairs(layout, length), causal_pairs(queries, Positions::all(length)));
          all += attention_pairs(layout, length);
          if (order == TokenOrder::zig_zag) {
            EXPECT_EQ(attention_pairs(layout, length) * groups, length * (length + 1) / 2);
          }
          for (layout.part = 0; layout.part < parts; ++layout.part) {
            const Positions own = layout.positions(length);
            ASSERT_EQ(own.count(), length / groups / parts);
            for (Count i = 0; i < own.count(); ++i) ++seen[static_cast<std::size_t>(own[i])];
          }
        }
        EXPECT_EQ(all, length * (length + 1) / 2);
        EXPECT_THAT(seen, testing::Each(1));
      }
}

// 2 (c-1) blocks in the model's type and c - 1 or c in the type of gradients, per layer.
TEST(ContextParallelism, SendsWhatThePapersSay) {
  const std::int64_t layers = 8, width = 32, block = 8 * 16 / 4 * 2 * width * 8;
  const auto sent = [](const TrainResult& result, const char* label) {
    return result.ranks[1].traffic.at(label).sent_bytes;
  };
  for (const auto& [hops, number] : {std::pair{"c-1", 3}, {"c", 4}}) {
    TrainOptions options = context_run({4, "", "ring-attention", "zig-zag", {}, {}, hops});
    options.steps = 1;
    const TrainResult ring = run(4, options);
    EXPECT_EQ(sent(ring, "keys and values"), 2 * 3 * block * layers);
    EXPECT_EQ(sent(ring, "gradients of keys and values"), number * block * layers);
  }
  TrainOptions options = context_run({4, "", "ulysses"});
  options.steps = 1;
  // Forward queries, keys, values and the output; backward the same and a product for each head.
  const std::int64_t rows = 8 * 16 / 4, heads = 4;
  EXPECT_EQ(sent(run(4, options), "heads"),
            layers * 3 * (8 * rows * width / 4 + rows * heads / 4) * 8);
}

TEST(ContextParallelism, TrainsInSixteenBits) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const TrainResult serial = run(1, golden_run("serial", dtype));
    for (const ContextCase& c :
         {ContextCase{4, "", "ring-attention"}, ContextCase{2, "", "cp"},
          ContextCase{4, "", "ulysses"}, ContextCase{4, "", "cp", "striped", 2, 2}}) {
      const TrainResult result = run(c.ranks, context_run(c, dtype));
      EXPECT_TRUE(theory_holds(result)) << c.technique;
      // A bf16 has 8 bits: losses differ by what a few roundings do.
      for (std::size_t i = 0; i < serial.steps.size(); ++i)
        EXPECT_NEAR(result.steps[i].loss / serial.steps[i].loss, 1, 0.01);
    }
  }
}

// Most memory of a rank is its share of the activations; the plain attention of one head alone would
// take 34 GB.
TEST(ContextParallelism, LongSequencesNeedMemoryLinearInTheirLength) {
  TrainOptions options = golden_run("ring-attention");
  options.init.clear();
  const auto peak = [&](int length, int ranks) {
    const Folder folder;
    write_file(folder.file("config.json"), gpt_config_json({.layers = 2,
                                                            .heads = 2,
                                                            .width = 16,
                                                            .context = length,
                                                            .vocabulary = 16,
                                                            .kv_heads = 2}));
    options.model = folder.file("config.json");
    options.global_batch = 1;
    const Prediction p = predict(plan_of(options, ranks), ranks - 1);
    return p.peak_bytes[static_cast<std::size_t>(MemoryUse::activations)]->value +
           p.peak_bytes[static_cast<std::size_t>(MemoryUse::communication)]->value;
  };
  EXPECT_EQ(peak(1 << 20, 256), peak(1 << 19, 128));
}

TEST(ContextParallelism, RefusesWhatDoesNotDivide) {
  TrainOptions options = golden_run("ring-attention");
  EXPECT_THAT(refusal(3, options), HasSubstr("sequences of 16 tokens on 3 context-parallel ranks"));
  options.sequence_length = 12;
  EXPECT_THAT(refusal(4, options), HasSubstr("--sequence-length must be a multiple of 8"));
  options = golden_run("ulysses");
  options.sequence_length = 15;
  EXPECT_THAT(refusal(5, options), HasSubstr("4 heads on 5 ranks"));
  options = golden_run("cp");
  options.ulysses_ranks = 3;
  EXPECT_THAT(refusal(4, options), HasSubstr("--ulysses 3 of 4 ranks along cp"));
  options.ulysses_ranks = 2;
  options.ring_ranks = 3;
  EXPECT_THAT(refusal(4, options),
              HasSubstr("--ulysses 2 times --ring 3 is 6, and there are 4 ranks"));
  options = golden_run("cp");
  options.layout = "spiral";
  EXPECT_THAT(refusal(4, options), HasSubstr("spiral"));
}

}  // namespace
}  // namespace lockstep
