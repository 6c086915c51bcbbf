#include "models/gpt/weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <optional>

#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "models/gpt/gpt_stage.h"
#include "models/gpt/router_biases.h"
#include "models/gpt/weight_files.h"
#include "models/random.h"

namespace lockstep {
namespace {

using WholeByName = std::map<std::string_view, std::size_t>;

WholeByName by_name(const std::vector<Parameter>& whole) {
  WholeByName places;
  for (std::size_t i = 0; i < whole.size(); ++i) places.emplace(whole[i].name, i);
  return places;
}

std::string_view without_prefix(std::string_view name) {
  constexpr std::string_view prefix = "transformer.";
  if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
  return name;
}

bool is_passed_over(std::string_view name) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias");
}

// Calls block(some rows of the parameter's region, memory for their numbers on the host) until all rows
// of a parameter are written, with a bounded number of elements at a time. The numbers of a packed
// matrix are f64, so that a run of any type has the same codes.
template <typename Block>
void write_in_blocks(const Parameter& parameter, Slice values, Block block) {
  if (!values.device->stores()) return;
  const Packing& packing = parameter.packing;
  const Count rows = parameter.region.rows.count, columns = parameter.count / rows;
  const Count numbers = packing.numbers(columns);
  const DType dtype = packing.exists() ? DType::f64 : values.dtype;
  Region region = parameter.region;
  for (Region::Columns& part : region.columns)
    part.range = {packing.numbers(part.range.first), packing.numbers(part.range.count)};
  const Count at_once = std::clamp<Count>((Count{1} << 18) / columns, 1, rows);
  std::vector<std::byte> memory(static_cast<std::size_t>(at_once * numbers * element_bytes(dtype))),
      bytes(static_cast<std::size_t>(packing.exists() ? at_once * columns : 0));
  for (Count row = 0; row < rows; row += at_once) {
    const Count count = std::min(at_once, rows - row);
    Slice on_host{memory.data(), count * numbers, dtype, &host_device()};
    on_host.device->zero(on_host);  // the padding
    region.rows = {parameter.region.rows.first + row, count};
    block(region, on_host);
    if (packing.exists()) {
      const Slice packed{bytes.data(), count * columns, DType::u8, &host_device()};
      pack(std::span(bytes).first(static_cast<std::size_t>(packed.count)),
           host_span<const double>(on_host), packing);
      on_host = packed;
    }
    const Slice into = values.part(row * columns, count * columns);
    into.device->copy(into, on_host);
  }
}

void read_region(const SafetensorsFile& file, const TensorEntry& tensor, const Parameter& parameter,
                 Slice values) {
  const Count columns = tensor.shape.back(), all_rows = tensor.count() / columns;
  std::vector<std::byte> memory;
  write_in_blocks(parameter, values, [&](const Region& region, Slice block) {
    const Count real = std::clamp<Count>(all_rows - region.rows.first, 0, region.rows.count);
    const Count element = element_bytes(block.dtype);
    memory.resize(static_cast<std::size_t>(real * columns * element));
    file.read_part(tensor, region.rows.first * columns * (real > 0),
                   {memory.data(), real * columns, block.dtype, &host_device()});
    for_each_run(region, columns,
                 [&](const Region::Columns&, Count there, Count here, Count count) {
                   if (there >= all_rows * columns) return;
                   std::memcpy(block.data + here * element,
                               memory.data() + (there - region.rows.first * columns) * element,
                               static_cast<std::size_t>(count * element));
                 });
  });
}

// The head is the token embedding. A file with a different head is a different model.
void check_tied_head(const SafetensorsFile& file, const TensorEntry& head,
                     const SafetensorsFile& file_of_embedding, const TensorEntry& embedding) {
  constexpr Count at_once = 1 << 17;
  bool same = head.shape == embedding.shape;
  std::vector<double> a(at_once), b(at_once);
  for (Count begin = 0; same && begin < head.count(); begin += at_once) {
    const Count count = std::min(at_once, head.count() - begin);
    file.read_part(head, begin, host_slice(std::span(a)).first(count));
    file_of_embedding.read_part(embedding, begin, host_slice(std::span(b)).first(count));
    same = std::memcmp(a.data(), b.data(), static_cast<std::size_t>(count) * sizeof(double)) == 0;
  }
  require(same, fmt::format("{}: '{}' is not equal to 'wte.weight'", file.path(), head.name),
          "only models with the head tied to the token embedding are supported");
}

std::string config_path_for(const std::string& path) {
  const auto config_path = std::filesystem::path(path).replace_filename("config.json");
  require(config_path != path,
          fmt::format("{}: the name of the configuration written next to the weights", path),
          "give the weights another name, such as final.safetensors");
  return config_path;
}

// The parameters of the model, and then the biases of its routers.
std::vector<TensorEntry> entries_of(const std::vector<Parameter>& whole, DType dtype,
                                    const std::vector<TensorEntry>& biases) {
  std::vector<TensorEntry> entries;
  for (const Parameter& parameter : whole)
    entries.push_back({.name = parameter.name, .dtype = dtype, .shape = parameter.shape});
  entries.insert(entries.end(), biases.begin(), biases.end());
  return entries;
}

}  // namespace

