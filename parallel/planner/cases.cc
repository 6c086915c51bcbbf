#include "parallel/planner/cases.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "collectives/base/error.h"
#include "collectives/base/json_text.h"
#include "collectives/base/printable.h"
#include "parallel/planner/calibration.h"

namespace lockstep {
namespace {

using nlohmann::ordered_json;

constexpr std::string_view case_keys[] = {"name",
                                          "model",
                                          "cluster",
                                          "profile",
                                          "gpus",
                                          "nic_bytes_per_second",
                                          "plan",
                                          "measured_seconds",
                                          "measured_tflops_per_gpu",
                                          "calibrates",
                                          "calibration_group"};

class CaseReader {
 public:
  CaseReader(const ordered_json& entry, std::string where)
      : entry_(entry), where_(std::move(where)) {
    for (const auto& [key, value] : entry.items())
      expect(std::ranges::count(case_keys, std::string_view(key)) > 0,
             fmt::format("an unknown key \"{}\"", printable(key)),
             fmt::format("known are {}", fmt::join(case_keys, ", ")));
  }

  PlanCase read(PlannerFiles& files) const {
    PlanCase result;
    result.name = text("name");
    expect(has("model"), "no \"model\"", "give the keys of a config.json");
    result.model = transformer_from(entry_["model"], where_);
    result.cluster = files.cluster(text("cluster"));
    result.profile_file = text("profile");
    result.profile = files.profile(result.profile_file);
    if (has("nic_bytes_per_second"))
      result.cluster.nic_bytes_per_second = positive("nic_bytes_per_second");
    expect(has("gpus") && entry_["gpus"].is_number_integer() && entry_["gpus"] >= 1 &&
               entry_["gpus"] <= 1 << 20,
           "no number of \"gpus\" from 1 to 1048576", "how many GPUs train the model?");
    expect(has("plan"), "no \"plan\"", "say how the GPUs train the model");
    result.arrangement = arrangement_from(entry_["plan"], entry_["gpus"], result.model, where_);
    check(result.arrangement, result.model, result.cluster, result.profile, where_);
    if (has("measured_seconds")) result.measured_seconds = positive("measured_seconds");
    if (has("measured_tflops_per_gpu")) {
      expect(!result.measured_seconds, "both measured_seconds and measured_tflops_per_gpu",
             "give one of them");
      result.measured_seconds =
          hardware_flops(result.model, result.arrangement) /
          (positive("measured_tflops_per_gpu") * 1e12 * result.arrangement.gpus);
    }
    if (has("calibrates")) {
      expect(entry_["calibrates"].is_boolean(), "\"calibrates\" is not true or false", "");
      result.calibrates = entry_["calibrates"];
    }
    if (has("calibration_group")) result.calibration_group = text("calibration_group");
    expect(!result.calibrates || result.measured_seconds, "it calibrates without measured_seconds",
           "give the seconds of its step");
    return result;
  }

 private:
  bool has(const char* key) const { return entry_.contains(key) && !entry_[key].is_null(); }
  std::string text(const char* key) const {
    expect(has(key) && entry_[key].is_string(), fmt::format("no text \"{}\"", key), "");
    return entry_[key];
  }
  double positive(const char* key) const {
    const bool is_positive = entry_[key].is_number() && std::isfinite(entry_[key].get<double>()) &&
                             entry_[key].get<double>() > 0;
    expect(is_positive, fmt::format("\"{}\" is {}", key, shown(entry_[key])),
           "use a positive number");
    return entry_[key];
  }
  void expect(bool holds, const std::string& what, const std::string& hint) const {
    require(
        holds, [&] { return fmt::format("{}: {}", where_, what); }, hint);
  }

