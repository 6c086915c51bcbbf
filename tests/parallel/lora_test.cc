// Adapters under every plan: a run of Hugging Face's GPT-2 with peft, the numbers of one rank, what ranks send
// and hold, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "models/gpt/adapter_files.h"
#include "models/gpt/merge_adapters.h"
#include "models/ops/described_backend.h"
#include "parallel/tags/with_tags.h"
#include "parallel/train/dry_run.h"
#include "tests/parallel/lora_runs.h"

namespace lockstep {
namespace {

using test::frozen_run;
using test::lora_run;
using test::LoraCase;
using test::refusal;
using test::run;
using testing::HasSubstr;

// Computes nothing, and counts the multiplications and additions of products.
class CountedProducts final : public DescribedBackend {
 public:
  CountedProducts() : DescribedBackend(nullptr) {}
  double operations = 0;
  std::string_view name() const override { return "counted products"; }

 private:
  void run(const KernelCall& call, const std::function<void()>&) override {
    if (call.is_product) operations += call.operations;
  }
};

// Of a step of one rank.
double operations_of_products(const TrainOptions& options) {
  double operations = 0;
  const Plan plan = plan_of(options, 1);
  launch_alone({.ranks = 1, .fault = {}, .device = &none_device()}, 0, [&](RankContext& context) {
    CountedProducts backend;
    const auto rank = make_rank(context, plan, backend);
    rank->load_weights();
    double before = 0;
    count_dry_step(context, *rank, plan, [&] { before = backend.operations; });
    operations = backend.operations - before;
  });
  return operations;
}

// 4 T in out + 8 T r (in + out) of a layer, against 6 T in out: weights have no gradient, and what lies
// below the first adapter has none at all. Thin products are not kept: x A^T is computed again for the
// gradient of B, and dout B once for that of A and once for that of x. Hu et al., "LoRA", 2021.
TEST(LoraProducts, AreThoseOfTheClosedForm) {
  TrainOptions options;
  options.technique = "serial";
  options.model = "nano";
  options.global_batch = 3;
  const GptConfig nano = GptConfig::preset("nano");
  const double c = nano.width, layers = nano.layers, tokens = 3.0 * nano.context;
  const double blocks = 12 * c * c * layers, head = c * nano.vocabulary;
  EXPECT_EQ(operations_of_products(options), 6 * tokens * (blocks + head));
  // The sides of matrices with adapters; the weights through which no gradient passes; and the columns
  // of the first matrix with an adapter.
  const auto expect = [&](const char* targets, double sides, double below, double first) {
    for (const int r : {1, 8}) {
      options.lora_rank = r;
      options.lora_targets = targets;
      EXPECT_EQ(
          operations_of_products(options),
          tokens * (4 * (blocks + head) + 8 * r * sides * layers - 2 * (below + r * (c + first))))
          << targets << " " << r;
    }
  };
  expect("c_attn,c_proj,c_fc", 4 * c + 2 * c + 5 * c + 5 * c, 3 * c * c, 3 * c);
  expect("c_fc", 5 * c, (3 + 1 + 4) * c * c, 4 * c);
}

class Lora : public testing::TestWithParam<LoraCase> {
 protected:
  std::vector<double> adapters_of(const TrainOptions& options, int ranks, TrainResult& result) {
    TrainOptions saving = options;
    saving.save_adapters = folder_.file(fmt::format("adapters{}", ++saved_));
    result = run(ranks, saving);
    return test::weights_of(adapter_weights_path(saving.save_adapters));
  }
  const test::Folder folder_;

 private:
  int saved_ = 0;
};
INSTANTIATE_TEST_SUITE_P(Plans, Lora, test::sampled(test::lora_cases()),
                         [](const auto& test_info) { return test_info.param.name; });

// Hugging Face's GPT-2 with adapters of peft, in f64; it wrote the final ones in f32.
TEST_P(Lora, ReproducesTheReference) {
  const LoraCase& c = GetParam();
  TrainResult result;
  const std::vector<double> final = adapters_of(c.with(lora_run(c.technique)), c.ranks, result);
  EXPECT_TRUE(theory_holds(result));
  const auto expected =
      nlohmann::json::parse(std::ifstream(test::lora_reference + "/expected.json"));
  ASSERT_EQ(std::ssize(result.steps), LOCKSTEP_THOROUGH ? 8 : 3);
  for (const StepRecord& step : result.steps) {
    EXPECT_NEAR(step.loss / expected["losses"][step.step].get<double>(), 1, 1e-10);
    EXPECT_NEAR(step.grad_norm / expected["grad_norms"][step.step].get<double>(), 1, 1e-10);
  }
  if (!LOCKSTEP_THOROUGH) return;
  const auto theirs =
      test::weights_of(test::lora_reference + "/adapter_final/adapter_model.safetensors");
  ASSERT_EQ(final.size(), theirs.size());
  for (std::size_t i = 0; i < final.size(); ++i)
    ASSERT_EQ(static_cast<float>(final[i]), static_cast<float>(theirs[i])) << i;
}

// Adapters of all layers, which begin at random; and of some, so that backward ends elsewhere. Masks
// and packed matrices are those of one rank.
TEST_P(Lora, EqualsOneRankWhateverTheTargets) {
  const LoraCase& c = GetParam();
  struct Adapted {
    const char* targets;
    double dropout;
    const char* base;
  };
  for (const auto& [targets, dropout, base] : {Adapted{"c_attn,c_proj,c_fc", 0.3, "fp6"},
                                               {"mlp.c_proj", 0, "int8"},
                                               {"attn.c_proj,c_fc", 0.3, "none"}}) {
    SCOPED_TRACE(targets);
    const auto with_adapters = [&](TrainOptions options) {
      options.steps = 3;
      options.lora_rank = 3;
      options.lora_targets = targets;
      options.lora_dropout = dropout;
      options.lora_base = base;
      options.rank_stabilized = true;
      options.lora_rate_ratio = 4;
      options.grad_clip = 1e-3;  // every step is clipped
      return options;
    };
    TrainResult result, serial;
    const auto got = adapters_of(with_adapters(c.with(frozen_run(c.technique))), c.ranks, result);
    const auto expected = adapters_of(with_adapters(frozen_run("serial")), 1, serial);
    EXPECT_TRUE(theory_holds(result));
    for (const StepRecord& step : serial.steps) EXPECT_GT(step.grad_norm, 2e-3);
    test::expect_same_steps(result, serial, 1e-10);
    ASSERT_EQ(got.size(), expected.size());
    for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], expected[i], 1e-12) << i;
  }
}

