// The biases of routers in files of weights: a tensor "h.0.mlp.router.bias" [E] in f64 for each layer
// with experts. They are no parameters: they have no gradient, and no optimizer changes them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/gpt/safetensors.h"
#include "models/gpt_config.h"
#include "models/parameters.h"
#include "models/routing.h"

namespace lockstep {

// The tensors of a model's biases; none if its routers have none.
std::vector<TensorEntry> bias_entries(const GptConfig& config);
// The layer of whose router this tensor is the bias; none if `whole` has no such router. Throws Error
// (bad_input) naming the file if it has not one number for each expert.
std::optional<int> layer_of_bias(std::string_view name, const TensorEntry& tensor,
                                 const std::vector<Parameter>& whole, const std::string& path);
// Throws Error (bad_input) if the biases that a file has are not those of the model: the model has
// none, or some are missing. All may be missing if the model's config.json has no "router_bias": then
// they begin with zero.
void check_biases(const std::string& path, const RouterBiases& biases, const GptConfig& config);

}  // namespace lockstep
