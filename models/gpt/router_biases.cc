#include "models/gpt/router_biases.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "collectives/base/error.h"

namespace lockstep {

std::vector<TensorEntry> bias_entries(const GptConfig& config) {
  std::vector<TensorEntry> entries;
  for (int layer = 0; config.experts.has_bias() && layer < config.layers; ++layer)
    if (config.experts.in_layer(layer))
      entries.push_back(
          {.name = router_bias_name(layer), .dtype = DType::f64, .shape = {config.experts.number}});
  return entries;
}

std::optional<int> layer_of_bias(std::string_view name, const TensorEntry& tensor,
                                 const std::vector<Parameter>& whole, const std::string& path) {
  constexpr std::string_view layer = "h.", router = ".mlp.router.", bias = "bias";
  if (!name.starts_with(layer) || !name.ends_with(fmt::format("{}{}", router, bias))) return {};
  const auto weight = std::ranges::find(
      whole, fmt::format("{}weight", name.substr(0, name.size() - bias.size())), &Parameter::name);
  if (weight == whole.end()) return {};
  require(tensor.shape == std::vector{weight->shape.back()},
          fmt::format("{}: '{}' has shape [{}], the model's has [{}]", path, tensor.name,
                      fmt::join(tensor.shape, ", "), weight->shape.back()),
          "give the config.json that belongs to the weights as --model");
  return std::stoi(std::string(name.substr(layer.size())));
}

void check_biases(const std::string& path, const RouterBiases& biases, const GptConfig& config) {
  const ExpertConfig& experts = config.experts;
  require(biases.empty() || experts.has_bias(),
          fmt::format("{}: '{}', but the model's routers have no bias", path,
                      router_bias_name(biases.empty() ? 0 : biases.begin()->first)),
          "add --router-bias-update-rate, or \"router_bias\": true to the model's config.json");
  if (biases.empty() && !experts.bias) return;
  for (const TensorEntry& entry : bias_entries(config))
    require(
        std::ranges::any_of(
            biases, [&](const auto& bias) { return router_bias_name(bias.first) == entry.name; }),
        fmt::format("{}: no tensor '{}'", path, entry.name), "is the file from a different model?");
}

}  // namespace lockstep
