#include "parallel/planner/plan_space.h"

#include <fmt/format.h>

#include <algorithm>

#include "collectives/base/error.h"
#include "parallel/planner/exchange_time.h"

namespace lockstep {
namespace {

std::vector<int> divisors(std::int64_t n) {
  std::vector<int> result;
  for (int d = 1; d <= n && d <= (1 << 20); ++d)
    if (n % d == 0) result.push_back(d);
  return result;
}

bool takes(const ScheduleEntry& schedule, const PipelineShape& shape) {
  try {
    if (schedule.check) schedule.check(shape);
  } catch (const Error&) {
    return false;
  }
  return true;
}

class PlanSpace {
 public:
  PlanSpace(const Transformer& model, const ClusterSheet& cluster, const SoftwareProfile& profile,
            const SearchOptions& options, const std::function<void(const Arrangement&)>& take,
            const std::function<void(const std::string&)>& reject)
      : model_(model),
        cluster_(cluster),
        profile_(profile),
        options_(options),
        take_(take),
        reject_(reject) {
    for (const std::string& name : options.schedules) schedules_.push_back(&find_schedule(name));
  }

  void walk() {
    for (const int tp : divisors(options_.gpus)) {
      if (!tensor_fits(tp)) continue;
      for (const int cp : context_lengths(options_.gpus / tp))
        for (const int pp : divisors(options_.gpus / tp / cp)) {
          if (pp > model_.layers) {
            reject_("pp is more than the layers");
            continue;
          }
          walk_experts({.gpus = options_.gpus,
                        .tp = tp,
                        .cp = cp,
                        .pp = pp,
                        .dp = options_.gpus / tp / cp / pp,
                        .global_batch = options_.global_batch,
                        .sequence_length = options_.sequence_length,
                        .sequence_parallel = tp > 1,
                        .fp8_gemms = options_.fp8_gemms,
                        .tensor_overlap = tp > 1 && profile_.tensor_overlap_exposed < 1});
        }
    }
  }

 private:
  bool tensor_fits(int tp) {
    const char* const reason =
        tp > cluster_.gpus_per_node ? "tp is more than a node's GPUs"
        : static_cast<std::int64_t>(cluster_.gpus_per_node) % tp != 0
            ? "tp does not divide a node's GPUs"
        : model_.heads % tp != 0 ? "tp does not divide the heads"
        : model_.kv_heads % tp != 0 && tp % model_.kv_heads != 0
            ? "tp does not fit the key/value heads"
        : model_.has_dense_layers() && model_.ffn % tp != 0 ? "tp does not divide the MLP"
        : model_.experts.shared_ffn % tp != 0          ? "tp does not divide the shared experts"
        : tp > 1 && options_.sequence_length % tp != 0 ? "tp does not divide the sequence"
                                                       : nullptr;
    if (reason) reject_(reason);
    return !reason;
  }

  std::vector<int> context_lengths(int ranks) {
    std::vector<int> result;
    for (int cp = 1; cp <= ranks; cp *= 2) {
      if (ranks % cp != 0) break;
      if (cp > 1 && !profile_.has_context_parallelism)
        reject_("the software has no cp");
      else if (cp > 1 && options_.sequence_length % (2 * cp) != 0)
        reject_("cp does not divide the sequence");
      else
        result.push_back(cp);
    }
    return result;
  }

  void walk_experts(Arrangement a) {
    const bool has_experts = model_.experts.count > 0;
    for (const int ep : expert_lengths(model_, options_.gpus / a.pp))
      for (int etp = 1; etp <= (has_experts ? a.tp : 1); etp *= 2) {
        a.ep = ep;
        a.etp = etp;
        if (a.tp * a.cp * a.dp % (ep * etp) != 0 || (etp > 1 && model_.experts.ffn % etp != 0)) {
          reject_("etp does not divide an expert's columns, or ep x etp a stage's GPUs");
          continue;
        }
        a.stages_first = false;
        walk_batches(a);
        // It is of use where it puts the stages into a node, which would lie in several.
        const bool were_in_node = has_stages_in_nodes(a, cluster_);
        a.stages_first = true;
        if (!has_experts && a.pp > 1 && !were_in_node && has_stages_in_nodes(a, cluster_))
          walk_batches(a);
      }
  }

  void walk_batches(Arrangement a) {
    constexpr std::int64_t most_sequences = 64;
    if (options_.global_batch % a.dp != 0) return reject_("dp does not divide the batch");
    const std::int64_t own = options_.global_batch / a.dp;
    for (std::int64_t micro = 1; micro <= std::min(own, most_sequences); ++micro) {
      if (own % micro != 0) continue;
      a.micro_batch_size = micro;
      if (a.passes() > most_passes) {
        reject_(too_many_passes);
        continue;
      }
      if (a.pp == 1) {
        walk_states(a);
        continue;
      }
      for (const ScheduleEntry* schedule : schedules_) walk_stages(*schedule, a);
    }
  }

  void walk_stages(const ScheduleEntry& schedule, Arrangement a) {
    constexpr int most_of_a_rank = 16;
    a.schedule = schedule.name;
    const int own = schedule.virtual_stages;
    const int fewest = own > 0 ? own : 2, most = own > 0 ? own : most_of_a_rank;
    for (int v = fewest; v <= most && a.pp * v <= model_.layers; ++v) {
      a.virtual_stages = v;
      if (a.passes() > most_passes)
        reject_(too_many_passes);
      else if (!takes(schedule, a.shape()))
        reject_(fmt::format("{} does not take these ranks and micro-batches", schedule.name));
      else if (!schedule.in_flight(a.shape(), 0))
        reject_(fmt::format("{} has no closed form of its memory with so few micro-batches",
                            schedule.name));
      else
        walk_states(a);
    }
  }

  void walk_states(Arrangement a) {
    for (const int zero : {0, 1, 2, 3}) {
      if (zero == 0 && a.has_replicas(model_) && profile_.sharded_optimizer) continue;
      if (zero > 0 && !a.has_replicas(model_)) continue;
      if (zero > 1 && a.pp > 1) continue;
      a.zero_stage = zero;
      for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
        if (recompute == Recompute::selective && profile_.flash_attention) continue;
        a.recompute = recompute;
        take_(a);
      }
    }
  }

  static constexpr const char* too_many_passes = "too many micro-batches to replay";

  const Transformer& model_;
  const ClusterSheet& cluster_;
  std::vector<const ScheduleEntry*> schedules_;
  const SoftwareProfile& profile_;
  const SearchOptions& options_;
  const std::function<void(const Arrangement&)>& take_;
  const std::function<void(const std::string&)>& reject_;
};

}  // namespace

std::vector<int> expert_lengths(const Transformer& model, int ranks) {
  if (model.experts.count == 0) return {1};
  std::vector<int> lengths = divisors(ranks);
  std::erase_if(lengths, [&](int ep) { return model.experts.count % ep != 0; });
  return lengths;
}

void for_each_plan(const Transformer& model, const ClusterSheet& cluster,
                   const SoftwareProfile& profile, const SearchOptions& options,
                   const std::function<void(const Arrangement&)>& take,
                   const std::function<void(const std::string&)>& reject) {
  PlanSpace(model, cluster, profile, options, take, reject).walk();
}

}  // namespace lockstep
