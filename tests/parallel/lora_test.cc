// Adapters under every plan: the reference run of another library, one rank's numbers, what ranks send
// and hold, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "models/gpt/adapter_files.h"
#include "models/gpt/merge_adapters.h"
#include "parallel/tags/with_tags.h"
#include "parallel/train/dry_run.h"
#include "tests/parallel/training.h"

namespace lockstep {
namespace {

using test::refusal;
using test::run;
using testing::HasSubstr;

const std::string reference = test::golden + "_lora";

// The reference run without its options of adapters.
TrainOptions frozen_run(const std::string& technique) {
  TrainOptions options = test::golden_run(technique);
  options.model = reference + "/config.json";
  options.init = reference + "/base.safetensors";
  options.data = reference + "/tokens.bin";
  options.steps = LOCKSTEP_THOROUGH ? 8 : 3;
  options.learning_rate = 0.002;
  options.weight_decay = 0.05;
  return options;
}

TrainOptions reference_run(const std::string& technique) {
  TrainOptions options = frozen_run(technique);
  options.lora_rank = 4;
  options.lora_alpha = 8;
  options.lora_targets = "c_attn";
  options.lora_init = reference + "/adapter_init";
  return options;
}

struct LoraCase {
  std::string name;
  int ranks;
  std::string technique;
  std::function<void(TrainOptions&)> change = [](TrainOptions&) {};