  const ordered_json& entry_;
  std::string where_;
};

std::string name_of_case(const ordered_json& entry, std::size_t index) {
  const bool has_name = entry.is_object() && entry.contains("name") && entry["name"].is_string();
  return has_name ? entry["name"].get<std::string>() : fmt::format("case {}", index + 1);
}

template <typename T, typename Read>
const T& read_once(std::map<std::string, T>& known, const std::string& name, const Read& read) {
  const auto found = known.find(name);
  return found != known.end() ? found->second : known.emplace(name, read()).first->second;
}

}  // namespace

const ClusterSheet& PlannerFiles::cluster(const std::string& name) {
  return read_once(clusters_, name, [&] { return cluster_sheet(folder_, name); });
}
const SoftwareProfile& PlannerFiles::profile(const std::string& name) {
  return read_once(profiles_, name, [&] { return software_profile(folder_, name); });
}

PlanCase read_case(const ordered_json& entry, const std::string& name, PlannerFiles& files) {
  require(
      entry.is_object(), [&] { return fmt::format("{}: not an object", printable(name)); },
      "a case has a model, a cluster, a profile, gpus and a plan");
  return CaseReader(entry, printable(name)).read(files);
}

std::string refusal(const Error& error) {
  const std::string& hint = error.context().hint;
  return hint.empty() ? error.message() : fmt::format("{}; {}", error.message(), hint);
}

void calibrate(const std::vector<PlanCase*>& cases) {
  std::map<std::pair<std::string, std::string>, std::vector<PlanCase*>> groups;
  for (PlanCase* c : cases) groups[{c->calibration_group, c->profile_file}].push_back(c);
  for (const auto& [name, members] : groups) {
    std::vector<MeasuredStep> steps;
    for (const PlanCase* c : members)
      if (c->calibrates)
        steps.push_back({&c->model, &c->arrangement, &c->cluster, *c->measured_seconds});
    if (steps.empty()) continue;
    SoftwareProfile fitted = calibrated(members.front()->profile, steps);
    fitted.uncertainty = std::max(fitted.uncertainty, 2 * relative_error(fitted, steps));
    for (PlanCase* c : members) c->profile = fitted;
  }
}

StepPrediction predict_step(const PlanCase& c) {
  return predict_step(c.model, c.arrangement, c.cluster, c.profile);
}

std::vector<CaseResult> predict_cases(const ordered_json& file, const std::string& path,
                                      const std::string& planner_folder) {
  require(
      file.is_object() && file.contains("schema") && file["schema"] == "lockstep.cases/1" &&
          file.contains("cases") && file["cases"].is_array() && !file["cases"].empty(),
      [&] { return fmt::format("{}: not a list of cases", printable(path)); },
      R"(give {"schema": "lockstep.cases/1", "cases": [...]} with at least one case)");
  PlannerFiles files(planner_folder);
  std::vector<CaseResult> results;
  for (const ordered_json& entry : file["cases"]) {
    CaseResult& result = results.emplace_back();
    result.name = name_of_case(entry, results.size() - 1);
    try {
      result.plan_case = read_case(entry, result.name, files);
    } catch (const Error& error) {
      result.refused = refusal(error);
    }
  }
  std::vector<PlanCase*> predicted;
  for (CaseResult& result : results)
    if (result.refused.empty()) predicted.push_back(&result.plan_case);
  calibrate(predicted);
  for (CaseResult& result : results)
    if (result.refused.empty()) result.prediction = predict_step(result.plan_case);
  return results;
}

ordered_json predictions_json(const std::vector<CaseResult>& results) {
  ordered_json cases = ordered_json::array();
  for (const CaseResult& result : results) {
    if (!result.refused.empty()) {
      cases.push_back({{"name", result.name}, {"refused", result.refused}});
      continue;
    }
    const StepPrediction& p = result.prediction;
    ordered_json entry = {{"name", result.name},
                          {"seconds", p.seconds},
                          {"interval", {p.least(), p.most()}},
                          {"tflops_per_gpu", p.hardware_flops_per_second / 1e12},
                          {"model_tflops_per_gpu", p.model_flops_per_second / 1e12},
                          {"tokens_per_second", p.tokens_per_second},
                          {"parts", ordered_json::object()},
                          {"memory", ordered_json::array()},
                          {"verdict", p.verdict},
                          {"assumptions", result.plan_case.arrangement.assumptions}};
    double compute = 0;
    for (const StepPart& part : p.parts) {
      if (part.is_compute)
        compute += part.seconds;
      else
        entry["parts"][std::string(part.name)] = part.seconds;
      entry["waterfall"][std::string(part.name)] = part.seconds;
    }
    entry["parts"]["compute"] = compute;
    for (const RankMemory& m : p.memory)
      entry["memory"].push_back({{"stage", m.rank},
                                 {"total", m.total()},
                                 {"parameters", m.parameters},
                                 {"gradients", m.gradients},
                                 {"optimizer", m.optimizer},
                                 {"activations", m.activations},
                                 {"communication", m.communication},
                                 {"workspace", m.workspace}});
    cases.push_back(std::move(entry));
  }
  return {{"schema", "lockstep.predictions/1"}, {"cases", std::move(cases)}};
}

}  // namespace lockstep
