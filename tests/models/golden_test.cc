// Reference runs in float64 (tests/golden): every loss, gradient norm and final weight.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "models/data/dataset.h"
#include "models/gpt/gpt.h"
#include "models/gpt/safetensors.h"
#include "models/gpt/weights.h"
#include "models/optimizers/whole_matrices.h"
#include "tests/golden/golden.h"

namespace lockstep {
namespace {

// tiny, tiny_moe with experts, and tiny_muon with another optimizer.
void reproduce(const std::string& golden, DType dtype, double tolerance, double weight_tolerance,
               OptimizerSettings settings = {}) {
  const auto expected = nlohmann::json::parse(std::ifstream(golden + "/expected.json"));
  Ledger ledger;
  Gpt model(read_gpt_config(golden + "/config.json"), host_backend(), dtype, ledger);
  WeightsReader(golden + "/init.safetensors", model.parameters().list()).read(model.parameters());
  const Dataset data(golden + "/tokens.bin", model.config().vocabulary, 0);
  settings.weight_decay = 0.1, settings.beta1 = 0.9, settings.beta2 = 0.95, settings.eps = 1e-8;
  const auto optimizer = new_optimizer(settings, model.parameters(), host_backend(), ledger);
  WholeMatrices matrices(settings, model.parameters(), host_backend(), ledger);

  const int steps = static_cast<int>(expected["losses"].size());
  ASSERT_GE(steps, 8);
  for (int step = 0; step < steps; ++step) {
    model.parameters().zero_gradients();
    const int length = model.config().context;
    const Batch batch = data.batch({Order::sequential, 8, length, 0}, step, 0, 8);
    const double loss = model.forward_backward(batch, Count{8} * length);
    const double norm = std::sqrt(host_backend().squared_norm(model.parameters().gradients()));
    EXPECT_NEAR(loss / expected["losses"][step].get<double>(), 1, tolerance)
        << "loss of step " << step;
    EXPECT_NEAR(norm / expected["grad_norms"][step].get<double>(), 1, tolerance)
        << "norm of step " << step;
    if (model.config().experts.exist()) {
      const RoutingTotals routing = model.take_routing();
      EXPECT_NEAR(routing.balance / 8 / expected["aux_losses"][step].get<double>(), 1, tolerance);
      std::vector<std::vector<Count>> counts;
      for (const auto& [layer, of_experts] : routing.tokens) counts.push_back(of_experts);
      EXPECT_EQ(nlohmann::json(counts), expected["tokens_of_experts"][step]);
    }
    const double clip = std::min(1.0, 1.0 / (norm + 1e-6));
    matrices.step({optimizer.get()}, 1e-3, clip);
    optimizer->step(1e-3, clip);
  }

  const SafetensorsFile final_weights(golden + "/final.safetensors");
  for (const TensorEntry& tensor : final_weights.tensors()) {
    std::vector<double> theirs(static_cast<std::size_t>(tensor.count()));
    final_weights.read(tensor, host_slice(std::span(theirs)));
    const Slice ours = model.parameters().value(model.parameters().index(tensor.name));
    for (Count i = 0; i < ours.count; ++i) {
      const double value = dtype == DType::f64 ? host_span<double>(ours)[i]
                                               : static_cast<double>(host_span<float>(ours)[i]);
      ASSERT_NEAR(value, theirs[i], weight_tolerance * std::max(std::abs(theirs[i]), 1e-3))
          << tensor.name << "[" << i << "]";
    }
  }
}

// The reference's weights are stored in f32, so their relative error is up to 2^-24.
TEST(Golden, SerialInDouble) { reproduce(test::golden_folder(), DType::f64, 1e-9, 1.2e-7); }
TEST(Golden, SerialInFloat) { reproduce(test::golden_folder(), DType::f32, 1e-5, 2e-3); }
TEST(Golden, MuonInDouble) {
  reproduce(test::golden_folder() + "_muon", DType::f64, 1e-9, 1.2e-7,
            {.name = "muon", .muon_momentum = 0.95, .muon_rate = 20});
}
TEST(Golden, ExpertsInDouble) {
  reproduce(test::golden_folder() + "_moe", DType::f64, 1e-9, 1.2e-7);
}

}  // namespace
}  // namespace lockstep