std::vector<Parameter> whole_parameters(const GptConfig& config) {
  Ledger none;
  Parameters parameters(DType::f32, none);
  const GptStage registers(parameters, config, {.first = 0, .count = config.layers}, host_backend(),
                           none);
  return parameters.list();
}

void initialize_weights(Parameters& parameters, const std::vector<Parameter>& whole, int layers,
                        std::uint64_t seed, std::size_t first) {
  constexpr double deviation = 0.02;
  const WholeByName places = by_name(whole);
  std::vector<double> drawn;
  for (std::size_t i = 0; i < parameters.list().size(); ++i) {
    if (!parameters.has_value(static_cast<int>(i))) continue;
    const Parameter& parameter = parameters.list()[i];
    const std::size_t number = places.at(parameter.whole_name());
    const Count columns = whole[number].shape.back(), all = whole[number].count;
    const auto stream = static_cast<std::int64_t>(first + number);
    const double scale =
        parameter.initial == Initial::branch_end ? deviation / std::sqrt(2.0 * layers) : deviation;
    const auto value = [&](Count there) {
      if (parameter.initial == Initial::zeros) return 0.0;
      if (parameter.initial == Initial::ones) return 1.0;
      if (parameter.initial == Initial::uniform)
        return (2 * random_uniform(seed, stream, there) - 1) /
               std::sqrt(static_cast<double>(columns));
      return scale * random_normal(seed, stream, there);
    };
    write_in_blocks(
        parameter, parameters.value(static_cast<int>(i)), [&](const Region& region, Slice block) {
          drawn.assign(static_cast<std::size_t>(block.count), 0.0);
          for_each_run(region, columns,
                       [&](const Region::Columns&, Count there, Count here, Count count) {
                         for (Count k = 0; there < all && k < count; ++k)
                           drawn[static_cast<std::size_t>(here + k)] = value(there + k);
                       });
          block.device->convert(block, host_slice(std::span(drawn)));
        });
  }
}

WeightsReader::WeightsReader(const std::string& path, const std::vector<Parameter>& whole)
    : files_(open_weights(path)) {
  const WholeByName places = by_name(whole);
  std::optional<Place> head;
  for (const SafetensorsFile& file : files_)
    for (const TensorEntry& tensor : file.tensors()) {
      const std::string_view name = without_prefix(tensor.name);
      if (is_passed_over(name)) continue;
      if (name == "lm_head.weight") {
        head = {&file, &tensor};
        continue;
      }
      if (const auto layer = layer_of_bias(name, tensor, whole, file.path())) {
        biases_.emplace(*layer, Place{&file, &tensor});
        continue;
      }
      const auto at = places.find(name);
      require(at != places.end(),
              fmt::format("{}: the model has no parameter '{}'", file.path(), tensor.name),
              "is the file from a different model?");
      add(file, tensor, whole[at->second]);
    }
  for (const Parameter& parameter : whole)
    require(tensors_.contains(parameter.name),
            fmt::format("{}: no tensor '{}'", path, parameter.name),
            "is the file from a different model?");
  if (head)
    check_tied_head(*head->file, *head->tensor, *tensors_.at("wte.weight").file,
                    *tensors_.at("wte.weight").tensor);
}

