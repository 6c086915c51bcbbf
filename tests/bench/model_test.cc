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

TEST(StepFlops, AddCausalAttention) {
  const GptConfig nano = GptConfig::preset("nano");
  // 6 x (4 x 12 x 128^2 + 256 x 128) x 768 + 6 x 4 x 128 x 64 x 768
  EXPECT_EQ(step_flops(nano, 12, 64), 6.0 * 819'200 * 768 + 6.0 * 4 * 128 * 64 * 768);
}

}  // namespace
}  // namespace lockstep
