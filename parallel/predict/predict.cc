#include "parallel/predict/predict.h"

#include <fmt/format.h>

#include <algorithm>

#include "models/gpt/activation_bytes.h"
#include "models/ops/narrow_types.h"
#include "parallel/checkpoint/copy.h"
#include "parallel/context/traffic.h"
#include "parallel/data/ddp.h"
#include "parallel/pipeline/execution/kept_inputs.h"
#include "parallel/pipeline/execution/messages.h"
#include "parallel/pipeline/execution/stashes.h"
#include "parallel/pipeline/execution/tied_embedding.h"
#include "parallel/predict/workspace.h"
#include "parallel/rank/gradient_exchange.h"
#include "parallel/rank/norm.h"
#include "parallel/rank/rank_model.h"
#include "parallel/sharded/algorithms.h"
#include "parallel/sharded/offload.h"
#include "parallel/tensor/shared_gradients.h"
#include "parallel/tensor/traffic.h"

namespace lockstep {
namespace {

using enum Axis;

// One rank of a plan, with the parts of its closed forms.
class RankPrediction {
 public:
  RankPrediction(const Plan& plan, int rank, const Environment& environment)
      : plan_(plan),
        environment_(environment),
        rank_(rank),
        split_(plan.split(rank)),
        context_(plan.context(rank)),
        rows_(plan.rows(rank)),
        dtype_(plan.options.dtype),
        outline_(plan, rank),
        sharding_(sharding_of(plan)),
        rank_of_stage_(plan.schedule.rank_of_stage()) {
    for (int s = 0; s < plan.schedule.stages; ++s)
      if (rank_of_stage_[static_cast<std::size_t>(s)] == plan.place(rank, pp)) stages_.push_back(s);
    if (sharding_) units_ = sharded_units(outline_.model(), *sharding_, environment.algorithms);
  }

  Prediction get() {
    add_layers();
    add_context();
    add_pipeline();
    add_gradients();
    add_norm();
    if (prediction_.bytes_formula.empty()) prediction_.add_term("0", "0");
    set_states();
    set_activations();
    set_communication();
    predict_workspace(prediction_, plan_, rank_, environment_);
    if (sharding_ && offloads_states(plan_))
      predict_offload(prediction_, plan_, rank_, *sharding_, units_, environment_.computes_on_host);
    predict_kept_inputs(prediction_, plan_, rank_, environment_.computes_on_host);
    predict_checkpoints(prediction_, plan_, rank_, parameters(), sharding_ ? &units_ : nullptr,
                        environment_.computes_on_host);
    return std::move(prediction_);
  }

 private:
  const Parameters& parameters() const { return outline_.parameters(); }
  Count element() const { return element_bytes(dtype_); }
  bool has_first_stage() const { return stages_.front() == 0; }
  bool has_last_stage() const { return stages_.back() == plan_.schedule.stages - 1; }
  int model_ranks() const { return plan_.mesh.length(model_axes); }

  // Returns for how many elements of given ranges this rank holds gradients.
  HeldCount held_count() const {
    return [this](const std::vector<Range>& ranges) {
      Count count = 0;
      if (!sharding_)
        for (const Range& range : ranges) count += range.count;
      else
        for (const OwnPart& part :
             own_parts(parameters(), units_, plan_.shards(), plan_.shard(rank_), ranges))
          count += part.range.count;
      return count;
    };
  }
  // The ranks of a model are ordered as in the world.
  int place_in_model() const {
    const std::vector<int> group = plan_.mesh.group_of(rank_, model_axes);
    return static_cast<int>(std::ranges::find(group, rank_) - group.begin());
  }

  void add_layers() {
    if (split_.ranks == 1) return;
    const ModelOptions options = model_options(plan_.options);
    for (const int s : stages_) {
      const TensorWork work{.config = plan_.model,
                            .split = split_,
                            .options = options,
                            .dtype = dtype_,
                            .rows = rows_,
                            .layers = layers_of_stage(plan_.model.layers, plan_.schedule.stages, s),
                            .stage_again = plan_.recomputes_stages()};
      for (const auto& [label, traffic] : tensor_traffic(work))
        prediction_.add(label, traffic, element_bytes_of(label, dtype_));
    }
    prediction_.formulas[TensorRanks::forward_label] = forward_formula(options);
    prediction_.formulas[TensorRanks::backward_label] = backward_formula(split_);
    prediction_.add(SharedGradients::label,
                    shared_gradients_traffic(parameters(), split_, held_count()), element());
    prediction_.add_term("layers + embedding + head + loss + shared gradients", "of each of them");
  }

