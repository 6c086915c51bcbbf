#include "models/weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
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
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias");
}

// The head is the token embedding; a file whose head has other numbers is another model.
void check_tied_head(const SafetensorsFile& file, const TensorEntry& head,
                     const Parameters& parameters) {
  const int embedding = parameters.index("wte.weight");
  const Slice expected = parameters.value(embedding);
  bool same = head.shape == parameters.list()[embedding].shape;
  if (same) {
    std::vector<std::byte> bytes(static_cast<std::size_t>(expected.bytes()));
    file.read(head, {bytes.data(), expected.count, expected.dtype, &host_device()});
    std::vector<std::byte> own(bytes.size());
    expected.device->copy({own.data(), expected.count, expected.dtype, &host_device()}, expected);
    same = bytes == own;
  }
  require(same, fmt::format("{}: '{}' is not equal to 'wte.weight'", file.path(), head.name),
          "only models whose head is tied to the token embedding are known");
}

}  // namespace

void load_weights(const std::string& path, Parameters& parameters) {
  const SafetensorsFile file(path);
  std::vector<const TensorEntry*> found(parameters.list().size());
  const TensorEntry* head = nullptr;
  for (const TensorEntry& tensor : file.tensors()) {
    const std::string_view name = without_prefix(tensor.name);
    if (is_passed_over(name)) continue;
    if (name == "lm_head.weight") {
      head = &tensor;
      continue;
    }
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
  if (head != nullptr) check_tied_head(file, *head, parameters);
}

void save_weights(const std::string& path, const Parameters& parameters, const GptConfig& config) {
  const auto config_path = std::filesystem::path(path).replace_filename("config.json");
  require(config_path != path,
          fmt::format("{}: the name of the configuration written beside the weights", path),
          "give the weights another name, such as final.safetensors");
  std::vector<NamedSlice> tensors;
  for (std::size_t i = 0; i < parameters.list().size(); ++i)
    tensors.push_back({parameters.list()[i].name, parameters.list()[i].shape,
                       parameters.value(static_cast<int>(i))});
  write_safetensors(path, tensors);
  write_file(config_path, gpt_config_json(config));
}

}  // namespace lockstep
