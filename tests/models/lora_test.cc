// Low-rank adapters on one device: their gradients and first steps.
#include <gtest/gtest.h>

#include <cmath>

#include "models/optimizers/optimizers.h"
#include "tests/models/adapted.h"

namespace lockstep {
namespace {

using test::Adapted;
using test::all_layers;
using test::gradients_of;
using test::small_model;
using test::some_batch;
using test::values_of;

std::vector<std::string> adapted_layers(const Parameters& parameters) {
  std::vector<std::string> names;
  for (const Parameter& parameter : parameters.list())
    if (parameter.name.ends_with(".lora_A"))
      names.push_back(parameter.name.substr(0, parameter.name.size() - 7));
  return names;
}

class Subsets : public testing::TestWithParam<std::vector<std::string>> {};
INSTANTIATE_TEST_SUITE_P(Targets, Subsets,
                         testing::Values(std::vector<std::string>{"c_attn", "c_proj", "c_fc"},
                                         std::vector<std::string>{"c_attn"},
                                         std::vector<std::string>{"c_proj"},
                                         std::vector<std::string>{"attn.c_proj"},
                                         std::vector<std::string>{"c_fc"},
                                         std::vector<std::string>{"mlp.c_proj"},
                                         std::vector<std::string>{"c_fc", "attn.c_attn"}));

// dA = s (dW B)^T and dB^T = s A dW, where dW is the gradient of the whole matrix W + s (B A)^T in a
// model without adapters.
TEST_P(Subsets, GradientsFollowFromThoseOfTheWholeMatrix) {
  LoraConfig lora = all_layers();
  lora.targets = GetParam();
  Adapted adapted(lora);
  Parameters& adapters = adapted.model.parameters();
  const std::vector<std::string> layers = adapted_layers(adapters);
  Ledger ledger;
  Gpt merged(small_model, host_backend(), DType::f64, ledger);
  for (const Parameter& parameter : merged.parameters().list())
    std::ranges::copy(values_of(adapted.model.frozen(), parameter.name),
                      values_of(merged.parameters(), parameter.name).begin());
  const double s = 5 / std::sqrt(3.0);
  const auto r = static_cast<std::size_t>(lora.rank);
  for (const std::string& layer : layers) {
    const std::span<double> a = values_of(adapters, layer + ".lora_A"),
                            b = values_of(adapters, layer + ".lora_B"),
                            w = values_of(merged.parameters(), layer + ".weight");
    const std::size_t in = a.size() / r, out = b.size() / r;
    for (std::size_t i = 0; i < in; ++i)
      for (std::size_t o = 0; o < out; ++o)
        for (std::size_t k = 0; k < r; ++k) w[i * out + o] += s * a[k * in + i] * b[k * out + o];
  }
  const Batch batch = some_batch();
  const double loss = adapted.model.forward_backward(batch, 16);
  EXPECT_NEAR(loss, merged.forward_backward(batch, 16), 1e-13);
  for (const std::string& layer : layers) {
    SCOPED_TRACE(layer);
    const std::span<double> a = values_of(adapters, layer + ".lora_A"),
                            b = values_of(adapters, layer + ".lora_B"),
                            da = gradients_of(adapters, layer + ".lora_A"),
                            db = gradients_of(adapters, layer + ".lora_B"),
                            dw = gradients_of(merged.parameters(), layer + ".weight");
    const std::size_t in = a.size() / r, out = b.size() / r;
    for (std::size_t k = 0; k < r; ++k) {
      for (std::size_t i = 0; i < in; ++i) {
        double expected = 0;
        for (std::size_t o = 0; o < out; ++o) expected += s * dw[i * out + o] * b[k * out + o];
        EXPECT_NEAR(da[k * in + i], expected, 1e-13);
      }
      for (std::size_t o = 0; o < out; ++o) {
        double expected = 0;
        for (std::size_t i = 0; i < in; ++i) expected += s * a[k * in + i] * dw[i * out + o];
        EXPECT_NEAR(db[k * out + o], expected, 1e-13);
      }
    }
  }
}

TEST_P(Subsets, HasAnAdapterForEachLayerThatATargetEnds) {
  LoraConfig lora = all_layers();
  lora.targets = GetParam();
  std::size_t expected = 0;
  for (const char* layer : {"attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"})
    for (const std::string& target : lora.targets) {
      const std::string name(layer), short_name = name.substr(name.find('.') + 1);
      expected += target == name || target == short_name ? 2 : 0;
    }
  EXPECT_EQ(adapted_layers(Adapted(lora).model.parameters()).size(), expected);
}

TEST(Lora, HasFewParameters) {
  for (const auto& [preset, rank, count] : {std::tuple{"nano", 4, 32'768},
                                            {"nano", 8, 65'536},
                                            {"nano", 16, 131'072},
                                            {"small", 8, 294'912}}) {
    const GptConfig model = gpt_config(preset);
    LoraConfig lora = all_layers();
    lora.rank = rank;
    EXPECT_EQ(lora.parameter_count(model), count);
    Count registered = 0;
    for (const Parameter& adapter : whole_adapters(model, lora)) registered += adapter.count;
    EXPECT_EQ(registered, count);
  }
}

TEST(Lora, BeginsWithTheModelAsItIs) {
  const LoraConfig lora = all_layers();
  Ledger ledger;
  Gpt base(small_model, host_backend(), DType::f64, ledger),
      model(small_model, host_backend(), DType::f64, ledger, true, {.lora = lora});
  base.initialize(3);
  initialize_weights(model.frozen(), model.frozen().list(), small_model.layers, 3);
  initialize_weights(model.parameters(), whole_adapters(small_model, lora), small_model.layers, 3,
                     100);
  for (const std::string& layer : adapted_layers(model.parameters())) {
    const std::span<double> a = values_of(model.parameters(), layer + ".lora_A");
    const double bound = 1 / std::sqrt(static_cast<double>(a.size()) / 3);
    const double largest =
        std::abs(*std::ranges::max_element(a, {}, [](double value) { return std::abs(value); }));
    EXPECT_LE(largest, bound);
    EXPECT_GT(largest, 0.7 * bound);
  }
  const Batch batch = some_batch();
  EXPECT_EQ(model.forward_backward(batch, 16), base.forward_backward(batch, 16));
  const std::span<double> before = host_span<double>(model.frozen().values());
  const std::vector<double> frozen(before.begin(), before.end());
  for (const std::string& layer : adapted_layers(model.parameters())) {
    SCOPED_TRACE(layer);
    for (const double gradient : gradients_of(model.parameters(), layer + ".lora_A"))
      EXPECT_EQ(gradient, 0);
    double square = 0;
    for (const double gradient : gradients_of(model.parameters(), layer + ".lora_B"))
      square += gradient * gradient;
    EXPECT_GT(square, 0);
  }
  const auto optimizer = new_optimizer({}, model.parameters(), host_backend(), ledger);
  for (int step = 0; step < 5; ++step) {
    optimizer->step(0.1, 1);
    model.parameters().zero_gradients();
    model.forward_backward(batch, 16);
  }
  const std::span<double> after = host_span<double>(model.frozen().values());
  EXPECT_TRUE(std::ranges::equal(frozen, after));
  EXPECT_FALSE(model.frozen().has_gradient(0));
}

// LoRA+: with plain SGD, B moves by the ratio times as much.
TEST(Lora, RateOfBMayBeAnother) {
  std::vector<std::vector<double>> moved;
  for (const double ratio : {1.0, 4.0}) {
    LoraConfig lora = all_layers();
    lora.rate_ratio = ratio;
    Adapted adapted(lora);
    Parameters& parameters = adapted.model.parameters();
    const std::span<double> values = host_span<double>(parameters.values());
    const std::vector<double> before(values.begin(), values.end());
    adapted.model.forward_backward(some_batch(), 16);
    new_optimizer({.name = "sgd", .weight_decay = 0, .momentum = 0}, parameters, host_backend(),
                  adapted.ledger)
        ->step(0.5, 1);
    std::vector<double>& change = moved.emplace_back(values.begin(), values.end());
    for (std::size_t i = 0; i < change.size(); ++i) change[i] -= before[i];
  }
  Ledger ledger;
  const Adapted adapted(all_layers());
  std::size_t at = 0, moved_b = 0;
  for (const Parameter& parameter : adapted.model.parameters().list())
    for (Count i = 0; i < parameter.count; ++i, ++at) {
      const bool is_b = parameter.name.ends_with("lora_B");
      EXPECT_NEAR(moved[1][at], (is_b ? 4 : 1) * moved[0][at], 1e-15);
      moved_b += is_b && moved[0][at] != 0;
    }
  EXPECT_GT(moved_b, 0U);
}

}  // namespace
}  // namespace lockstep