  void add_context() {
    int layers = 0;
    for (const int s : stages_)
      layers += layers_of_stage(plan_.model.layers, plan_.schedule.stages, s).count;
    if (plan_.length(cp) > 1) predict_context(prediction_, plan_, rank_, layers);
  }

  // Every boundary to another rank sends this rank's rows forward and receives their gradients.
  void add_pipeline() {
    Count boundaries = 0;
    for (const int s : stages_)
      for (const int next : {s - 1, s + 1}) {
        if (next < 0 || next >= plan_.schedule.stages) continue;
        if (rank_of_stage_[static_cast<std::size_t>(next)] == plan_.place(rank_, pp)) continue;
        ++boundaries;
        Count elements = 0;
        for (const Count rows : rows_) elements += split_.outer_rows(rows) * plan_.model.width;
        const auto messages = static_cast<Count>(rows_.size());
        const bool is_forward = next > s;
        // Sends activations to the next stage, and receives their gradients.
        prediction_.add(is_forward ? "activations" : "gradients of activations",
                        {.sent_messages = messages, .sent_elements = elements}, element());
        prediction_.add(is_forward ? "gradients of activations" : "activations",
                        {.received_messages = messages, .received_elements = elements}, element());
      }
    const Traffic tied = tied_embedding_traffic(parameters(), outline_.embedding_copies(),
                                                plan_.place(rank_, pp), plan_.ends_of_pipeline());
    prediction_.add(TiedEmbedding::label, tied, element());
    if (plan_.length(pp) == 1) return;
    prediction_.add_term(fmt::format("{} * tokens * C * beta{}", boundaries,
                                     tied.sent_messages > 0 ? " + V * C * beta" : ""),
                         fmt::format("{} m{}", boundaries, tied.sent_messages > 0 ? " + 2" : ""));
  }

  void add_gradients() {
    if (plan_.copies() == 1) return;
    if (sharding_) return add_sharded();
    const auto ddp = ddp_traffic(plan_, rank_, parameters(), environment_.algorithms,
                                 environment_.ranks_per_node);
    if (!ddp) {
      prediction_.total.reset();
      return;
    }
    prediction_.add("gradients", ddp->traffic, GradientExchange::element_bytes(plan_));
    prediction_.formulas["gradients"] = ddp->bytes_formula;
    prediction_.add_term(ddp->bytes_formula, ddp->messages_formula);
  }

  void add_sharded() {
    prediction_.add(norm_label, norm_traffic(plan_.shards(), plan_.shard(rank_)), sizeof(double));
    const auto sharded = sharded_traffic(plan_, rank_, *sharding_, units_, environment_);
    if (!sharded) return prediction_.total.reset();
    prediction_.add("gradients", sharded->gradients, GradientExchange::element_bytes(plan_));
    prediction_.add("parameters", sharded->parameters, element());
    prediction_.add("gradients of replicas", sharded->between_replicas, element());
    const auto [gradients, parameters, messages] = sharded_formulas(plan_, *sharding_);
    prediction_.formulas["gradients"] = gradients;
    prediction_.formulas["parameters"] = parameters;
    prediction_.add_term(gradients + " + " + parameters + " + norm", messages + " + norm");
  }

  void add_norm() {
    if (model_ranks() == 1) return;
    prediction_.add(norm_label, norm_traffic(model_ranks(), place_in_model()), sizeof(double));
    prediction_.add_term("norm", "norm");
  }

  // Predicts parameters, gradients and the optimizer's states.
  void set_states() {
    if (sharding_) return set_sharded_states();
    const Count count = parameters().count();
    const std::string psi = plan_.splits_model() ? "Psi_rank" : "Psi";
    prediction_.set(MemoryUse::parameters, count * element(), psi + " * beta");
    prediction_.set(MemoryUse::gradients, count * element(), psi + " * beta");
    set_optimizer(count, psi);
  }

  void set_sharded_states() {
    const ShardedElements elements = sharded_elements(plan_, rank_, *sharding_, units_);
    const auto buffers = [](bool is_sharded, const char* which) {
      return is_sharded ? std::string("(Psi/P + ") + which + ") * beta" : "Psi * beta";
    };
    prediction_.set(MemoryUse::parameters, elements.parameters * element(),
                    buffers(sharding_->shards_parameters(),
                            sharding_->group_ranks > 0 ? "(Psi - Psi_root)/N + gathered units"
                                                       : "gathered units"));
    prediction_.set(MemoryUse::gradients, elements.gradients * element(),
                    buffers(sharding_->shards_gradients(), "unreduced units"));
    set_optimizer(elements.shards, "Psi/P");
  }