RouterBiases WeightsReader::biases() const {
  RouterBiases biases;
  for (const auto& [layer, place] : biases_) {
    std::vector<double>& bias = biases[layer];
    bias.resize(static_cast<std::size_t>(place.tensor->count()));
    place.file->read_part(*place.tensor, 0, host_slice(std::span(bias)));
  }
  return biases;
}

void WeightsReader::add(const SafetensorsFile& file, const TensorEntry& tensor,
                        const Parameter& parameter) {
  require(parameter.shape == tensor.shape,
          fmt::format("{}: '{}' has shape [{}], the model's has [{}]", file.path(), tensor.name,
                      fmt::join(tensor.shape, ", "), fmt::join(parameter.shape, ", ")),
          "give the config.json that belongs to the weights as --model");
  require(tensors_.emplace(parameter.name, Place{&file, &tensor}).second,
          fmt::format("{}: '{}' occurs twice", file.path(), tensor.name));
}

void WeightsReader::read(Parameters& parameters) const {
  for (std::size_t i = 0; i < parameters.list().size(); ++i) {
    if (!parameters.has_value(static_cast<int>(i))) continue;
    const Parameter& parameter = parameters.list()[i];
    const Place& place = tensors_.at(parameter.whole_name());
    read_region(*place.file, *place.tensor, parameter, parameters.value(static_cast<int>(i)));
  }
}

void for_each_counted_run(const Parameters& part, const std::vector<Parameter>& whole,
                          const OnRun& run) {
  const WholeByName places = by_name(whole);
  for (const Parameter& parameter : part.list()) {
    const std::size_t number = places.at(parameter.whole_name());
    for_each_run(parameter.region, whole[number].shape.back(),
                 [&](const Region::Columns& columns, Count there, Count here, Count count) {
                   if (there < whole[number].count && part.counts(parameter, columns.placement))
                     run(number, there, parameter.offset + here, count);
                 });
  }
}

void check_weights_output(const std::string& path, const GptConfig& config) {
  std::error_code none;  // check_writable gives the reason
  require(!std::filesystem::exists(path, none) || std::filesystem::is_regular_file(path, none),
          fmt::format("cannot write weights to {}: it is not a regular file", path), "name a file");
  check_writable(path);
  const std::string config_path = config_path_for(path);
  check_writable(config_path);
  if (!std::filesystem::exists(config_path, none)) return;
  bool is_same = false;
  try {
    is_same = gpt_config_json(read_gpt_config(config_path)) == gpt_config_json(config);
  } catch (const Error&) {
    // Not a model's configuration at all.
  }
  require(is_same,
          fmt::format("{} describes another model than the weights saved next to it", config_path),
          "remove it, or save the weights in another folder");
}

std::string warning_of_saved(const std::string& path, const GptConfig& config) {
  if (is_known_to_hugging_face(config)) return "";
  return fmt::format(
      "{}: for this program only: Hugging Face's GPT-2 has as many key/value heads as query heads "
      "({}), this model {}; its config.json names another model_type",
      path, config.heads, config.key_value_heads());
}

WeightsFile::WeightsFile(const std::string& path, const std::vector<Parameter>& whole, DType dtype,
                         const GptConfig& config)
    : whole_(whole),
      biases_(bias_entries(config)),
      config_path_(config_path_for(path)),
      config_text_(gpt_config_json(config)),
      file_(path, entries_of(whole, dtype, biases_)) {}

void WeightsFile::write(const Parameters& part, Slice values) {
  for_each_counted_run(part, whole_,
                       [&](std::size_t parameter, Count in_whole, Count in_part, Count count) {
                         file_.write(parameter, in_whole, values.part(in_part, count));
                       });
}

void WeightsFile::write_bias(int layer, std::span<const double> bias) {
  const auto entry = std::ranges::find(biases_, router_bias_name(layer), &TensorEntry::name);
  require(entry != biases_.end(), "a router's bias for a model without");
  std::vector<double> numbers(bias.begin(), bias.end());
  file_.write(whole_.size() + static_cast<std::size_t>(entry - biases_.begin()), 0,
              host_slice(std::span(numbers)));
}

void WeightsFile::finish() {
  file_.finish();
  write_file(config_path_, config_text_);
}

}  // namespace lockstep
