#include "parallel/planner/constants.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "collectives/base/error.h"
#include "collectives/base/json_text.h"
#include "collectives/base/printable.h"

namespace lockstep {

using nlohmann::ordered_json;

namespace {

constexpr std::int64_t most_file_bytes = 1 << 20;

bool is_text(const ordered_json& object, const char* key) {
  return object.contains(key) && object[key].is_string() &&
         !object[key].get_ref<const std::string&>().empty();
}

}  // namespace

ordered_json read_constants_file(const std::string& path, std::string_view schema,
                                 const std::vector<std::string_view>& keys) {
  ordered_json file = read_json<ordered_json>(path, most_file_bytes);
  const auto expect = [&](bool holds, std::string_view what) {
    require(
        holds, [&] { return fmt::format("{}: {}", printable(path), what); },
        fmt::format("see the files of this kind in parallel/planner; their schema is {}", schema));
  };
  expect(file.is_object(), "not a JSON object");
  expect(file.contains("schema") && file["schema"] == schema, "has another \"schema\"");
  for (const auto& [key, value] : file.items())
    expect(std::ranges::count(keys, std::string_view(key)) > 0,
           fmt::format("has an unknown key \"{}\"", printable(key)));
  expect(is_text(file, "name"), "has no \"name\"");
  expect(file.contains("constants") && file["constants"].is_object(), "has no \"constants\"");
  for (const auto& [name, constant] : file["constants"].items()) {
    expect(constant.is_object() && constant.contains("value") && constant["value"].is_number(),
           fmt::format("\"{}\" has no number as its \"value\"", printable(name)));
    expect(is_text(constant, "unit"), fmt::format("\"{}\" has no \"unit\"", printable(name)));
    expect(is_text(constant, "source"), fmt::format("\"{}\" has no \"source\"", printable(name)));
  }
  return file;
}

void read_constant(const ordered_json& file, const std::string& path, std::string_view name,
                   std::string_view unit, bool may_be_absent, double& value) {
  const ordered_json& constants = file.at("constants");
  if (may_be_absent && !constants.contains(name)) return;
  require(
      constants.contains(name),
      [&] { return fmt::format("{}: no constant \"{}\"", printable(path), name); },
      fmt::format("state it, in {}, with its source", unit));
  const ordered_json& constant = constants.at(std::string(name));
  value = constant.at("value").get<double>();
  require(
      std::isfinite(value) && value >= 0 &&
          (value > 0 || may_be_absent || unit == "s" || unit == "fraction"),
      [&] { return fmt::format("{}: \"{}\" is {}", printable(path), name, value); },
      "rates, sizes and times are positive");
  require(
      unit != "fraction" || value <= 1,
      [&] { return fmt::format("{}: \"{}\" is {}", printable(path), name, value); },
      "it is a fraction: use a number from 0 to 1");
  constexpr double most_count = 1e6;
  require(
      unit != "count" || (value == std::floor(value) && value <= most_count),
      [&] { return fmt::format("{}: \"{}\" is {}", printable(path), name, value); },
      fmt::format("it is a count: use a whole number up to {}", most_count));
  require(
      constant.at("unit") == unit,
      [&] {
        return fmt::format("{}: \"{}\" is in {}", printable(path), name, shown(constant["unit"]));
      },
      fmt::format("give it in {}", unit));
}

void refuse_unknown(const ordered_json& file, const std::string& path, const char* group,
                    const std::vector<std::string_view>& known) {
  for (const auto& [name, value] : file.at(group).items())
    require(
        std::ranges::count(known, std::string_view(name)) > 0,
        [&, &key = name] {
          return fmt::format("{}: nothing reads \"{}\"", printable(path), printable(key));
        },
        fmt::format("known are {}", fmt::join(known, ", ")));
}

std::string constants_path(const std::string& folder, const std::string& name_or_path,
                           std::string_view what) {
  if (name_or_path.ends_with(".json")) return name_or_path;
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    names.insert(entry.path().stem().string());
  require(
      names.contains(name_or_path),
      [&] { return fmt::format("no {} \"{}\"", what, printable(name_or_path)); },
      fmt::format("choose one of {}, or name a .json file", fmt::join(names, ", ")));
  return (std::filesystem::path(folder) / (name_or_path + ".json")).string();
}

}  // namespace lockstep
