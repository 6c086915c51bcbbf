// Weights and configurations: saved ones can be read again, those of another model are refused.
#include <gtest/gtest.h>

#include "models/gpt_config.h"
#include "models/safetensors.h"
#include "models/weights.h"
#include "tests/models/files.h"

namespace lockstep {
namespace {

// The parameters of a model without the model.
struct Model {
  explicit Model(DType dtype) : parameters(dtype, ledger) {
    parameters.add({.name = "wte.weight", .shape = {3, 2}});
    parameters.add({.name = "h.0.ln_1.bias", .shape = {2}});
    parameters.allocate();
  }
  Ledger ledger;
  Parameters parameters;
};

void save(const std::string& path, const Parameters& parameters, const GptConfig& config) {
  WeightsFile file(path, parameters.list(), parameters.dtype(), config);
  file.write(parameters, parameters.values());
  file.finish();
}

TEST_F(Files, WeightsSurviveARoundTripBetweenTypes) {
  Model saved(DType::f32), loaded(DType::f64);
  for (int i = 0; i < 8; ++i)
    host_span<float>(saved.parameters.values())[i] = 0.1F * static_cast<float>(i);
  save(path("w.safetensors"), saved.parameters, GptConfig::preset("nano"));
  WeightsReader(path("w.safetensors"), saved.parameters.list()).read(loaded.parameters);
  for (int i = 0; i < 8; ++i)
    EXPECT_EQ(host_span<double>(loaded.parameters.values())[i],
              host_span<float>(saved.parameters.values())[i]);
  EXPECT_EQ(read_gpt_config(path("config.json")).width, 128);
  expect_refused([&] { save(path("config.json"), saved.parameters, {}); },
                 "written next to the weights");
}

TEST_F(Files, WeightsOfAnotherModelAreRefused) {
  std::vector<float> values = {1, 2, 3, 4, 5, 6}, others = {1, 2, 3, 4, 5, 7}, two = {8, 9};
  const NamedSlice wte{"transformer.wte.weight", {3, 2}, host_slice(std::span(values))};
  const NamedSlice bias{"transformer.h.0.ln_1.bias", {2}, host_slice(std::span(two))};
  const NamedSlice mask{"h.0.attn.bias", {1, 2}, host_slice(std::span(two))};
  const auto load = [&](const std::vector<NamedSlice>& tensors) {
    Model model(DType::f32);
    write_safetensors(path("w"), tensors);
    WeightsReader(path("w"), model.parameters.list()).read(model.parameters);
    EXPECT_EQ(host_span<float>(model.parameters.value(1))[1], 9);
  };
  load({wte, bias, mask, {"lm_head.weight", {3, 2}, wte.data}});
  expect_refused([&] { load({wte}); }, "no tensor 'h.0.ln_1.bias'");
  expect_refused([&] { load({wte, bias, {"x", {2}, bias.data}}); }, "no parameter 'x'");
  expect_refused(
      [&] {
        load({{"wte.weight", {2, 3}, wte.data}, bias});
      },
      "shape [2, 3], the model's has [3, 2]");
  expect_refused([&] { load({wte, {"wte.weight", {3, 2}, wte.data}, bias}); }, "occurs twice");
  expect_refused(
      [&] {
        load({wte, bias, {"lm_head.weight", {3, 2}, host_slice(std::span(others))}});
      },
      "not equal to 'wte.weight'");
}

TEST_F(Files, ConfigsAreChecked) {
  const auto read = [&](const std::string& changed) {
    return read_gpt_config(write(
        "c",
        R"({"n_layer":2,"n_head":2,"n_embd":8,"n_positions":4,"vocab_size":9)" + changed + "}"));
  };
  EXPECT_EQ(read("").parameter_count(), 9 * 8 + 4 * 8 + 2 * (12 * 64 + 13 * 8) + 16);
  EXPECT_EQ(read(R"(,"n_inner":null,"resid_pdrop":0.1)").context, 4);
  const std::pair<const char*, const char*> refused[] = {
      {R"(,"n_layer":0)", "\"n_layer\" is 0"},
      {R"(,"n_layer":-1)", "\"n_layer\" is -1"},
      {R"(,"n_layer":2.0)", "\"n_layer\" is 2.0"},
      {R"(,"n_layer":"2")", "\"n_layer\" is \"2\""},
      {R"(,"n_layer":4294967298)", "\"n_layer\" is 4294967298"},
      {R"(,"n_layer":100000)", "100000 layers"},
      {R"(,"n_embd":200000)", "200000 width"},
      {R"(,"vocab_size":20000000)", "20000000 vocabulary"},
      {R"(,"n_head":3)", "a width of 8 in 3 heads"},
      {R"(,"layer_norm_epsilon":0)", "layer_norm_epsilon of 0"},
      {R"(,"layer_norm_epsilon":"x")", "is not a number"},
      {R"(,"activation_function":"relu")", "is \"relu\""},
      {R"(,"tie_word_embeddings":false)", "is false"},
      {R"(,"model_type":"llama")", "is \"llama\""},
      {R"(,"n_inner":31)", "\"n_inner\" is 31"},
      {R"(,"scale_attn_weights":false)", "\"scale_attn_weights\" is false"},
      {"}", "not a JSON object"},
  };
  for (const auto& [changed, message] : refused) expect_refused([&] { read(changed); }, message);
  expect_refused([&] { read_gpt_config(write("c", R"({"n_layer":2})")); }, "no \"n_head\"");
  expect_refused([&] { GptConfig::preset("huge"); }, "no model 'huge'");
}

}  // namespace
}  // namespace lockstep
