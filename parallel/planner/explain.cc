// Why one plan and not another.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "collectives/base/error.h"
#include "collectives/base/json_text.h"
#include "parallel/planner/cases.h"
#include "parallel/planner/plan_space.h"
#include "parallel/planner/search.h"

namespace lockstep {
namespace {

using nlohmann::ordered_json;

struct Planner {
  const Transformer& model;
  const ClusterSheet& cluster;
  const SoftwareProfile& profile;
  double limit;

  // The plan with these keys, predicted or refused.
  FoundPlan evaluate(const ordered_json& keys, int gpus) const {
    const std::string where = "plan";
    FoundPlan found;
    try {
      found.arrangement = arrangement_from(keys, gpus, model, where);
      check(found.arrangement, model, cluster, profile, where);
      found.prediction = predict_step(model, found.arrangement, cluster, profile);
      found.fits = found.prediction.largest_memory() <= limit;
    } catch (const Error& error) {
      found.refused = refusal(error).substr(where.size() + 2);  // without "plan: "
    }
    return found;
  }
};

// 1F1B is interleaved if a rank has several stages.
bool is_1f1b(std::string_view schedule) { return schedule == "1f1b" || schedule == "interleaved"; }

// The changes, with 1F1B where the plan's schedule cannot have so many virtual stages.
ordered_json with_schedule(const Arrangement& plan, ordered_json changes) {
  if (is_1f1b(plan.schedule) || changes.contains("schedule") || !changes.contains("virtual_stages"))
    return changes;
  const int own = find_schedule(plan.schedule).virtual_stages;
  if (own > 0 ? changes["virtual_stages"] != own : changes["virtual_stages"] == 1)
    changes["schedule"] = "1f1b";
  return changes;
}

// Keys of the best plan with some of them changed. dp and the layers of each stage follow from the
// others, and whether 1F1B is interleaved from the virtual stages, unless they are given.
ordered_json changed(const Arrangement& best, const ordered_json& changes) {
  ordered_json keys = plan_keys(best);
  for (const char* key : {"dp", "layers_per_stage"}) keys.erase(key);
  if (changes.contains("virtual_stages") && is_1f1b(best.schedule)) keys["schedule"] = "1f1b";
  if (changes.contains("tp")) keys["sequence_parallel"] = keys["tp_overlap"] = changes["tp"] != 1;
  for (const auto& [key, value] : changes.items()) keys[key] = value;
  return keys;
}

std::string text_of(const ordered_json& changes) {
  std::string text;
  for (const auto& [key, value] : changes.items())
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", key,
                        value.is_string() ? value.get<std::string>() : shown(value));
  return text;
}

const RankMemory& largest(const StepPrediction& prediction) {
  return *std::ranges::max_element(prediction.memory, {}, &RankMemory::total);
}

std::string largest_class(const RankMemory& memory) {
  const std::pair<const char*, double> classes[] = {
      {"parameters", memory.parameters},       {"gradients", memory.gradients},
      {"optimizer states", memory.optimizer},  {"activations", memory.activations},
      {"communication", memory.communication}, {"workspace", memory.workspace}};
  const auto& most = *std::ranges::max_element(classes, {}, [](const auto& c) { return c.second; });
  return fmt::format("{} {:.1f} GB", most.first, most.second / gigabyte);
}

// The change, with zero 1 if it makes a pipeline, for which the cost model has no zero 2 and 3.
ordered_json with_zero(const Arrangement& a, ordered_json change) {
  if (change.contains("pp") && change["pp"] != 1 && !change.contains("zero") && a.zero_stage > 1)
    change["zero"] = 1;
  return change;
}

// The fastest plan that fits and differs in one thing.
std::string change_that_fits(const Planner& planner, const FoundPlan& plan) {
  const Arrangement& a = plan.arrangement;
  std::vector<ordered_json> tried;
  if (a.recompute != Recompute::full) tried.push_back({{"recompute", "full"}});
  if (a.recompute == Recompute::none && !planner.profile.flash_attention)
    tried.push_back({{"recompute", "selective"}});
  for (const int ep : expert_lengths(planner.model, a.gpus / a.pp))
    if (ep > a.ep) tried.push_back({{"ep", ep}});
  if (a.micro_batch_size > 1) tried.push_back({{"micro_batch_size", a.micro_batch_size / 2}});
  if (a.virtual_stages > 1) tried.push_back(with_schedule(a, {{"virtual_stages", 1}}));
  const int most_zero = a.pp == 1 ? 3 : 1;
  for (int zero = a.zero_stage + 1; zero <= most_zero && a.has_replicas(planner.model); ++zero)
    tried.push_back({{"zero", zero}});
  for (const auto& [axis, length] : {std::pair("tp", a.tp), {"cp", a.cp}, {"pp", a.pp}})
    tried.push_back(with_zero(a, {{axis, 2 * length}}));
  double least = std::numeric_limits<double>::infinity();
  std::string by;
  for (const ordered_json& change : tried) {
    const FoundPlan other = planner.evaluate(changed(a, change), a.gpus);
    if (!other.refused.empty() || !other.fits || other.prediction.seconds >= least) continue;
    least = other.prediction.seconds;
    by = text_of(change);
  }
  if (by.empty()) return "no single change makes it fit";
  return fmt::format("with {} it would, in {:.4g} s", by, least);
}

// The parts that differ most, in seconds.
std::string differences(const StepPrediction& plan, const StepPrediction& best) {
  std::vector<StepPart> parts;
  double compute = 0;
  for (const StepPart& part : plan.parts) {
    double difference = part.seconds;
    for (const StepPart& other : best.parts)
      if (other.name == part.name) difference -= other.seconds;
    if (part.is_compute)
      compute += difference;
    else
      parts.push_back({part.name, difference});
  }
  for (const StepPart& other : best.parts)
    if (std::ranges::count(plan.parts, other.name, &StepPart::name) == 0)
      parts.push_back({other.name, -other.seconds});
  parts.push_back({"compute", compute});
  std::ranges::stable_sort(parts, std::ranges::greater(),
                           [](const StepPart& part) { return std::abs(part.seconds); });
  constexpr std::size_t shown = 3;
  std::string text;
  double rest = 0;
  for (std::size_t i = 0; i < parts.size(); ++i)
    if (i < shown && parts[i].seconds != 0)
      text +=
          fmt::format("{}{} {:+.3g} s", text.empty() ? "" : ", ", parts[i].name, parts[i].seconds);
    else
      rest += parts[i].seconds;
  const bool is_rounding = std::abs(rest) < 1e-6 * best.seconds;
  return is_rounding ? text : text + fmt::format(", others {:+.2g} s", rest);
}

std::string verdict_of(const Planner& planner, const FoundPlan& plan, const FoundPlan& best) {
  if (!plan.refused.empty()) return "no such plan: " + plan.refused;
  if (!plan.fits) {
    const RankMemory& memory = largest(plan.prediction);
    return fmt::format("does not fit: {:.1f} GB of {:.1f} on stage {}, most of it {}; {}",
                       memory.total() / gigabyte, planner.limit / gigabyte, memory.rank,
                       largest_class(memory), change_that_fits(planner, plan));
  }
  if (plan_keys(plan.arrangement) == plan_keys(best.arrangement)) return "this is the best plan";
  const double slower = plan.prediction.seconds / best.prediction.seconds - 1;
  if (std::abs(slower) < 1e-9) return "just as fast";
  return fmt::format("{:.1f} % {}: {}", 100 * std::abs(slower), slower >= 0 ? "slower" : "faster",
                     differences(plan.prediction, best.prediction));
}

}  // namespace

