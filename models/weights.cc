#include "models/weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>

#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "models/safetensors.h"

namespace lockstep {
namespace {

std::string_view without_prefix(std::string_view name) {
  constexpr std::string_view prefix = "transformer.";
  if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
  return name;
}

bool is_passed_over(std::string_view name) {
  return name == "lm_head.weight" || name.ends_with(".attn.bias") ||
         name.ends_with(".attn.masked_bias");
}

}  // namespace

void load_weights(const std::string& path, Parameters& parameters) {
  const SafetensorsFile file(path);
  std::vector<const TensorEntry*> found(parameters.list().size());
  for (const TensorEntry& tensor : file.tensors()) {
    const std::string_view name = without_prefix(tensor.name);
    if (is_passed_over(name)) continue;
    const auto at = std::ranges::find(parameters.list(), name, &Parameter::name);
    require(at != parameters.list().end(),
            fmt::format("{}: the model has no parameter '{}'", path, tensor.name),
            "is it the weights of another model?");
    require(at->shape == tensor.shape,
            fmt::format("{}: '{}' has shape [{}], the model's has [{}]", path, tensor.name,
                        fmt::join(tensor.shape, ", "), fmt::join(at->shape, ", ")),
            "give the config.json that belongs to the weights as --model");
    auto& place = found[static_cast<std::size_t>(at - parameters.list().begin())];
    require(place == nullptr, fmt::format("{}: '{}' occurs twice", path, tensor.name));
    place = &tensor;
  }
  for (std::size_t i = 0; i < found.size(); ++i)
    require(found[i] != nullptr, fmt::format("{}: no tensor '{}'", path, parameters.list()[i].name),
            "is it the weights of another model?");
  for (std::size_t i = 0; i < found.size(); ++i)
    file.read(*found[i], parameters.value(static_cast<int>(i)));
}

void save_weights(const std::string& path, const Parameters& parameters, const GptConfig& config) {
  std::vector<NamedSlice> tensors;
  for (std::size_t i = 0; i < parameters.list().size(); ++i)
    tensors.push_back({parameters.list()[i].name, parameters.list()[i].shape,
                       parameters.value(static_cast<int>(i))});
  write_safetensors(path, tensors);
  write_file(std::filesystem::path(path).replace_filename("config.json"), gpt_config_json(config));
}

}  // namespace lockstep
