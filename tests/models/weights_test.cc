// Weights and configurations: saved ones can be read again, those of a different model are refused.
#include <gtest/gtest.h>

#include "models/gpt/safetensors.h"
#include "models/gpt/weights.h"
#include "models/gpt_config.h"
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

TEST_F(Files, ShardedWeightsAndFoldersAreRead) {
  std::vector<float> six = {1, 2, 3, 4, 5, 6}, two = {8, 9};
  const NamedSlice wte{"wte.weight", {3, 2}, host_slice(std::span(six))};
  const NamedSlice bias{"h.0.ln_1.bias", {2}, host_slice(std::span(two))};
  const auto load = [&](const std::string& from) {
    Model model(DType::f32);
    WeightsReader(from, model.parameters.list()).read(model.parameters);
    EXPECT_EQ(host_span<float>(model.parameters.value(0))[5], 6);
    EXPECT_EQ(host_span<float>(model.parameters.value(1))[1], 9);
  };
  const auto index = [&](const std::string& shard_of_bias) {
    return write("model.safetensors.index.json",
                 R"({"metadata":{"total_size":32},"weight_map":{"wte.weight":"a.safetensors",)"
                 R"("h.0.ln_1.bias":)" +
                     shard_of_bias + "}}");
  };
  const std::string folder = folder_.string();
  expect_refused([&] { load(folder); }, "has neither model.safetensors nor");
  write_safetensors(path("a.safetensors"), {wte});
  expect_refused([&] { load(index("\"b.safetensors\"")); }, "b.safetensors");
  write_safetensors(path("b.safetensors"), {bias});
  load(index("\"b.safetensors\""));
  load(folder);
  expect_refused([&] { load(index("\"a.safetensors\"")); },
                 "a.safetensors: no tensor 'h.0.ln_1.bias', which");
  expect_refused([&] { load(index("\"../b.safetensors\"")); }, "not a file next to the index");
  expect_refused([&] { load(index("7")); }, "is 7, not a file");
  expect_refused([&] { load(write("other.json", "{}")); }, "no object \"weight_map\"");
  // One of other names would be a guess.
  fs::remove(path("model.safetensors.index.json"));
  expect_refused([&] { load(folder); }, "but 2 other .safetensors files, such as a.safetensors");
  write_safetensors(path("model.safetensors"), {wte, bias});
  load(folder);
  for (const char* name : {"a.safetensors", "b.safetensors"}) fs::remove(path(name));
  fs::rename(path("model.safetensors"), path("final.safetensors"));
  load(folder);
}

TEST_F(Files, ConfigsComeBackFromTheirText) {
  const auto parsed = [](const std::string& more) {
    return parse_gpt_config(
        R"({"n_layer":2,"n_head":4,"n_embd":8,"n_positions":4,"vocab_size":50257)" + more + "}",
        "c");
  };
  const auto text = [&](const std::string& more) { return gpt_config_json(parsed(more)); };
  for (const char* more :
       {R"(,"resid_pdrop":0.1,"embd_pdrop":0.2,"attn_pdrop":0.3)", R"(,"num_key_value_heads":2)",
        R"(,"bos_token_id":7,"eos_token_id":[8,9])", R"(,"eos_token_id":null)"})
    EXPECT_EQ(gpt_config_json(parse_gpt_config(text(more), "c")), text(more)) << more;
  EXPECT_EQ(parsed(R"(,"embd_pdrop":0.2,"resid_pdrop":0.1)").dropout,
            (DropoutRates{.residual = 0.1, .embedding = 0.2, .attention = 0.1}));
  EXPECT_EQ(parsed(R"(,"resid_pdrop":0.1)").dropout, (DropoutRates{0.1, 0.1, 0.1}));
  EXPECT_EQ(parsed("").dropout, DropoutRates());
  // GPT-2's special tokens, where the vocabulary has them.
  EXPECT_NE(text("").find(R"("eos_token_id": 50256)"), std::string::npos);
  EXPECT_NE(text(R"(,"bos_token_id":null)").find(R"("bos_token_id": null)"), std::string::npos);
  EXPECT_NE(gpt_config_json(GptConfig::preset("nano")).find(R"("eos_token_id": null)"),
            std::string::npos);
  // Hugging Face's GPT-2 cannot have fewer key/value heads than query heads.
  const std::string grouped = text(R"(,"num_key_value_heads":2)");
  EXPECT_NE(grouped.find(R"("model_type": "gpt2-gqa")"), std::string::npos);
  EXPECT_EQ(grouped.find("GPT2LMHeadModel"), std::string::npos);
  EXPECT_NE(warning_of_saved("w", parsed(R"(,"num_key_value_heads":2)")).find("4), this model 2"),
            std::string::npos);
  EXPECT_EQ(warning_of_saved("w", parsed(R"(,"num_key_value_heads":4)")), "");
  EXPECT_NE(text(R"(,"num_key_value_heads":4)").find(R"("model_type": "gpt2")"), std::string::npos);
  // Written before that type had its name.
  EXPECT_EQ(parsed(R"(,"model_type":"gpt2","num_key_value_heads":2)").kv_heads, 2);

  EXPECT_TRUE(is_same_model(parsed(""), parsed(R"(,"resid_pdrop":0.1,"eos_token_id":3)")));
  EXPECT_TRUE(is_same_model(parsed(""), parsed(R"(,"num_key_value_heads":4)")));
  EXPECT_FALSE(is_same_model(parsed(""), parsed(R"(,"num_key_value_heads":2)")));
  EXPECT_FALSE(is_same_model(parsed(""), parsed(R"(,"layer_norm_epsilon":1e-6)")));

  write("config.json", text(""));
  EXPECT_EQ(gpt_config(folder_.string()).vocabulary, 50257);
  fs::remove(path("config.json"));
  expect_refused([&] { gpt_config(folder_.string()); }, "has no config.json");
}