Neighbour why_not(const ordered_json& asked, const Transformer& model, const ClusterSheet& cluster,
                  const SoftwareProfile& profile, const SearchResult& result) {
  const Planner planner{model, cluster, profile, result.limit};
  const FoundPlan& best = result.plans.front();
  const ordered_json changes = with_zero(best.arrangement, with_schedule(best.arrangement, asked));
  const ordered_json keys = changed(best.arrangement, changes);
  Neighbour neighbour{.change = text_of(changes),
                      .plan = planner.evaluate(keys, best.arrangement.gpus)};
  // The change may leave fewer GPUs for the experts of a stage, or fewer virtual stages.
  for (int ep = best.arrangement.ep / 2;
       ep >= 1 && !neighbour.plan.refused.empty() && !changes.contains("ep"); ep /= 2) {
    ordered_json fewer = changes;
    fewer["ep"] = ep;
    const FoundPlan plan =
        planner.evaluate(changed(best.arrangement, fewer), best.arrangement.gpus);
    if (plan.refused.empty()) neighbour = {.change = text_of(fewer), .plan = plan};
  }
  for (int v = best.arrangement.virtual_stages - 1;
       v >= 1 && !neighbour.plan.refused.empty() && !changes.contains("virtual_stages"); --v) {
    ordered_json fewer = changes;
    fewer["virtual_stages"] = v;
    fewer = with_schedule(best.arrangement, fewer);
    const FoundPlan plan =
        planner.evaluate(changed(best.arrangement, fewer), best.arrangement.gpus);
    if (plan.refused.empty()) neighbour = {.change = text_of(fewer), .plan = plan};
  }
  neighbour.verdict = verdict_of(planner, neighbour.plan, best);
  return neighbour;
}