TEST_P(Lora, HasTagsThatFit) {
  const LoraCase& c = GetParam();
  TrainOptions options = c.with(frozen_run(c.technique));
  options.lora_rank = 3;
  options.lora_targets = "c_attn,c_proj,c_fc";
  options.lora_dropout = 0.1;
  options.lora_base = "fp6";
  const Plan plan = plan_of(options, c.ranks);
  if (c.technique == "serial") return;
  EXPECT_GT(check_tags_of(plan, {0, c.ranks - 1}), 100);
}

TEST_P(Lora, IsPredictedWithSixteenBits) {
  const LoraCase& c = GetParam();
  TrainOptions options = c.with(lora_run(c.technique));
  options.dtype = DType::bf16;
  options.steps = 2;
  options.lora_init.clear();
  options.lora_dropout = 0.1;
  options.lora_base = "int8";
  EXPECT_TRUE(theory_holds(run(c.ranks, options)));
}

// Of the golden model and its adapters.
constexpr Count lora_layers = 8, lora_width = 32, rank_of_lora = 4, of_c_attn = test::lora_elements;

TEST(LoraMemory, IsThatOfTheAdapters) {
  const TrainResult full = run(2, frozen_run("ddp")), result = run(2, lora_run("ddp"));
  for (const RankRecord& record : result.ranks) {
    EXPECT_EQ(record.peak_bytes.at("gradients"), of_c_attn * 8);
    EXPECT_EQ(record.peak_bytes.at("optimizer"), of_c_attn * 16);
    EXPECT_EQ(record.peak_bytes.at("parameters"),
              full.ranks[0].peak_bytes.at("parameters") + of_c_attn * 8);
    // Of each block, the inputs of c_fc and of the mlp's c_proj are not kept.
    const Count rows = 4 * 16, not_kept = lora_layers * rows * 5 * lora_width + rows * lora_width;
    const Count shared = rows * (rank_of_lora + lora_width + 4 * lora_width);
    EXPECT_EQ(record.peak_bytes.at("activations"),
              full.ranks[0].peak_bytes.at("activations") + (shared - not_kept) * 8);
  }
}

// Heads of 8 columns: 12 bytes of int8 for a head of a row, 10 of FP6.
TEST(LoraMemory, IsThatOfThePackedBase) {
  constexpr Count numbers = lora_layers * 12 * lora_width * lora_width, rows = 4 * 16;
  for (const auto& [base, bytes] :
       {std::pair("int8", numbers / 8 * 12), {"fp6", numbers / 8 * 10}}) {
    const auto packed = [&, base = base](const std::string& technique) {
      TrainOptions options = lora_run(technique);
      options.lora_init.clear();
      options.lora_base = base;
      options.lora_dropout = 0.1;
      return run(2, options);
    };
    const TrainResult plain = run(2, lora_run("ddp")), ddp = packed("ddp");
    for (const TrainResult* const result : {&ddp, &plain}) EXPECT_TRUE(theory_holds(*result));
    const auto &before = plain.ranks[0].peak_bytes, &now = ddp.ranks[0].peak_bytes;
    EXPECT_EQ(now.at("parameters"), before.at("parameters") - numbers * 8 + bytes);
    // A matrix of the mlp, and the dropped input of c_attn.
    EXPECT_EQ(now.at("activations"),
              before.at("activations") + (4 * lora_width + rows) * lora_width * 8);
    // Gathered for forward and for backward, as they are stored.
    const TrainResult fsdp = packed("fsdp"), whole = run(2, lora_run("fsdp"));
    EXPECT_TRUE(theory_holds(fsdp));
    EXPECT_EQ(fsdp.ranks[0].traffic.at("parameters").sent_bytes,
              whole.ranks[0].traffic.at("parameters").sent_bytes - 2 * (numbers * 8 - bytes) / 2);
  }
}