  void set_optimizer(Count elements, std::string_view psi) {
    const OptimizerSettings settings = optimizer_settings(plan_.options);
    prediction_.set(MemoryUse::optimizer, elements * optimizer_bytes(settings, dtype_),
                    optimizer_formula(settings, dtype_, psi));
  }

  void set_activations() {
    const ModelOptions options = plan_.stage_options();
    const ActivationBytes bytes(plan_.model, *std::ranges::max_element(rows_), dtype_, split_,
                                options, context_.heads());
    const StashPeaks peaks = stash_peaks(plan_, rank_);
    // Layers that are recomputed one by one share one output.
    const Count made_again = options.recompute == Recompute::full ? bytes.outer() : 0;
    const auto stages = static_cast<Count>(stages_.size());
    prediction_.set(MemoryUse::activations,
                    stash_bytes(peaks, bytes) + stages * (bytes.shared() + made_again),
                    fmt::format("{} blocks + {} block gradients + ends in flight", peaks.blocks,
                                peaks.block_gradients),
                    plan_.has_even_batches());
    if (!plan_.has_pipeline() || !plan_.options.schedule_file.empty()) return;
    const ScheduleEntry& entry = find_schedule(plan_.options.schedule);
    const PipelineShape shape = complete(entry, plan_.shape());
    if (const auto in_flight = entry.in_flight(shape, plan_.place(rank_, pp)))
      prediction_.in_flight = {*in_flight, std::string(entry.in_flight_formula), true};
    if (const auto makespan = entry.makespan(shape, PassTimes{}))
      prediction_.bubble_fraction =
          1 - value_of(Rational(shape.micro_batches) * PassTimes{}.total() / *makespan);
  }

  // Predicts the memory of messages in flight, exchanges of split layers, and packed gradients.
  void set_communication() {
    const Count rows = *std::ranges::max_element(rows_);
    const MostMessages most = most_messages(plan_, rank_);
    const int messages = std::max(most.in_training, most.in_validation);
    const Count held = messages * split_.outer_rows(rows) * plan_.model.width * element();
    const Count layers =
        tensor_scratch_bytes(plan_.model, split_, rows, dtype_, plan_.options.label_smoothing > 0,
                             has_first_stage(), has_last_stage());
    const Count packed = shared_gradients_bytes(parameters(), held_count());
    const Count exchanged = plan_.length(cp) > 1 ? context_memory_bytes(plan_, rank_) : 0;
    const Count rounded = sharding_ ? sharded_communication_bytes(plan_, units_)
                                    : ddp_communication_bytes(plan_, parameters());
    // Temporary memory of a collective's algorithm, while all the other memory is in use.
    const Count norm =
        std::max(norm_scratch_bytes(model_ranks(), place_in_model()),
                 sharding_ ? norm_scratch_bytes(plan_.shards(), plan_.shard(rank_)) : 0);
    const Count reduction =
        sharding_ ? sharded_scratch_bytes(plan_, rank_, *sharding_, units_)
                  : ddp_scratch_bytes(plan_, rank_, parameters(), environment_.algorithms);
    const Count scratch = std::max(norm, reduction);
    // Units are also gathered before the rest of a first step has its memory.
    const bool follows_all = !plan_.options.overlap && (!sharding_ || plan_.options.steps > 1);
    // The messages of a validation meet it only if a step follows.
    const bool meet = scratch == 0 || messages == most.in_training;
    prediction_.set(MemoryUse::communication,
                    held + layers + exchanged + packed + rounded + scratch,
                    fmt::format("{} messages + gathered rows + packed gradients", messages),
                    plan_.has_even_batches() && meet && (reduction == 0 || follows_all));
  }

  const Plan& plan_;
  const Environment& environment_;
  int rank_;
  LayerSplit split_;
  ContextSplit context_;
  std::vector<Count> rows_;  // of each micro-batch
  DType dtype_;
  RankOutline outline_;
  std::optional<Sharding> sharding_;
  RankUnits units_;  // if sharded
  std::vector<int> rank_of_stage_, stages_;
  Prediction prediction_;
};

}  // namespace

Prediction predict(const Plan& plan, int rank, const Environment& environment) {
  require(rank >= 0 && rank < plan.ranks,
          fmt::format("rank {} of a plan for {} ranks", rank, plan.ranks),
          fmt::format("ranks are 0 to {}", plan.ranks - 1));
  require(!plan.has_servers(), "a prediction for a parameter server",
          "its closed forms are in parallel/parameter_server; run it to see them");
  return predict_replica(plan, rank, environment);
}

Prediction predict_replica(const Plan& plan, int rank, const Environment& environment) {
  return RankPrediction(plan, rank, environment).get();
}

}  // namespace lockstep
