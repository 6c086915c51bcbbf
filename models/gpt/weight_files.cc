#include "models/gpt/weight_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "collectives/base/error.h"
#include "collectives/base/json_text.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* whole_name = "model.safetensors";
constexpr const char* index_name = "model.safetensors.index.json";

// The file with the weights, or their index, in a folder.
std::string weights_in(const fs::path& folder) {
  std::error_code none;
  for (const char* name : {whole_name, index_name})
    if (fs::exists(folder / name, none)) return folder / name;
  std::vector<std::string> found;
  for (const auto& entry : fs::directory_iterator(folder, none))
    if (entry.path().extension() == ".safetensors") found.push_back(entry.path().filename());
  std::ranges::sort(found);
  require(
      !found.empty(),
      fmt::format("the folder {} has neither {} nor {}", folder.string(), whole_name, index_name),
      fs::exists(folder / "pytorch_model.bin", none)
          ? "pytorch_model.bin is not read: load it with transformers, and save it with "
            "save_pretrained"
          : "name a folder with a model's weights, or a .safetensors file");
  require(found.size() == 1,
          fmt::format("the folder {} has neither {} nor {}, but {} other .safetensors files, such "
                      "as {}",
                      folder.string(), whole_name, index_name, found.size(), found.front()),
          "name one of them; a checkpoint of a training run is read with --resume");
  return folder / found.front();
}

// For each shard, by its name next to the index, the tensors that it should have.
std::map<std::string, std::set<std::string>> shards_of(const std::string& path) {
  constexpr std::int64_t most_bytes = 64 << 20;
  const json index = read_json(path, most_bytes);
  const auto require_that = [&](bool condition, const std::string& what) {
    require(condition, fmt::format("{}: {}", path, what),
            "give the index of sharded weights, or a .safetensors file");
  };
  require_that(index.is_object() && index.value("weight_map", json()).is_object(),
               "no object \"weight_map\"");
  std::map<std::string, std::set<std::string>> shards;
  for (const auto& [tensor, shard] : index["weight_map"].items()) {
    const auto name = shard.is_string() ? shard.get<std::string>() : "";
    require_that(
        !name.empty() && fs::path(name).filename() == name,
        fmt::format("the shard of '{}' is {}, not a file next to the index", tensor, shown(shard)));
    shards[name].insert(tensor);
  }
  require_that(!shards.empty(), "\"weight_map\" names no file");
  return shards;
}

}  // namespace

std::vector<std::string> weight_paths(const std::string& path) {
  std::error_code none;
  const std::string file = fs::is_directory(path, none) ? weights_in(path) : path;
  if (!file.ends_with(".json")) return {file};
  std::vector<std::string> paths;
  for (const auto& [name, tensors] : shards_of(file))
    paths.push_back(fs::path(file).replace_filename(name));
  return paths;
}

std::deque<SafetensorsFile> open_weights(const std::string& path) {
  std::error_code none;
  const std::string file = fs::is_directory(path, none) ? weights_in(path) : path;
  std::deque<SafetensorsFile> opened;
  if (!file.ends_with(".json")) {
    opened.emplace_back(file);
    return opened;
  }
  for (auto& [name, tensors] : shards_of(file)) {
    const SafetensorsFile& shard = opened.emplace_back(fs::path(file).replace_filename(name));
    for (const TensorEntry& tensor : shard.tensors()) tensors.erase(tensor.name);
    require(tensors.empty(),
            fmt::format("{}: no tensor '{}', which {} says it has", shard.path(),
                        tensors.empty() ? "" : *tensors.begin(), file),
            "the shards and the index are of different models; get them again");
  }
  return opened;
}

}  // namespace lockstep
