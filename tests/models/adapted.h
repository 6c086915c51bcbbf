// A small model with adapters in all linear layers, for tests of them.
#pragma once

#include <cmath>
#include <span>
#include <string>

#include "models/data/dataset.h"
#include "models/gpt/adapter_files.h"
#include "models/gpt/gpt.h"
#include "models/gpt/weights.h"
#include "models/random.h"

namespace lockstep::test {

inline const GptConfig small_model = {
    .layers = 2, .heads = 2, .width = 8, .context = 8, .vocabulary = 19};

inline Batch some_batch() {
  Batch batch{.inputs = {}, .targets = {}, .sequences = 2, .length = 8, .global_batch = 2};
  for (int i = 0; i < 16; ++i) {
    batch.inputs.push_back((i * 7 + i * i) % 19);
    batch.targets.push_back((i * 5 + 3) % 19);
  }
  return batch;
}

inline LoraConfig all_layers() {
  return {.rank = 3, .alpha = 5, .rank_stabilized = true, .targets = {"c_attn", "c_proj", "c_fc"}};
}

inline std::span<double> values_of(Parameters& parameters, const std::string& name) {
  return host_span<double>(parameters.value(parameters.index(name)));
}
inline std::span<double> gradients_of(Parameters& parameters, const std::string& name) {
  return host_span<double>(parameters.gradient(parameters.index(name)));
}

// A model with adapters whose B is not zero.
struct Adapted {
  explicit Adapted(const LoraConfig& lora)
      : model(small_model, host_backend(), DType::f64, ledger, true, {.lora = lora}) {
    for (Parameters* const base : {&model.frozen(), &model.packed()})
      initialize_weights(*base, whole_parameters(small_model), small_model.layers, 5);
    const std::vector<Parameter> whole = whole_adapters(small_model, lora);
    initialize_weights(model.parameters(), whole, small_model.layers, 5, 100);
    const std::span<double> all = host_span<double>(model.parameters().values());
    for (std::size_t i = 0; i < all.size(); ++i)
      if (all[i] == 0) all[i] = 0.1 * random_normal(9, 1, static_cast<std::int64_t>(i));
  }
  Ledger ledger;
  Gpt model;
};

}  // namespace lockstep::test