  TrainOptions with(TrainOptions options) const {
    change(options);
    return options;
  }
};

void cut(TrainOptions& o, int tp, int pp, int zero) {
  o.mesh_lengths[Axis::tp] = tp;
  o.mesh_lengths[Axis::pp] = pp;
  o.zero_stage = zero;
  o.micro_batches = 2;
}

std::vector<LoraCase> cases() {
  return {
      {"serial", 1, "serial"},
      {"ddp", 4, "ddp", [](TrainOptions& o) { o.micro_batches = 2; }},
      {"recomputed", 2, "ddp", [](TrainOptions& o) { o.recompute = "full"; }},
      {"attention_again", 2, "ulysses", [](TrainOptions& o) { o.recompute = "selective"; }},
      {"tp", 4, "tp"},
      {"tp_overlapped", 2, "tp", [](TrainOptions& o) { o.tensor_overlap = true; }},
      {"sp", 2, "sp"},
      {"sp_kept", 4, "sp", [](TrainOptions& o) { o.keep_gathered = true; }},
      {"sp_overlapped", 2, "sp", [](TrainOptions& o) { o.tensor_overlap = true; }},
      {"ring", 2, "ring-attention"},
      {"gathered", 2, "cp"},
      {"one_f_one_b", 4, "pipeline", [](TrainOptions& o) { o.micro_batches = 4; }},
      {"zb_h1", 2, "pipeline", [](TrainOptions& o) { o.micro_batches = 4, o.schedule = "zb-h1"; }},
      {"zb_v", 2, "pipeline", [](TrainOptions& o) { o.micro_batches = 4, o.schedule = "zb-v"; }},
      {"interleaved", 2, "pipeline",
       [](TrainOptions& o) { o.micro_batches = 4, o.schedule = "interleaved"; }},
      {"stages_again", 2, "pipeline",
       [](TrainOptions& o) { o.micro_batches = 4, o.recompute = "full"; }},
      {"zero1", 2, "zero", [](TrainOptions& o) { o.zero_stage = 1; }},
      {"zero2", 4, "zero", [](TrainOptions& o) { o.zero_stage = 2, o.micro_batches = 2; }},
      {"zero3", 3, "zero", [](TrainOptions& o) { o.zero_stage = 3; }},
      {"fsdp", 2, "fsdp", [](TrainOptions& o) { o.micro_batches = 2; }},
      {"rows", 3, "fsdp", [](TrainOptions& o) { o.sharding = "per-parameter"; }},
      {"hybrid", 4, "fsdp", [](TrainOptions& o) { o.replicas = 2; }},
      {"regrouped", 4, "fsdp", [](TrainOptions& o) { o.reshard_after_forward = "2"; }},
      {"mesh", 8, "3d", [](TrainOptions& o) { cut(o, 2, 2, 0), o.sequence_parallel = true; }},
      {"mesh_zero1", 8, "3d", [](TrainOptions& o) { cut(o, 2, 2, 1); }},
      {"mesh_zero3", 8, "3d", [](TrainOptions& o) { cut(o, 2, 2, 3); }},
  };
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
INSTANTIATE_TEST_SUITE_P(Plans, Lora, test::sampled(cases()),
                         [](const auto& test_info) { return test_info.param.name; });

// Hugging Face's GPT-2 with adapters of peft, in f64; it wrote the final ones in f32.
TEST_P(Lora, ReproducesTheReference) {
  const LoraCase& c = GetParam();
  TrainResult result;
  const std::vector<double> final =
      adapters_of(c.with(reference_run(c.technique)), c.ranks, result);
  EXPECT_TRUE(theory_holds(result));
  const auto expected = nlohmann::json::parse(std::ifstream(reference + "/expected.json"));
  ASSERT_EQ(std::ssize(result.steps), LOCKSTEP_THOROUGH ? 8 : 3);
  for (const StepRecord& step : result.steps) {
    EXPECT_NEAR(step.loss / expected["losses"][step.step].get<double>(), 1, 1e-10);
    EXPECT_NEAR(step.grad_norm / expected["grad_norms"][step.step].get<double>(), 1, 1e-10);
  }
  if (!LOCKSTEP_THOROUGH) return;
  const auto theirs = test::weights_of(reference + "/adapter_final/adapter_model.safetensors");
  ASSERT_EQ(final.size(), theirs.size());
  for (std::size_t i = 0; i < final.size(); ++i)
    ASSERT_EQ(static_cast<float>(final[i]), static_cast<float>(theirs[i])) << i;
}

// Adapters of all layers, which begin at random; and of some, so that backward ends elsewhere.
TEST_P(Lora, EqualsOneRankWhateverTheTargets) {
  const LoraCase& c = GetParam();
  for (const char* targets : {"c_attn,c_proj,c_fc", "mlp.c_proj", "attn.c_proj,c_fc"}) {
    SCOPED_TRACE(targets);
    const auto with_adapters = [&](TrainOptions options) {
      options.steps = 3;
      options.lora_rank = 3;
      options.lora_targets = targets;
      options.rank_stabilized = true;
      options.lora_rate_ratio = 4;
      return options;
    };
    TrainResult result, serial;
    const auto got = adapters_of(with_adapters(c.with(frozen_run(c.technique))), c.ranks, result);
    const auto expected = adapters_of(with_adapters(frozen_run("serial")), 1, serial);
    EXPECT_TRUE(theory_holds(result));
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
  const Plan plan = plan_of(options, c.ranks);
  if (c.technique == "serial") return;
  EXPECT_GT(check_tags_of(plan, {0, c.ranks - 1}), 100);
}

TEST_P(Lora, IsPredictedWithSixteenBits) {
  const LoraCase& c = GetParam();
  TrainOptions options = c.with(reference_run(c.technique));
  options.dtype = DType::bf16;
  options.steps = 2;
  EXPECT_TRUE(theory_holds(run(c.ranks, options)));
}

// r (in + out) parameters for each layer that has an adapter.
constexpr Count layers = 8, width = 32, rank = 4, of_c_attn = layers * rank * (width + 3 * width);

TEST(LoraMemory, IsThatOfTheAdapters) {
  const TrainResult full = run(2, frozen_run("ddp")), result = run(2, reference_run("ddp"));
  for (const RankRecord& record : result.ranks) {
    EXPECT_EQ(record.peak_bytes.at("gradients"), of_c_attn * 8);
    EXPECT_EQ(record.peak_bytes.at("optimizer"), of_c_attn * 16);
    EXPECT_EQ(record.peak_bytes.at("parameters"),
              full.ranks[0].peak_bytes.at("parameters") + of_c_attn * 8);
    // Of each block, the inputs of c_fc and of the mlp's c_proj are not kept.
    const Count rows = 4 * 16, not_kept = layers * rows * 5 * width + rows * width;
    const Count shared = rows * (rank + width + 4 * width);
    EXPECT_EQ(record.peak_bytes.at("activations"),
              full.ranks[0].peak_bytes.at("activations") + (shared - not_kept) * 8);
  }
}

TEST(LoraTraffic, OfReplicasIsThatOfTheAdapters) {
  const TrainResult ddp = run(4, reference_run("ddp"));
  for (const RankRecord& record : ddp.ranks)
    EXPECT_EQ(record.traffic.at("gradients").sent_bytes, 2 * 3 * of_c_attn * 8 / 4);
  // Frozen parameters are gathered as before, and never reduced.
  const TrainResult full = run(2, frozen_run("fsdp")), fsdp = run(2, reference_run("fsdp"));
  EXPECT_EQ(fsdp.ranks[0].traffic.at("gradients").sent_bytes, of_c_attn * 8 / 2);
  EXPECT_EQ(fsdp.ranks[0].traffic.at("parameters").sent_bytes,
            full.ranks[0].traffic.at("parameters").sent_bytes + 2 * of_c_attn * 8 / 2);
}

// In the layers nothing more is sent, and one all-reduce less. Once a step, ranks add up the gradients
// of A of layers split by columns, and of B of layers split by rows.
TEST(LoraTraffic, OfSplitLayersIsThatOfPartialFactors) {
  TrainOptions options = reference_run("tp");
  options.lora_init.clear();
  options.lora_targets = "c_attn,c_proj,c_fc";
  const TrainResult full = run(2, frozen_run("tp")), result = run(2, options);
  const Count all_reduce = 8 * 16 * width * 8;  // bytes that each of two ranks sends
  const Count partial = layers * rank * 4 * width * 8;
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
    TrainOptions options = reference_run(technique);
    change(options);
    return refusal(ranks, options);
  };
  EXPECT_THAT(with("ps", 2, [](TrainOptions&) {}), HasSubstr("--lora with a parameter server"));
  EXPECT_THAT(with("ddp", 2, [](TrainOptions& o) { o.save = "x"; }), HasSubstr("--save-adapters"));
  EXPECT_THAT(with("ddp", 2, [](TrainOptions& o) { o.checkpoint = "x"; }),
              HasSubstr("--lora with checkpoints"));
  EXPECT_THAT(with("fsdp", 2, [](TrainOptions& o) { o.offload = "optimizer"; }),
              HasSubstr("--lora with --offload"));
  EXPECT_THAT(with("ddp", 2, [](TrainOptions& o) { o.lora_rank = 5; }), HasSubstr("--lora 5, and"));
  EXPECT_THAT(with("ddp", 2, [](TrainOptions& o) { o.lora_alpha = 5; }),
              HasSubstr("--lora-alpha 5, and"));
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
