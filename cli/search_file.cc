#include "cli/search_file.h"

#include <nlohmann/json.hpp>

#include "collectives/base/json_text.h"
#include "parallel/planner/cases.h"

namespace lockstep {
namespace {

using nlohmann::ordered_json;

ordered_json neighbours_json(const std::vector<Neighbour>& list) {
  ordered_json result = ordered_json::array();
  for (const Neighbour& n : list) {
    ordered_json entry = {{"change", n.change}, {"verdict", n.verdict}};
    if (n.plan.refused.empty()) entry["seconds"] = n.plan.prediction.seconds;
    result.push_back(std::move(entry));
  }
  return result;
}

ordered_json plans_json(const std::vector<FoundPlan>& plans) {
  ordered_json list = ordered_json::array();
  for (const FoundPlan& plan : plans) {
    CaseResult one{.name = text_of(plan.arrangement),
                   .refused = {},
                   .plan_case = {},
                   .prediction = plan.prediction};
    ordered_json entry = predictions_json({one})["cases"][0];
    entry["plan"] = plan_keys(plan.arrangement);
    entry["closed_form_seconds"] = plan.quick_seconds;
    entry["fits"] = plan.fits;
    list.push_back(std::move(entry));
  }
  return list;
}

ordered_json by_tp_pp_json(const std::vector<FoundPlan>& plans) {
  ordered_json list = ordered_json::array();
  for (const FoundPlan& plan : plans)
    list.push_back({{"tp", plan.arrangement.tp},
                    {"pp", plan.arrangement.pp},
                    {"name", text_of(plan.arrangement)},
                    {"seconds", plan.prediction.seconds},
                    {"memory", plan.prediction.largest_memory()},
                    {"fits", plan.fits}});
  return list;
}

}  // namespace

std::string search_json(const SearchAnswer& answer) {
  const SearchResult& result = answer.result;
  ordered_json file = {{"schema", "lockstep.search/1"},
                       {"model", answer.model},
                       {"cluster", answer.cluster},
                       {"profile", answer.profile},
                       {"gpus", answer.gpus},
                       {"memory_limit", result.limit},
                       {"considered", result.considered},
                       {"rejected", ordered_json::array()},
                       {"closed_form_error", result.quick_error}};
  for (const auto& [reason, count] : result.rejected)
    file["rejected"].push_back({{"reason", reason}, {"plans", count}});
  file["plans"] = plans_json(result.plans);
  file["by_tp_pp"] = by_tp_pp_json(result.by_tp_pp);
  file["why_not"] = neighbours_json(answer.why_not);
  file["neighbours"] = neighbours_json(answer.neighbours);
  for (const WhatIf& w : answer.what_if)
    file["what_if"].push_back({{"change", w.change}, {"seconds", w.seconds}, {"saved", w.saved}});
  file["advice"] = answer.advice;
  return json_text(file);
}

}  // namespace lockstep
