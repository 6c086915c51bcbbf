// Low-rank adapters on one device: their gradients and first steps.
#include <gtest/gtest.h>

#include <cmath>

#include "collectives/base/error.h"
#include "models/layers/linear.h"
#include "models/optimizers/optimizers.h"
#include "tests/models/adapted.h"
#include "tests/models/numbers.h"

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

// One frozen layer with an adapter that drops of its input, by the place of each number in the model and
// in the batch.
TEST(LoraDropout, DropsOfTheAdaptersInputAlone) {
  constexpr Count in = 6, out = 8, rank = 2, count = 6;
  constexpr double rate = 0.4, scale = 1.5;
  Ledger ledger;
  Parameters trained(DType::f64, ledger);
  Adapters adapters(trained,
                    {.rank = rank, .alpha = scale * rank, .targets = {"c_fc"}, .dropout = rate},
                    ledger, 9);
  Parameters frozen(DType::f64, ledger, {}, &adapters);
  const Linear linear(frozen, "h.2.mlp.c_fc", in, out, Initial::normal);
  for (Parameters* const parameters : {&trained, &frozen}) {
    parameters->allocate();
    std::ranges::copy(normals(parameters->count(), 4),
                      host_span<double>(parameters->values()).begin());
  }
  adapters.reserve(count);
  std::vector<double> x = normals(count * in, 5);
  const auto forward = [&](const RowsPart& rows) {
    std::vector<double> made(static_cast<std::size_t>(rows.count * out));
    std::vector<double> of(x.begin() + rows.first * in, x.begin() + (rows.first + rows.count) * in);
    linear.forward(host_backend(), slice(made), {}, slice(of), rows);
    return made;
  };
  const auto expected = [&](double dropped, std::int64_t step) {
    const std::span<double> w = values_of(frozen, "h.2.mlp.c_fc.weight"),
                            b = values_of(frozen, "h.2.mlp.c_fc.bias"),
                            a = values_of(trained, "h.2.mlp.c_fc.lora_A"),
                            bt = values_of(trained, "h.2.mlp.c_fc.lora_B");
    std::vector<double> made;
    for (Count r = 0; r < count; ++r)
      for (Count o = 0; o < out; ++o) {
        double sum = b[static_cast<std::size_t>(o)];
        for (Count i = 0; i < in; ++i) {
          const double number = x[static_cast<std::size_t>(r * in + i)];
          const auto bits = static_cast<long double>(
              random_bits(9, -1 - (2 * 4 + 2) - (step << 22), ((10 + r) << 24) + i));
          const double kept =
              bits < static_cast<long double>(dropped) * 0x1p64L ? 0 : 1 / (1 - dropped);
          sum += number * w[static_cast<std::size_t>(i * out + o)];
          for (Count k = 0; k < rank; ++k)
            sum += scale * kept * number * a[static_cast<std::size_t>(k * in + i)] *
                   bt[static_cast<std::size_t>(k * out + o)];
        }
        made.push_back(sum);
      }
    return made;
  };
  Rows rows{.sequences = 2, .length = 3, .first = 10, .step = 4};
  const std::vector<double> whole = forward(rows);
  expect_near(whole, expected(rate, 4), 1e-13);
  expect_near(forward(RowsPart(rows).part(2, 4)),
              std::vector<double>(whole.begin() + 2 * out, whole.end()), 1e-13);
  rows.step = 5;
  expect_near(forward(rows), expected(rate, 5), 1e-13);
  rows.step = -1;  // no training
  expect_near(forward(rows), expected(0, 0), 1e-13);
  EXPECT_THROW(forward(RowsPart(count)), Error);
}

// Forward and backward draw the same masks: derivatives of the loss by differences.
TEST(LoraDropout, GradientsAreDerivatives) {
  LoraConfig lora = all_layers();
  lora.dropout = 0.4;
  Adapted adapted(lora), without(all_layers());
  Parameters& parameters = adapted.model.parameters();
  Batch batch = some_batch();
  batch.step = 3;
  const double loss = adapted.model.forward_backward(batch, 16);
  EXPECT_EQ(adapted.model.loss_sum(batch), without.model.loss_sum(batch));
  const std::span<double> values = host_span<double>(parameters.values());
  const std::span<double> all = host_span<double>(parameters.gradients());
  const std::vector<double> gradients(all.begin(), all.end());
  const auto loss_with = [&](std::size_t i, double value) {
    const double before = std::exchange(values[i], value);
    const double changed = adapted.model.forward_backward(batch, 16);
    values[i] = before;
    return changed;
  };
  constexpr double h = 1e-5;
  for (std::size_t i = 0; i < values.size(); i += 11)
    EXPECT_NEAR((loss_with(i, values[i] + h) - loss_with(i, values[i] - h)) / (2 * h), gradients[i],
                1e-8);
  ++batch.step;
  EXPECT_NE(adapted.model.forward_backward(batch, 16), loss);
}

// The same bits as with the numbers that the packed base stands for.
TEST(PackedBase, IsTheModelWithTheseNumbers) {
  for (const PackedFormat format : {PackedFormat::int8, PackedFormat::fp6}) {
    LoraConfig lora = all_layers();
    Adapted plain(lora);
    lora.base = format;
    Adapted packed(lora);
    Parameters& matrices = packed.model.packed();
    EXPECT_EQ(std::ssize(matrices.list()), 4 * small_model.layers);
    for (const Parameter& parameter : matrices.list()) {
      const Packing packing = parameter.packing;
      EXPECT_EQ(packing, (Packing{format, 4}));
      const Slice bytes = matrices.value(matrices.index(parameter.name));
      const std::span<double> numbers = values_of(plain.model.frozen(), parameter.name);
      std::vector<std::byte> expected(static_cast<std::size_t>(bytes.count));
      pack(expected, numbers, packing);
      EXPECT_TRUE(std::ranges::equal(expected, std::span(bytes.data, expected.size())));
      host_backend().unpack(host_slice(numbers), bytes, packing);
    }
    EXPECT_EQ(packed.model.forward_backward(some_batch(), 16),
              plain.model.forward_backward(some_batch(), 16));
    EXPECT_TRUE(std::ranges::equal(host_span<double>(packed.model.parameters().gradients()),
                                   host_span<double>(plain.model.parameters().gradients())));
  }
}

}  // namespace
}  // namespace lockstep
