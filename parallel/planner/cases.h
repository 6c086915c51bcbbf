// Many plans at once, in JSON: {"schema": "lockstep.cases/1", "cases": [...]} in,
// {"schema": "lockstep.predictions/1", "cases": [...]} out, in the same order.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "collectives/base/error.h"
#include "parallel/planner/step_time.h"

namespace lockstep {

// One plan to predict, and how long its step really took, if that is known.
struct PlanCase {
  std::string name;
  Transformer model;
  Arrangement arrangement;
  ClusterSheet cluster;
  std::string profile_file;  // as the case names it
  SoftwareProfile profile;
  std::optional<double> measured_seconds;
  bool calibrates = false;  // fits the profile's constants for its group
  std::string calibration_group = "all";
};

// The sheets and profiles of a folder, each read once.
class PlannerFiles {
 public:
  explicit PlannerFiles(std::string folder) : folder_(std::move(folder)) {}
  // Both throw Error (bad_input) like cluster_sheet and software_profile.
  const ClusterSheet& cluster(const std::string& name);
  const SoftwareProfile& profile(const std::string& name);

 private:
  std::string folder_;
  std::map<std::string, ClusterSheet> clusters_;
  std::map<std::string, SoftwareProfile> profiles_;
};

// Reads one case. Throws Error (bad_input) naming the case if a key is unknown, missing or of the
// wrong kind, or if the case is outside of the model's domain.
PlanCase read_case(const nlohmann::ordered_json& entry, const std::string& name,
                   PlannerFiles& files);
// What to tell the user of a refused case.
std::string refusal(const Error& error);

// Fits the profile of each group to those of its cases that calibrate, for all cases of the group.
void calibrate(const std::vector<PlanCase*>& cases);

StepPrediction predict_step(const PlanCase& plan_case);

struct CaseResult {
  std::string name;
  std::string refused;  // why; empty: predicted
  PlanCase plan_case;
  StepPrediction prediction;
};

// Predicts all cases of a file. Throws Error (bad_input) if it is not a list of cases; a case
// outside of the model's domain is refused alone.
std::vector<CaseResult> predict_cases(const nlohmann::ordered_json& file, const std::string& path,
                                      const std::string& planner_folder);

nlohmann::ordered_json predictions_json(const std::vector<CaseResult>& results);

}  // namespace lockstep