std::vector<Neighbour> neighbours(const Transformer& model, const ClusterSheet& cluster,
                                  const SoftwareProfile& profile, const SearchResult& result) {
  const Arrangement& best = result.plans.front().arrangement;
  std::vector<ordered_json> changes;
  const auto add = [&](bool exists, ordered_json change) {
    if (exists) changes.push_back(std::move(change));
  };
  add(best.pp % 2 == 0, {{"tp", 2 * best.tp}, {"pp", best.pp / 2}});
  add(best.tp % 2 == 0, {{"tp", best.tp / 2}, {"pp", 2 * best.pp}});
  add(best.dp % 2 == 0, {{"tp", 2 * best.tp}});
  add(best.tp % 2 == 0, {{"tp", best.tp / 2}});
  add(best.dp % 2 == 0, {{"pp", 2 * best.pp}});
  add(best.pp % 2 == 0, {{"pp", best.pp / 2}});
  add(best.dp % 2 == 0, {{"cp", 2 * best.cp}});
  add(best.cp > 1, {{"cp", best.cp / 2}});
  const std::vector<int> lengths = expert_lengths(model, best.gpus / best.pp);
  const auto own = std::ranges::find(lengths, best.ep);
  if (own != lengths.end() && own + 1 != lengths.end()) changes.push_back({{"ep", *(own + 1)}});
  if (own != lengths.end() && own != lengths.begin()) changes.push_back({{"ep", *(own - 1)}});
  add(best.pp > 1 && best.dp > 1 && model.experts.count == 0,
      {{"order", order_of({.stages_first = !best.stages_first})}});
  for (const std::string& schedule : result.schedules) {
    const int stages = find_schedule(schedule).virtual_stages;
    // Of 1F1B, virtual stages are neighbours instead.
    add(best.pp > 1 && schedule != best.schedule && !(is_1f1b(schedule) && is_1f1b(best.schedule)),
        {{"schedule", schedule},
         {"virtual_stages", stages > 0 ? stages : std::max(2, best.virtual_stages)}});
  }
  const bool is_free = find_schedule(best.schedule).virtual_stages == 0 || is_1f1b(best.schedule);
  add(best.pp > 1 && is_free, {{"virtual_stages", 2 * best.virtual_stages}});
  add(best.virtual_stages > 1 && is_free, {{"virtual_stages", 1}});
  add(true, {{"micro_batch_size", 2 * best.micro_batch_size}});
  add(best.micro_batch_size > 1, {{"micro_batch_size", best.micro_batch_size / 2}});
  add(best.zero_stage < 3 && best.has_replicas(model), {{"zero", best.zero_stage + 1}});
  add(best.recompute != Recompute::full, {{"recompute", "full"}});
  add(best.recompute != Recompute::none, {{"recompute", "none"}});
  std::vector<Neighbour> result_list;
  for (const ordered_json& change : changes)
    result_list.push_back(why_not(change, model, cluster, profile, result));
  return result_list;
}

const std::vector<Resource>& resources() {
  using S = ClusterSheet;
  static const std::vector<Resource> list = {
      {"nic", "NIC bandwidth", {&S::nic_bytes_per_second}},
      {"nvlink", "NVLink bandwidth", {&S::nvlink_bytes_per_second}},
      {"memory-bandwidth", "memory bandwidth", {&S::memory_bytes_per_second}},
      {"peak", "peak of products", {&S::peak_16bit, &S::peak_fp8}}};
  return list;
}

ClusterSheet with_double(const Resource& resource, ClusterSheet cluster) {
  for (const auto rate : resource.rates) cluster.*rate *= 2;
  return cluster;
}

std::vector<WhatIf> what_if(const Transformer& model, const ClusterSheet& cluster,
                            const SoftwareProfile& profile, const FoundPlan& best) {
  std::vector<WhatIf> result;
  const auto add = [&](std::string change, const ClusterSheet& c, const SoftwareProfile& p) {
    const double seconds = predict_step(model, best.arrangement, c, p).seconds;
    result.push_back({std::move(change), seconds, 1 - seconds / best.prediction.seconds});
  };
  for (const Resource& resource : resources())
    add(fmt::format("twice the {}", resource.text), with_double(resource, cluster), profile);
  SoftwareProfile no_launches = profile;
  no_launches.launch_seconds = no_launches.issue_seconds = 0;
  add("launches that take no time", cluster, no_launches);
  return result;
}

std::vector<std::string> advice(const Transformer& model, const Arrangement& a) {
  constexpr std::int64_t aligned = 64;
  std::vector<std::string> result;
  const auto look = [&](std::int64_t length, const std::string& what) {
    if (length % aligned == 0) return;
    const std::int64_t below = length / aligned * aligned, above = below + aligned;
    result.push_back(
        fmt::format("{} is {}, not a multiple of {}: take {}", what, length, aligned,
                    below == 0 ? fmt::format("{}", above) : fmt::format("{} or {}", below, above)));
  };
  look(model.head_size, "the head size");
  look(model.width, "the width");
  if (model.has_dense_layers()) look(model.ffn / a.tp, "the MLP's columns on each rank");
  if (model.experts.count > 0) look(model.experts.ffn / a.etp, "an expert's columns on each rank");
  if (padded_vocabulary(model, a) != model.vocabulary)
    result.push_back(
        fmt::format("the vocabulary {} is padded to {}: each rank of tp has a multiple of 128",
                    model.vocabulary, padded_vocabulary(model, a)));
  return result;
}

}  // namespace lockstep