TEST(LoraTraffic, OfReplicasIsThatOfTheAdapters) {
  const TrainResult ddp = run(4, lora_run("ddp"));
  for (const RankRecord& record : ddp.ranks)
    EXPECT_EQ(record.traffic.at("gradients").sent_bytes, 2 * 3 * of_c_attn * 8 / 4);
  // Frozen parameters are gathered as before, and never reduced.
  const TrainResult full = run(2, frozen_run("fsdp")), fsdp = run(2, lora_run("fsdp"));
  EXPECT_EQ(fsdp.ranks[0].traffic.at("gradients").sent_bytes, of_c_attn * 8 / 2);
  EXPECT_EQ(fsdp.ranks[0].traffic.at("parameters").sent_bytes,
            full.ranks[0].traffic.at("parameters").sent_bytes + 2 * of_c_attn * 8 / 2);
}

// In the layers nothing more is sent, and one all-reduce less. Once a step, ranks add up the gradients
// of A of layers split by columns, and of B of layers split by rows.
TEST(LoraTraffic, OfSplitLayersIsThatOfPartialFactors) {
  TrainOptions options = lora_run("tp");
  options.lora_init.clear();
  options.lora_targets = "c_attn,c_proj,c_fc";
  const TrainResult full = run(2, frozen_run("tp")), result = run(2, options);
  const Count all_reduce = 8 * 16 * lora_width * 8;  // bytes that each of two ranks sends
  const Count partial = lora_layers * rank_of_lora * 4 * lora_width * 8;
  for (std::size_t i = 0; i < 2; ++i) {
    const auto &before = full.ranks[i].traffic, &now = result.ranks[i].traffic;
    EXPECT_EQ(now.at("layers forward"), before.at("layers forward"));
    EXPECT_EQ(now.at("layers backward").sent_bytes,
              before.at("layers backward").sent_bytes - all_reduce);
    EXPECT_EQ(now.at("shared gradients").sent_bytes, partial);
    EXPECT_FALSE(before.contains("shared gradients"));
  }
}

TEST(LoraPlans, ThatDoNotTrainAdaptersAreRefused) {
  const auto with = [](const std::string& technique, int ranks, auto change) {
    TrainOptions options = lora_run(technique);
    change(options);
    return refusal(ranks, options);
  };
  EXPECT_THAT(with("ps", 2, [](TrainOptions&) {}), HasSubstr("--lora with a parameter server"));
  EXPECT_THAT(with("ddp", 2, [](TrainOptions& o) { o.save = "x"; }), HasSubstr("--save-adapters"));
  EXPECT_THAT(with("fsdp", 2, [](TrainOptions& o) { o.offload = "optimizer"; }),
              HasSubstr("--lora with --offload"));
  EXPECT_THAT(with("ddp", 2, [](TrainOptions& o) { o.optimizer = "muon"; }),
              HasSubstr("--lora with an optimizer that steps matrices"));
  EXPECT_THAT(with("ddp", 2, [](TrainOptions& o) { o.lora_rank = 5; }), HasSubstr("--lora 5, and"));
  EXPECT_THAT(with("ddp", 2, [](TrainOptions& o) { o.lora_alpha = 5; }),
              HasSubstr("--lora-alpha 5, and"));
  EXPECT_THAT(with("ddp", 2, [](TrainOptions& o) { o.lora_dropout = 0.1; }),
              HasSubstr("--lora-dropout 0.1, and"));
  EXPECT_THAT(with("ddp", 2, [](TrainOptions& o) { o.lora_dropout = 1; }),
              HasSubstr("--lora-dropout"));
  EXPECT_THAT(with("ddp", 2, [](TrainOptions& o) { o.lora_base = "int4"; }),
              HasSubstr("--lora-base"));
  EXPECT_THAT(with("ddp", 2, [](TrainOptions& o) { o.rank_stabilized = true; }),
              HasSubstr("use_rslora false"));
  EXPECT_THAT(with("ddp", 2, [](TrainOptions& o) { o.lora_targets = "c_fc"; }),
              HasSubstr("--lora-targets c_fc, and"));
  EXPECT_THAT(with("ddp", 2, [](TrainOptions& o) { o.lora_targets = "c_attn,q_proj"; }),
              HasSubstr("'q_proj'"));
  EXPECT_THAT(with("ddp", 2, [](TrainOptions& o) { o.lora_targets = "c_fc,c_fc"; }),
              HasSubstr("twice"));
  EXPECT_THAT(with("ddp", 2,
                   [](TrainOptions& o) {
                     o.lora_init.clear();
                     o.lora_rank = 33;
                   }),
              HasSubstr("--lora 33 for matrices with 32 rows"));
  EXPECT_THAT(with("ddp", 2, [](TrainOptions& o) { o.model = "nano-moe", o.init = ""; }),
              HasSubstr("experts"));
}

}  // namespace
}  // namespace lockstep
