#include "parallel/planner/software_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "collectives/base/error.h"
#include "collectives/base/printable.h"

namespace lockstep {
namespace {

using nlohmann::ordered_json;
using P = SoftwareProfile;

FittedConstant fitted_constant(const ordered_json& entry, const std::string& path) {
  const auto number = [&](const char* key) {
    require(entry.is_object() && entry.contains(key) && entry[key].is_number(), [&] {
      return fmt::format("{}: a fitted constant has no number \"{}\"", printable(path), key);
    });
    return entry[key].get<double>();
  };
  require(entry.is_object() && entry.contains("name") && entry["name"].is_string(),
          [&] { return fmt::format("{}: a fitted constant has no \"name\"", printable(path)); });
  constexpr int most_rows = 1000;
  require(
      number("rows") >= 1 && number("rows") <= most_rows,
      [&] {
        return fmt::format("{}: a fitted constant has {} rows", printable(path), number("rows"));
      },
      fmt::format("use 1 to {}", most_rows));
  const auto rows = static_cast<int>(number("rows"));
  const FittedConstant fitted{
      .name = entry["name"], .least = number("least"), .most = number("most"), .rows = rows};
  require(
      std::ranges::count(profile_fields(), fitted.name, &ConstantField<P>::name) > 0,
      [&] { return fmt::format("{}: fits \"{}\"", printable(path), printable(fitted.name)); },
      "there is no such constant");
  const bool is_fraction =
      std::ranges::find(profile_fields(), fitted.name, &ConstantField<P>::name)->unit == "fraction";
  require(
      fitted.least > 0 && fitted.least < fitted.most && (!is_fraction || fitted.most <= 1),
      [&] { return fmt::format("{}: \"{}\" has no range", printable(path), fitted.name); },
      "give 0 < least < most, and most of at most 1 for a fraction");
  return fitted;
}

}  // namespace

const std::vector<ConstantField<P>>& profile_fields() {
  static const std::vector<ConstantField<P>> fields = {
      {"gemm_efficiency", "fraction", &P::gemm_efficiency},
      {"fp8_relative_efficiency", "fraction", &P::fp8_relative_efficiency, true},
      {"fp8_cast_bytes", "B", &P::fp8_cast_bytes, true},
      {"tile_256x128", "fraction", &P::tile_256x128},
      {"tile_128x256", "fraction", &P::tile_128x256},
      {"tile_128x128", "fraction", &P::tile_128x128},
      {"tile_128x64", "fraction", &P::tile_128x64},
      {"tile_64x128", "fraction", &P::tile_64x128},
      {"tile_64x64", "fraction", &P::tile_64x64},
      {"tile_prologue", "elements", &P::tile_prologue},
      {"unaligned_64_cost", "ratio", &P::unaligned_64_cost, true},
      {"unaligned_8_cost", "ratio", &P::unaligned_8_cost, true},
      {"grouped_relative_efficiency", "fraction", &P::grouped_relative_efficiency, true},
      {"attention_forward_relative_efficiency", "fraction",
       &P::attention_forward_relative_efficiency},
      {"attention_backward_relative_efficiency", "fraction",
       &P::attention_backward_relative_efficiency},
      {"attention_backward_flops", "ratio", &P::attention_backward_flops},
      {"memory_efficiency", "fraction", &P::memory_efficiency},
      {"gather_efficiency", "fraction", &P::gather_efficiency, true},
      {"launch_seconds", "s", &P::launch_seconds},
      {"issue_seconds", "s", &P::issue_seconds},
      {"nvlink_efficiency", "fraction", &P::nvlink_efficiency},
      {"nvlink_latency", "s", &P::nvlink_latency},
      {"nic_efficiency", "fraction", &P::nic_efficiency},
      {"nic_latency", "s", &P::nic_latency},
      {"tensor_overlap_exposed", "fraction", &P::tensor_overlap_exposed},
      {"gradient_wire_bytes", "B", &P::gradient_wire_bytes},
      {"parameter_wire_bytes", "B", &P::parameter_wire_bytes},
      {"overlap_window", "fraction", &P::overlap_window},
      {"overlap_exposed", "fraction", &P::overlap_exposed},
      {"overlap_slowdown", "fraction", &P::overlap_slowdown},
      {"zero3_overlap", "fraction", &P::zero3_overlap},
      {"zero3_hop_seconds", "s", &P::zero3_hop_seconds},
      {"zero3_collectives_per_layer", "count", &P::zero3_collectives_per_layer},
      {"optimizer_bytes", "B", &P::optimizer_bytes},
      {"optimizer_launches", "count", &P::optimizer_launches},
      {"step_overhead", "s", &P::step_overhead},
      {"accumulation_bytes", "B", &P::accumulation_bytes},
      {"parameter_bytes", "B", &P::parameter_bytes},
      {"gradient_bytes", "B", &P::gradient_bytes},
      {"optimizer_state_bytes", "B", &P::optimizer_state_bytes},
      {"logit_bytes", "B", &P::logit_bytes},
      {"matrix_gradient_bytes", "B", &P::matrix_gradient_bytes, true},
      {"head_gradient_bytes", "B", &P::head_gradient_bytes, true},
      {"uncertainty", "fraction", &P::uncertainty}};
  return fields;
}

const std::vector<RuleField<P>>& profile_rules() {
  static const std::vector<RuleField<P>> rules = {
      {"flash_attention", &P::flash_attention},
      {"causal_attention", &P::causal_attention},
      {"dropout", &P::dropout},
      {"scatter_gather", &P::scatter_gather},
      {"blocking_sends", &P::blocking_sends},
      {"overlaps_gradients", &P::overlaps_gradients},
      {"overlaps_gradients_of_stages", &P::overlaps_gradients_of_stages},
      {"sharded_optimizer", &P::sharded_optimizer},
      {"flat_ring", &P::flat_ring},
      {"has_context_parallelism", &P::has_context_parallelism}};
  return rules;
}

SoftwareProfile software_profile(const std::string& planner_folder,
                                 const std::string& name_or_path) {
  const std::string path =
      constants_path(planner_folder + "/profiles", name_or_path, "software profile");
  const ordered_json file =
      read_constants_file(path, "lockstep.profile/1",
                          {"schema", "name", "software", "date", "constants", "rules", "fitted"});
  P profile;
  profile.name = file.at("name");
  for (const auto& [key, text] :
       {std::pair{"software", &profile.software}, {"date", &profile.date}}) {
    require(
        file.contains(key) && file[key].is_string(),
        [&, name = key] { return fmt::format("{}: no \"{}\"", printable(path), name); },
        "a profile is of one release of a framework");
    *text = file[key];
  }
  read_fields(file, path, profile_fields(), profile);
  require(
      profile.unaligned_64_cost <= profile.unaligned_8_cost,
      [&] {
        return fmt::format("{}: unaligned_64_cost is above unaligned_8_cost", printable(path));
      },
      "rows that are no multiple of 8 are none of 64 either: they cost at least as much");
  require(file.contains("rules") && file["rules"].is_object(),
          [&] { return fmt::format("{}: no \"rules\"", printable(path)); });
  std::vector<std::string_view> known;
  for (const RuleField<P>& rule : profile_rules()) {
    known.push_back(rule.name);
    const std::string name(rule.name);
    require(
        file["rules"].contains(name) && file["rules"][name].is_boolean(),
        [&] { return fmt::format("{}: no rule \"{}\"", printable(path), name); },
        "use true or false");
    profile.*rule.value = file["rules"][name];
  }
  refuse_unknown(file, path, "rules", known);
  require(
      file.contains("fitted") && file["fitted"].is_array(),
      [&] { return fmt::format("{}: no list \"fitted\"", printable(path)); },
      "it names the constants that calibration may fit");
  for (const ordered_json& entry : file["fitted"])
    profile.fitted.push_back(fitted_constant(entry, path));
  return profile;
}

}  // namespace lockstep
