// The model benchmark times exactly the products of a step, and their operations match the closed
// form.
#include "bench/techniques/model.h"

#include <gtest/gtest.h>

#include "models/gpt/gpt.h"

namespace lockstep {
namespace {

TEST(ProductsOfStep, AreThreeForEachWeightThatIsMultiplied) {
  for (const char* preset : {"nano", "small"}) {
    const GptConfig config = GptConfig::preset(preset);
    Ledger ledger;
    Gpt model(config, host_backend(), DType::f32, ledger);
    Count weights = 0;
    for (const Parameter& parameter : model.parameters().list())
      if (parameter.decays() && parameter.name != "wpe.weight") weights += parameter.count;

    constexpr Count tokens = 96;
    double flops = 0;
    for (const Product& product : products_of_step(config, tokens))
      flops += static_cast<double>(product.times) * product.flops();
    EXPECT_EQ(flops, 6.0 * static_cast<double>(weights * tokens)) << preset;
  }
}

// A token is multiplied by the weights of K of E experts, whether or not these can have equally many.
TEST(ProductsOfStep, AreThoseOfTheChosenExperts) {
  GptConfig config = GptConfig::preset("nano-moe");
  for (const int shared : {0, 2})
    for (const Count tokens : {96, 97}) {
      config.experts.shared = shared;
      Ledger ledger;
      Gpt model(config, host_backend(), DType::f32, ledger);
      double weights = 0;
      for (const Parameter& parameter : model.parameters().list())
        if (parameter.decays() && parameter.name != "wpe.weight")
          weights += static_cast<double>(parameter.count) *
                     (parameter.name.find(".experts.") == std::string::npos
                          ? 1
                          : static_cast<double>(config.experts.per_token) /
                                static_cast<double>(config.experts.number));
      double flops = 0, rows_of_experts = 0;
      for (const Product& product : products_of_step(config, tokens)) {
        flops += static_cast<double>(product.times) * product.flops();
        EXPECT_GT(product.times * product.m * product.n * product.k, 0) << product.name;
        if (product.name.starts_with("expert") && product.name.ends_with("expand forward"))
          rows_of_experts += static_cast<double>(product.times * product.m);
      }
      EXPECT_DOUBLE_EQ(flops, 6.0 * weights * static_cast<double>(tokens)) << shared;
      EXPECT_EQ(rows_of_experts,
                static_cast<double>(tokens * config.experts.per_token *
                                    config.experts.layers_among(0, config.layers)));
    }
}

TEST(StepFlops, AddCausalAttention) {
  const GptConfig nano = GptConfig::preset("nano");
  // 6 x (4 x 12 x 128^2 + 256 x 128) x 768 + 6 x 4 x 128 x 64 x 768
  EXPECT_EQ(step_flops(nano, 12, 64), 6.0 * 819'200 * 768 + 6.0 * 4 * 128 * 64 * 768);
}

}  // namespace
}  // namespace lockstep
