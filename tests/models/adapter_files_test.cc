// Adapters in files: round trips, files of another kind, and the sum with the weights.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "models/gpt/adapter_files.h"
#include "models/gpt/merge_adapters.h"
#include "tests/golden/golden.h"
#include "tests/models/adapted.h"

namespace lockstep {
namespace {

using test::Adapted;
using test::all_layers;
using test::small_model;
using test::some_batch;
using test::values_of;
using testing::HasSubstr;
namespace fs = std::filesystem;

class AdapterFiles : public testing::Test {
 protected:
  AdapterFiles() {
    std::string name = (fs::temp_directory_path() / "lockstep-lora-XXXXXX").string();
    folder_ = mkdtemp(name.data());
  }
  ~AdapterFiles() override { fs::remove_all(folder_); }

  // adapter_config.json of the reference run, changed.
  template <typename Change>
  std::string refused(Change change) {
    auto config = nlohmann::json::parse(
        std::ifstream(test::golden_folder() + "_lora/adapter_init/adapter_config.json"));
    change(config);
    const std::string path = folder_ / "adapter_config.json";
    write_file(path, config.dump());
    try {
      const LoraConfig lora = read_lora_config(path);
      return lora.targets.front();
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_status(), 2);
      return error.what();
    }
  }
  fs::path folder_;
};

TEST_F(AdapterFiles, ComeBackAsTheyWere) {
  LoraConfig lora = all_layers();
  lora.dropout = 0.25;
  Adapted adapted(lora);
  const std::vector<Parameter> whole = whole_adapters(small_model, lora);
  AdapterWriter writer(whole);
  writer.take(adapted.model.parameters(), adapted.model.parameters().values());
  writer.write(folder_, DType::f64, lora);
  const LoraConfig there = read_lora_config(adapter_config_path(folder_));
  EXPECT_EQ(there.rank, 3);
  EXPECT_EQ(there.alpha, 5);
  EXPECT_TRUE(there.rank_stabilized);
  EXPECT_EQ(there.dropout, 0.25);
  EXPECT_EQ(there.targets, lora.targets);
  Adapted other(lora);
  other.model.parameters().values().device->zero(other.model.parameters().values());
  AdapterReader(folder_, whole).read(other.model.parameters());
  EXPECT_TRUE(std::ranges::equal(host_span<double>(other.model.parameters().values()),
                                 host_span<double>(adapted.model.parameters().values())));
  // B lies there as [out, r].
  const SafetensorsFile file(folder_ / "adapter_model.safetensors");
  const auto b =
      std::ranges::find(file.tensors(), "base_model.model.transformer.h.1.mlp.c_fc.lora_B.weight",
                        &TensorEntry::name);
  ASSERT_NE(b, file.tensors().end());
  EXPECT_EQ(b->shape, (std::vector<Count>{32, 3}));
  std::vector<double> values(96);
  file.read(*b, host_slice(std::span(values)));
  EXPECT_EQ(values[1], values_of(adapted.model.parameters(), "h.1.mlp.c_fc.lora_B")[32]);
}

TEST_F(AdapterFiles, OfAnotherKindAreRefused) {
  using nlohmann::json;
  EXPECT_EQ(refused([](json&) {}), "c_attn");
  const auto refused_with = [&](const char* key, const json& value) {
    return refused([&](json& config) { config[key] = value; });
  };
  EXPECT_THAT(refused_with("use_dora", true), HasSubstr("\"use_dora\" is true"));
  EXPECT_THAT(refused_with("bias", "all"), HasSubstr("\"bias\""));
  EXPECT_THAT(refused_with("rank_pattern", {{"c_attn", 8}}), HasSubstr("\"rank_pattern\""));
  EXPECT_THAT(refused_with("modules_to_save", {"lm_head"}), HasSubstr("\"modules_to_save\""));
  EXPECT_THAT(refused_with("fan_in_fan_out", false), HasSubstr("\"fan_in_fan_out\" is false"));
  EXPECT_THAT(refused([](json& config) { config.erase("fan_in_fan_out"); }),
              HasSubstr("no \"fan_in_fan_out\""));
  EXPECT_THAT(refused_with("use_something_new", true), HasSubstr("\"use_something_new\""));
  EXPECT_THAT(refused_with("lora_dropout", 1.0), HasSubstr("\"lora_dropout\""));
  EXPECT_THAT(refused_with("peft_type", "IA3"), HasSubstr("not the configuration of a LoRA"));
  EXPECT_THAT(refused_with("r", 0), HasSubstr("\"r\""));
  EXPECT_THAT(refused_with("lora_alpha", "much"), HasSubstr("\"lora_alpha\""));
  EXPECT_THAT(refused_with("target_modules", "c_.*"), HasSubstr("\"target_modules\""));
  EXPECT_THAT(refused_with("target_modules", {"c_attn", "q_proj"}), HasSubstr("'q_proj'"));
  EXPECT_THAT(refused_with("target_modules", {"c_attn", "c_attn"}), HasSubstr("twice"));
}

TEST_F(AdapterFiles, OfAnotherModelAreRefused) {
  const std::string there = test::golden_folder() + "_lora/adapter_init";
  const LoraConfig lora = read_lora_config(adapter_config_path(there));
  const auto refused_for = [&](GptConfig model, const LoraConfig& config) -> std::string {
    const std::vector<Parameter> whole = whole_adapters(model, config);
    try {
      const AdapterReader reader(there, whole);
      return "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_status(), 2);
      return error.what();
    }
  };
  const GptConfig model = read_gpt_config(test::golden_folder() + "_lora/config.json");
  EXPECT_EQ(refused_for(model, lora), "accepted");
  GptConfig deeper = model, wider = model;
  ++deeper.layers;
  wider.width = 64;
  EXPECT_THAT(refused_for(deeper, lora), HasSubstr("no tensor"));
  EXPECT_THAT(refused_for(wider, lora), HasSubstr("has shape [4, 32]"));
  LoraConfig other = lora;
  other.targets = {"c_fc"};
  EXPECT_THAT(refused_for(model, other), HasSubstr("no layer has the adapter"));
  other = lora;
  other.rank = 5;
  EXPECT_THAT(refused_for(model, other), HasSubstr("the model's has [5, 32]"));
}

// The merged weights give the same logits without adapters.
TEST_F(AdapterFiles, MergedWeightsComputeTheSame) {
  const LoraConfig lora = all_layers();
  Adapted adapted(lora);
  Ledger ledger;
  WeightsFile base(folder_ / "base.safetensors", adapted.model.frozen().list(), DType::f64,
                   small_model);
  base.write(adapted.model.frozen(), adapted.model.frozen().values());
  base.finish();
  const std::vector<Parameter> whole = whole_adapters(small_model, lora);
  AdapterWriter writer(whole);
  writer.take(adapted.model.parameters(), adapted.model.parameters().values());
  writer.write(folder_, DType::f64, lora);
  merge_adapters(small_model, folder_ / "base.safetensors", folder_, folder_ / "merged.safetensors",
                 DType::f64);
  Gpt merged(small_model, host_backend(), DType::f64, ledger),
      alone(small_model, host_backend(), DType::f64, ledger);
  WeightsReader(folder_ / "merged.safetensors", merged.parameters().list())
      .read(merged.parameters());
  WeightsReader(folder_ / "base.safetensors", alone.parameters().list()).read(alone.parameters());
  const double expected = adapted.model.loss_sum(some_batch());
  EXPECT_NEAR(merged.loss_sum(some_batch()), expected, 1e-12);
  EXPECT_GT(std::abs(alone.loss_sum(some_batch()) - expected), 1e-3);
}

}  // namespace
}  // namespace lockstep