TEST_F(Files, ConfigsAreChecked) {
  // With `changed` in place of the key of its name, if there is one.
  const auto read = [&](const std::string& changed) {
    std::string text;
    for (const std::string entry : {R"("n_layer":2)", R"("n_head":2)", R"("n_embd":8)",
                                    R"("n_positions":4)", R"("vocab_size":9)"})
      if (!changed.starts_with("," + entry.substr(0, entry.find(':'))))
        text += (text.empty() ? "" : ",") + entry;
    return read_gpt_config(write("c", "{" + text + changed + "}"));
  };
  EXPECT_EQ(read("").parameter_count(), 9 * 8 + 4 * 8 + 2 * (12 * 64 + 13 * 8) + 16);
  // As Hugging Face writes it.
  EXPECT_EQ(read(R"(,"n_inner":null,"resid_pdrop":0.1,"embd_pdrop":0.1,"attn_pdrop":0.1,"n_ctx":4,)"
                 R"("initializer_range":0.02,"reorder_and_upcast_attn":true,"summary_type":"mean",)"
                 R"("activation_function":"gelu_pytorch_tanh","tie_word_embeddings":true,)"
                 R"("scale_attn_weights":true,"scale_attn_by_inverse_layer_idx":false,)"
                 R"("pruned_heads":{},"use_cache":true,"hidden_size":8,"torch_dtype":"float32")")
                .context,
            4);
  const std::pair<const char*, const char*> refused[] = {
      {R"(,"n_layer":0)", "\"n_layer\" is 0"},
      {R"(,"n_layer":-1)", "\"n_layer\" is -1"},
      {R"(,"n_layer":2.0)", "\"n_layer\" is 2.0"},
      {R"(,"n_layer":"2")", "\"n_layer\" is \"2\""},
      {R"(,"n_layer":4294967298)", "\"n_layer\" is 4294967298"},
      {R"(,"n_layer":100000)", "100000 layers"},
      {R"(,"n_embd":200000)", "200000 width"},
      {R"(,"vocab_size":20000000)", "20000000 vocabulary"},
      {R"(,"n_head":3)", "the width 8 is not divisible by 3 heads"},
      {R"(,"layer_norm_epsilon":0)", "layer_norm_epsilon of 0"},
      {R"(,"layer_norm_epsilon":"x")", "is not a number"},
      {R"(,"activation_function":"relu")", "is \"relu\""},
      {R"(,"tie_word_embeddings":false)", "is false"},
      {R"(,"model_type":"llama")", "is \"llama\""},
      {R"(,"n_inner":31)", "\"n_inner\" is 31"},
      {R"(,"scale_attn_weights":false)", "\"scale_attn_weights\" is false"},
      {R"(,"activation_function":"gelu")", "is \"gelu\""},
      {R"(,"scale_attn_by_inverse_layer_idx":true)", "is true"},
      {R"(,"add_cross_attention":true)", "\"add_cross_attention\" is true"},
      {R"(,"n_ctx":8)", "\"n_ctx\" is 8"},
      {R"(,"hidden_size":16)", "\"hidden_size\" is 16"},
      {R"(,"num_attention_heads":4)", "\"num_attention_heads\" is 4"},
      {R"(,"initializer_range":0.01)", "\"initializer_range\" is 0.01"},
      {R"(,"pruned_heads":{"0":[1]})", "\"pruned_heads\" is {\"0\":[1]}"},
      {R"(,"quantization_config":{"bits":4})", "\"quantization_config\" is {\"bits\":4}"},
      {R"(,"rope_scaling":{"factor":2})", "\"rope_scaling\" is"},
      {R"(,"resid_pdrop":1)", "\"resid_pdrop\" is 1"},
      {R"(,"attn_pdrop":"x")", "\"attn_pdrop\" is \"x\""},
      {R"(,"eos_token_id":"x")", "\"eos_token_id\" is \"x\""},
      {R"(,"model_type":"gpt2-gqa")", "no \"num_key_value_heads\""},
      {R"(,"n_experts":4)", "no \"experts_per_token\""},
      {R"(,"router_aux_loss_coef":0.0)", "\"router_aux_loss_coef\" is 0.0, and no \"n_experts\""},
      {R"(,"n_layer":2,"n_layer":2)", "the name \"n_layer\" twice"},
      {R"(,"x":{"a":1,"a":1})", "the name \"a\" twice"},
      {"}", "not a JSON object"},
  };
  for (const auto& [changed, message] : refused) expect_refused([&] { read(changed); }, message);
  expect_refused([&] { read_gpt_config(write("c", R"({"n_layer":2})")); }, "no \"n_head\"");
  expect_refused([&] { GptConfig::preset("huge"); }, "no model 'huge'");
}

}  // namespace
}  // namespace lockstep
