#include "parallel/planner/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <tuple>

#include "collectives/base/error.h"
#include "parallel/planner/plan_space.h"
#include "parallel/planner/quick_step.h"

namespace lockstep {
namespace {

struct RankedPlan {
  Arrangement arrangement;
  double seconds = 0;
};

// Layer costs depend on few of a plan's lengths.
class LayerCostTable {
 public:
  LayerCostTable(const Transformer& model, const ClusterSheet& cluster,
                 const SoftwareProfile& profile)
      : model_(model), cluster_(cluster), profile_(profile) {}

  const LayerCosts& of(const Arrangement& a) {
    const Key key{a.tp, a.cp, a.ep, a.etp, a.micro_batch_size, a.recompute};
    const auto found = known_.find(key);
    if (found != known_.end()) return found->second;
    return known_.emplace(key, layer_costs(model_, a, cluster_, profile_)).first->second;
  }

 private:
  using Key = std::tuple<int, int, int, int, std::int64_t, Recompute>;
  const Transformer& model_;
  const ClusterSheet& cluster_;
  const SoftwareProfile& profile_;
  std::map<Key, LayerCosts> known_;
};

SearchOptions with_defaults(SearchOptions options, const Transformer& model) {
  constexpr std::int64_t usual_sequence = 4096;
  if (options.sequence_length == 0)
    options.sequence_length =
        model.context > 0 ? std::min(model.context, usual_sequence) : usual_sequence;
  if (options.global_batch == 0) options.global_batch = options.gpus;
  return options;
}

// The plans of one tp and pp, in closed form.
struct BestOfLengths {
  RankedPlan fastest;   // of those that fit
  RankedPlan smallest;  // of all
  double least_memory = 0;

  void add(const RankedPlan& plan, double memory, bool fits) {
    if (least_memory == 0 || memory < least_memory) least_memory = memory, smallest = plan;
    if (fits && (fastest.seconds == 0 || plan.seconds < fastest.seconds)) fastest = plan;
  }
  const RankedPlan& best() const { return fastest.seconds > 0 ? fastest : smallest; }
};

bool is_faster(const FoundPlan& a, const FoundPlan& b) {
  return std::tuple(!a.fits, a.prediction.seconds) < std::tuple(!b.fits, b.prediction.seconds);
}

FoundPlan replayed(const RankedPlan& plan, const Transformer& model, const ClusterSheet& cluster,
                   const SoftwareProfile& profile, double limit) {
  FoundPlan found{.arrangement = plan.arrangement, .quick_seconds = plan.seconds};
  found.arrangement.layers_per_stage = balanced_layers(model.layers, found.arrangement.stages());
  found.prediction = predict_step(model, found.arrangement, cluster, profile);
  found.fits = found.prediction.largest_memory() <= limit;
  return found;
}

}  // namespace

SearchResult search_plans(const Transformer& model, const ClusterSheet& cluster,
                          const SoftwareProfile& profile, const SearchOptions& given) {
  const SearchOptions options = with_defaults(given, model);
  SearchResult result{.schedules = options.schedules};
  result.limit =
      options.memory_limit > 0 ? options.memory_limit : fitting_part * cluster.memory_bytes;
  check_experts(model, profile, "search");
  LayerCostTable costs(model, cluster, profile);
  std::vector<RankedPlan> ranked;
  std::map<std::pair<int, int>, BestOfLengths> by_tp_pp;
  for_each_plan(
      model, cluster, profile, options,
      [&](const Arrangement& a) {
        ++result.considered;
        const QuickStep quick = quick_step({model, a, cluster, profile, costs.of(a)});
        const bool fits = quick.largest_memory <= result.limit;
        by_tp_pp[{a.tp, a.pp}].add({a, quick.seconds}, quick.largest_memory, fits);
        if (fits)
          ranked.push_back({a, quick.seconds});
        else
          ++result.rejected["memory"];
      },
      [&](const std::string& reason) { ++result.rejected[reason]; });
  require(
      result.considered > 0,
      [&] { return fmt::format("no plan of this model has {} GPUs", options.gpus); },
      "choose a number of GPUs and a global batch with more divisors");
  require(
      !ranked.empty(),
      [&] {
        const BestOfLengths& least =
            std::ranges::min_element(by_tp_pp, {}, [](const auto& lengths) {
              return lengths.second.least_memory;
            })->second;
        return fmt::format("no plan fits: the smallest, {}, needs {:.1f} GB of {:.1f} on each GPU",
                           text_of(least.smallest.arrangement), least.least_memory / gigabyte,
                           result.limit / gigabyte);
      },
      "use more GPUs, or a larger --memory-limit if the GPUs have the memory");
  const auto best_end =
      ranked.begin() + std::min<std::ptrdiff_t>(options.replayed, std::ssize(ranked));
  std::ranges::partial_sort(ranked, best_end, {}, &RankedPlan::seconds);
  for (auto plan = ranked.begin(); plan != best_end; ++plan) {
    const FoundPlan& found =
        result.plans.emplace_back(replayed(*plan, model, cluster, profile, result.limit));
    result.quick_error =
        std::max(result.quick_error, std::abs(found.quick_seconds / found.prediction.seconds - 1));
  }
  std::ranges::stable_sort(result.plans, is_faster);
  for (const auto& [lengths, found] : by_tp_pp) {
    const auto same_lengths = [&](const FoundPlan& plan) {
      return std::pair(plan.arrangement.tp, plan.arrangement.pp) == lengths;
    };
    // The first is the fastest of them that fits.
    const auto known = std::ranges::find_if(result.plans, same_lengths);
    result.by_tp_pp.push_back(known != result.plans.end() && known->fits
                                  ? *known
                                  : replayed(found.best(), model, cluster, profile, result.limit));
  }
  return result;
}

std::string text_of(const Arrangement& a) {
  std::string text = fmt::format("tp {}", a.tp);
  if (a.cp > 1) text += fmt::format(", cp {}", a.cp);
  if (a.ep > 1) text += fmt::format(", ep {}", a.ep);
  if (a.etp > 1) text += fmt::format(", etp {}", a.etp);
  text += fmt::format(", pp {}, dp {}", a.pp, a.dp);
  if (a.stages_first) text += fmt::format(", order {}", order_of(a));
  if (a.schedule != "1f1b" && a.schedule != "interleaved") text += ", " + a.schedule;
  if (a.virtual_stages > 1) text += fmt::format(", {} virtual stages", a.virtual_stages);
  text += fmt::format(", micro-batch {}", a.micro_batch_size);
  if (a.recompute != Recompute::none) text += fmt::format(", recompute {}", name_of(a.recompute));
  if (a.zero_stage > 0) text += fmt::format(", zero {}", a.zero_stage);
  return text;
}

nlohmann::ordered_json plan_keys(const Arrangement& a) {
  return {{"tp", a.tp},
          {"cp", a.cp},
          {"pp", a.pp},
          {"dp", a.dp},
          {"ep", a.ep},
          {"etp", a.etp},
          {"order", order_of(a)},
          {"zero", a.zero_stage},
          {"schedule", a.schedule},
          {"virtual_stages", a.virtual_stages},
          {"micro_batch_size", a.micro_batch_size},
          {"global_batch", a.global_batch},
          {"sequence_length", a.sequence_length},
          {"recompute", name_of(a.recompute)},
          {"sequence_parallel", a.sequence_parallel},
          {"gemm_dtype", a.fp8_gemms ? "fp8" : "bf16"},
          {"tp_overlap", a.tensor_overlap},
          {"layers_per_stage", a.layers_per_stage}};
}

}  // namespace lockstep
