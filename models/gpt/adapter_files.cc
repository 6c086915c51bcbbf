#include "models/gpt/adapter_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "models/gpt/weights.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

bool is_transposed(const Parameter& parameter) { return parameter.name.ends_with(".lora_B"); }

std::vector<Count> shape_in_file(const Parameter& parameter) {
  std::vector<Count> shape = parameter.shape;
  if (is_transposed(parameter)) std::ranges::reverse(shape);
  return shape;
}

std::vector<double> transposed(const std::vector<double>& values, Count rows, Count columns) {
  std::vector<double> result(values.size());
  for (Count row = 0; row < rows; ++row)
    for (Count column = 0; column < columns; ++column)
      result[static_cast<std::size_t>(column * rows + row)] =
          values[static_cast<std::size_t>(row * columns + column)];
  return result;
}

// peft's name: of a model with a head, or of one without.
std::string name_in_file(const Parameter& parameter) {
  return fmt::format("base_model.model.transformer.{}.weight", parameter.name);
}

std::string_view name_of_adapter(std::string_view name) {
  for (const std::string_view prefix : {"base_model.model.transformer.", "base_model.model."})
    if (name.starts_with(prefix)) {
      name.remove_prefix(prefix.size());
      break;
    }
  constexpr std::string_view suffix = ".weight";
  if (name.ends_with(suffix)) name.remove_suffix(suffix.size());
  return name;
}

// Puts values of any type into memory of any device.
void put(Slice into, std::vector<double>& values) {
  std::vector<std::byte> memory(static_cast<std::size_t>(into.bytes()));
  const Slice on_host{memory.data(), into.count, into.dtype, &host_device()};
  on_host.device->convert(on_host, host_slice(std::span(values)));
  into.device->copy(into, on_host);
}

}  // namespace

std::vector<Parameter> whole_adapters(const GptConfig& config, const LoraConfig& lora) {
  Ledger none;
  Parameters parameters(DType::f32, none);
  Adapters adapters(parameters, lora, none, 0, config.head_size());
  Parameters frozen(DType::f32, none, {}, &adapters);
  const GptStage registers(frozen, config, {.first = 0, .count = config.layers}, host_backend(),
                           none);
  return parameters.list();
}

std::vector<Parameter> whole_with_adapters(const GptConfig& config, const LoraConfig& lora) {
  std::vector<Parameter> all = whole_parameters(config);
  std::ranges::move(whole_adapters(config, lora), std::back_inserter(all));
  return all;
}

std::string adapter_config_path(const std::string& folder) {
  std::error_code none;
  require(fs::is_directory(folder, none), fmt::format("{} is not a folder", folder),
          "name a folder with adapter_config.json and adapter_model.safetensors");
  return fs::path(folder) / "adapter_config.json";
}

std::string adapter_weights_path(const std::string& folder) {
  return fs::path(folder) / "adapter_model.safetensors";
}

AdapterReader::AdapterReader(const std::string& folder, const std::vector<Parameter>& whole)
    : whole_(whole), file_(adapter_weights_path(folder)) {
  for (const TensorEntry& tensor : file_.tensors()) {
    const std::string_view name = name_of_adapter(tensor.name);
    const auto parameter = std::ranges::find(whole, name, &Parameter::name);
    require(parameter != whole.end(),
            fmt::format("{}: no layer has the adapter '{}'", file_.path(), tensor.name),
            "is it for another model, or for other --lora-targets?");
    const std::vector<Count> shape = shape_in_file(*parameter);
    require(shape == tensor.shape,
            fmt::format("{}: '{}' has shape [{}], the model's has [{}]", file_.path(), tensor.name,
                        fmt::join(tensor.shape, ", "), fmt::join(shape, ", ")),
            "is it for another model, or of another --lora rank?");
    require(tensors_.emplace(name, &tensor).second,
            fmt::format("{}: '{}' occurs twice", file_.path(), tensor.name));
  }
  for (const Parameter& parameter : whole)
    require(tensors_.contains(parameter.name),
            fmt::format("{}: no tensor '{}'", file_.path(), name_in_file(parameter)),
            "is it for another model, or for other --lora-targets?");
}

void AdapterReader::read(Parameters& parameters) const {
  for (std::size_t i = 0; i < parameters.list().size(); ++i) {
    if (!parameters.has_value(static_cast<int>(i))) continue;
    const Parameter& parameter = parameters.list()[i];
    const Slice into = parameters.value(static_cast<int>(i));
    if (!into.device->stores()) continue;
    const Parameter& whole = *std::ranges::find(whole_, parameter.name, &Parameter::name);
    std::vector<double> all(static_cast<std::size_t>(whole.count));
    file_.read(*tensors_.at(parameter.name), host_slice(std::span(all)));
    const Count rows = whole.shape.front(), columns = whole.shape.back();
    if (is_transposed(whole)) all = transposed(all, columns, rows);
    std::vector<double> own(static_cast<std::size_t>(parameter.count));
    for_each_run(parameter.region, columns,
                 [&](const Region::Columns&, Count there, Count here, Count count) {
                   std::copy_n(all.begin() + there, count, own.begin() + here);
                 });
    put(into, own);
  }
}

AdapterWriter::AdapterWriter(const std::vector<Parameter>& whole) : whole_(whole) {
  for (const Parameter& parameter : whole)
    values_.emplace_back(static_cast<std::size_t>(parameter.count));
}

void AdapterWriter::take(const Parameters& part, Slice values) {
  for_each_counted_run(part, whole_,
                       [&](std::size_t parameter, Count in_whole, Count in_part, Count count) {
                         const std::span<double> into(values_[parameter].data() + in_whole,
                                                      static_cast<std::size_t>(count));
                         values.device->convert(host_slice(into), values.part(in_part, count));
                       });
}

void AdapterWriter::check_finite() const {
  for (std::size_t i = 0; i < values_.size(); ++i)
    if (!std::ranges::all_of(values_[i], [](double value) { return std::isfinite(value); }))
      throw Error(
          ErrorKind::wrong_result,
          fmt::format("the final {} is not finite: no adapters are written", whole_[i].name),
          {.hint = "lower --lr, add --warmup-steps or set --grad-clip"});
}

void AdapterWriter::write(const std::string& folder, DType dtype, const LoraConfig& lora) const {
  std::vector<TensorEntry> entries;
  for (const Parameter& parameter : whole_)
    entries.push_back(
        {.name = name_in_file(parameter), .dtype = dtype, .shape = shape_in_file(parameter)});
  SafetensorsWriter file(adapter_weights_path(folder), std::move(entries));
  for (std::size_t i = 0; i < whole_.size(); ++i) {
    std::vector<double> values = values_[i];
    if (is_transposed(whole_[i]))
      values = transposed(values, whole_[i].shape.front(), whole_[i].shape.back());
    std::vector<std::byte> memory(values.size() * static_cast<std::size_t>(element_bytes(dtype)));
    const Slice typed{memory.data(), std::ssize(values), dtype, &host_device()};
    put(typed, values);
    file.write(i, 0, typed);
  }
  file.finish();
  write_file(adapter_config_path(folder), lora_config_json(lora));
}

}  // namespace lockstep
