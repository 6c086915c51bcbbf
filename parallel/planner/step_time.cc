#include "parallel/planner/step_time.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "parallel/planner/exchange_time.h"
#include "parallel/planner/pass_cost.h"
#include "parallel/planner/pipeline_time.h"
#include "parallel/planner/replica_time.h"

namespace lockstep {
namespace {

class StepModel {
 public:
  StepModel(const Transformer& model, const Arrangement& a, const ClusterSheet& cluster,
            const SoftwareProfile& profile)
      : model_(model),
        a_(a),
        cluster_(cluster),
        profile_(profile),
        schedule_(a.pp > 1 ? make_schedule(find_schedule(a.schedule), a.shape())
                           : make_schedule(find_schedule("1f1b"), {1, a.micro_batches(), 1})),
        layers_(stage_layers(model, a)),
        costs_(layer_costs(model, a, cluster, profile)) {}

  StepPrediction predict() {
    take_pipeline();
    if (a_.zero_stage >= 3)
      take_sharded_parameters();
    else
      take_replicas();
    parts_.push_back({"step_overhead", profile_.step_overhead});
    StepPrediction p;
    for (const StepPart& part : parts_) p.seconds += part.seconds;
    p.parts = parts_;
    p.uncertainty = profile_.uncertainty;
    const double sequences = static_cast<double>(a_.global_batch),
                 tokens = static_cast<double>(a_.sequence_length);
    p.model_flops_per_second = 3 * sequences * model_.forward_flops(tokens) / (p.seconds * a_.gpus);
    p.hardware_flops_per_second = hardware_flops(model_, a_) / (p.seconds * a_.gpus);
    p.tokens_per_second = sequences * tokens / p.seconds;
    p.memory = step_memory(model_, a_, profile_, schedule_);
    p.verdict = memory_verdict(p.largest_memory(), cluster_.memory_bytes);
    return p;
  }

 private:
  PassCosts of_stage(int stage) const {
    PassCosts sum = costs_.of(layers_[static_cast<std::size_t>(stage)]);
    if (stage == 0) sum += costs_.embedding;
    if (stage == a_.stages() - 1) sum += costs_.head;
    return sum;
  }

  // A pass of a stage, part by part: from the embedding to the head, or back.
  IssuedKernels pass_of(int stage, bool is_forward, PassCost (*part)(const PassCosts&)) const {
    const IssuedKernels dense = issued(part(costs_.layer)),
                        with_experts = issued(part(costs_.expert_layer));
    const auto layers = [&](int of_stage) {
      return layers_[static_cast<std::size_t>(of_stage)].all();
    };
    std::int64_t layer = 0;
    for (int before = 0; before < stage; ++before) layer += layers(before);
    std::vector<IssuedKernels> parts;
    if (stage == 0) parts.push_back(issued(part(costs_.embedding)));
    for (const std::int64_t end = layer + layers(stage); layer < end; ++layer)
      parts.push_back(model_.expert_layers(layer, layer + 1) > 0 ? with_experts : dense);
    if (stage == a_.stages() - 1) parts.push_back(issued(part(costs_.head)));
    if (!is_forward) std::ranges::reverse(parts);
    return std::accumulate(parts.begin(), parts.end(), IssuedKernels{});
  }
  StagePasses passes_of(int stage) const {
    return {.forward = pass_of(stage, true, [](const PassCosts& c) { return c.forward; }),
            .backward = pass_of(stage, false, [](const PassCosts& c) { return c.backward(); }),
            .input_gradient =
                pass_of(stage, false, [](const PassCosts& c) { return c.input_gradient; }),
            .weight_gradient =
                pass_of(stage, false, [](const PassCosts& c) { return c.weight_gradient; })};
  }

  void take_pipeline() {
    std::vector<StagePasses> passes;
    PassCost sum;
    for (int stage = 0; stage < a_.stages(); ++stage) {
      passes.push_back(passes_of(stage));
      const PassCosts costs = of_stage(stage);
      sum += costs.forward + costs.backward();
    }
    sum = sum * (static_cast<double>(a_.micro_batches()) / a_.pp);
    const double hop = a_.pp > 1 ? stage_hop_seconds(model_, a_, cluster_, profile_) : 0;
    const PipelineTimes times = pipeline_times(schedule_, passes, hop, profile_.blocking_sends);
    waits_ = times.waits;
    parts_ = {{"products_at_peak", sum.at_peak, true},
              {"sustained_rate", sum.sustained, true},
              {"tiles_and_launches", sum.quantisation, true},
              {"memory_bound", sum.memory_bound, true},
              {"issue", times.waits.total(), true},
              {"tp", sum.tensor},
              {"cp", sum.context},
              {"ep", sum.expert},
              {"bubble", times.bubble},
              {"imbalance", times.imbalance},
              {"pp", times.messages}};
  }

  void take_replicas() {
    double exposed = 0, update = 0;
    for (const std::vector<int>& stages : stages_by_rank(schedule_)) {
      LayerKinds layers;
      for (const int stage : stages) layers += layers_[static_cast<std::size_t>(stage)];
      const RankParameters parameters = rank_parameters(model_, a_, stages);
      exposed = std::max(exposed, exposed_exchange(inputs(), layers, parameters, waits_));
      update = std::max(update, update_seconds(inputs(), parameters));
    }
    parts_.push_back({"dp", exposed});
    parts_.push_back({"tied_embedding", tied_embedding_seconds(inputs())});
    parts_.push_back({"optimizer", update});
  }

  void take_sharded_parameters() {
    double compute = 0;
    for (const StepPart& part : parts_) compute += part.seconds;
    const RankParameters parameters = rank_parameters(model_, a_, {0});
    const double m = a_.micro_batches();
    parts_.push_back({"dp", m * exposed_sharded_exchange(inputs(), parameters, compute / m)});
    parts_.push_back({"optimizer", update_seconds(inputs(), parameters)});
  }

  StepInputs inputs() const { return {model_, a_, cluster_, profile_, costs_}; }

  const Transformer& model_;
  const Arrangement& a_;
  const ClusterSheet& cluster_;
  const SoftwareProfile& profile_;
  Schedule schedule_;
  std::vector<LayerKinds> layers_;  // by stage
  LayerCosts costs_;
  std::vector<StepPart> parts_;
  HostWaits waits_;
};

}  // namespace

double StepPrediction::largest_memory() const {
  double most = 0;
  for (const RankMemory& rank : memory) most = std::max(most, rank.total());
  return most;
}

std::string_view memory_verdict(double bytes, double limit) {
  return bytes <= fitting_part * limit ? "fits" : bytes <= limit ? "tight" : "does not fit";
}

double hardware_flops(const Transformer& model, const Arrangement& a) {
  const auto sequences = static_cast<double>(a.global_batch),
             tokens = static_cast<double>(a.sequence_length);
  const double again = a.recompute == Recompute::full ? model.layers_forward_flops(tokens) : 0;
  return sequences * (3 * model.forward_flops(tokens) + again);
}

StepPrediction predict_step(const Transformer& model, const Arrangement& arrangement,
                            const ClusterSheet& cluster, const SoftwareProfile& profile) {
  return StepModel(model, arrangement, cluster, profile).predict();
}

}  // namespace lockstep
