#include "parallel/predict/predict.h"

#include <fmt/format.h>

#include <algorithm>

#include "models/gpt/activation_bytes.h"
#include "models/ops/narrow_types.h"
#include "parallel/context/traffic.h"
#include "parallel/expert/traffic.h"
#include "parallel/pipeline/execution/kept_inputs.h"
#include "parallel/pipeline/execution/messages.h"
#include "parallel/pipeline/execution/stashes.h"
#include "parallel/pipeline/execution/tied_embedding.h"
#include "parallel/predict/parameter_terms.h"
#include "parallel/predict/workspace.h"
#include "parallel/rank/norm.h"
#include "parallel/rank/rank_model.h"
#include "parallel/rank/router_balance.h"
#include "parallel/tensor/shared_gradients.h"
#include "parallel/tensor/traffic.h"

namespace lockstep {
namespace {

using enum Axis;

// One rank of a plan. Each part's terms depend on the plan alone, not on other terms.
class RankTerms {
 public:
  RankTerms(const Plan& plan, int rank, const Environment& environment)
      : plan_(plan),
        environment_(environment),
        rank_(rank),
        split_(plan.split(rank)),
        rows_(plan.rows(rank)),
        most_rows_(std::ranges::max(rows_)),
        dtype_(plan.options.dtype),
        outline_(plan, rank),
        rank_of_stage_(plan.schedule.rank_of_stage()) {
    for (int s = 0; s < plan.schedule.stages; ++s)
      if (rank_of_stage_[static_cast<std::size_t>(s)] == plan.place(rank, pp)) stages_.push_back(s);
    for (const ParameterSet set : outline_.model().sets())
      sets_.emplace_back(plan, rank, outline_.model(), set, environment);
  }

  std::vector<Terms> all() const {
    const bool on_host = environment_.computes_on_host;
    std::vector<Terms> all = {messages(),
                              layers(),
                              context_terms(plan_, rank_, count_layers(), attentions_back()),
                              expert_terms(plan_, rank_, layers_with_experts(), environment_),
                              pipeline(),
                              norm(),
                              router_balance_terms(plan_, rank_, layers_with_experts()),
                              activations(),
                              workspace_terms(plan_, rank_, environment_),
                              kept_inputs_terms(plan_, rank_, on_host)};
    for (std::size_t set = 0; set < sets_.size(); ++set)
      for (Terms& terms : sets_[set].all()) {
        terms.set = static_cast<int>(set);
        all.push_back(std::move(terms));
      }
    return all;
  }

 private:
  const Parameters& parameters() const { return outline_.parameters(); }
  Count element() const { return element_bytes(dtype_); }
  bool has_first_stage() const { return stages_.front() == 0; }
  bool has_last_stage() const { return stages_.back() == plan_.schedule.stages - 1; }
  bool is_even() const { return plan_.has_even_batches(); }
  StageLayers layers_of(int stage) const {
    return layers_of_stage(plan_.model.layers, plan_.schedule.stages, stage);
  }
  int count_layers() const {
    int layers = 0;
    for (const int s : stages_) layers += layers_of(s).count;
    return layers;
  }
  // Attentions that go back: all, unless nothing at or below the first one is trained.
  int attentions_back() const {
    const LoraConfig lora = lora_config(plan_.options);
    const bool is_cut = lora.exists() && !lora.trains_below("h.0.attn.c_proj");
    return count_layers() - (is_cut && has_first_stage() ? 1 : 0);
  }
  int layers_with_experts() const {
    int layers = 0;
    for (const int s : stages_)
      layers += plan_.model.experts.layers_among(layers_of(s).first, layers_of(s).count);
    return layers;
  }
  static HeldCount held_count(const ParameterTerms& set) {
    return [&set](const std::vector<Range>& ranges) { return set.held(ranges); };
  }

  // A replay: see messages.h. The memory of messages is reused and never returned.
  Terms messages() const {
    const MostMessages most = most_messages(plan_, rank_);
    const int all = std::max(most.in_training, most.in_validation);
    const Count message = split_.outer_rows(most_rows_) * plan_.model.width * element();
    Terms terms{.part = PlanPart::messages};
    terms.hold({.use = MemoryUse::communication,
                .bytes = most.in_training * message,
                .formula = fmt::format("{} messages", all),
                .exact = is_even()});
    // The last sequences to validate may be fewer, on one rank or on all.
    terms.hold({.use = MemoryUse::communication,
                .bytes = (all - most.in_training) * message,
                .exact = all == most.in_training,
                .moment = Moment::after_validation});
    return terms;
  }

  Terms layers() const {
    Terms terms{.part = PlanPart::layers};
    terms.hold({.use = MemoryUse::communication,
                .bytes = tensor_scratch_bytes(plan_.model, split_, most_rows_, dtype_,
                                              plan_.options.label_smoothing > 0, has_first_stage(),
                                              has_last_stage(), !plan_.trains_adapters()),
                .formula = "gathered rows",
                .exact = is_even()});
    for (const ParameterTerms& set : sets_)
      terms.hold({.use = MemoryUse::communication,
                  .bytes = shared_gradients_bytes(set.parameters(), set.summed_together(),
                                                  held_count(set)),
                  .formula = "packed gradients"});
    if (split_.ranks == 1) return terms;
    const ModelOptions options = model_options(plan_.options);
    for (const int s : stages_) {
      const TensorWork work{.config = plan_.model,
                            .split = split_,
                            .options = options,
                            .dtype = dtype_,
                            .rows = rows_,
                            .layers = layers_of(s),
                            .stage_again = plan_.recomputes_stages()};
      for (const auto& [label, traffic] : tensor_traffic(work))
        terms.send(label, traffic, element_bytes_of(label, dtype_));
    }
    terms.send(TensorRanks::forward_label, {}, 0, forward_formula(plan_.model, options));
    terms.send(TensorRanks::backward_label, {}, 0, backward_formula(plan_.model, split_));
    for (const ParameterTerms& set : sets_)
      terms.send(SharedGradients::label,
                 shared_gradients_traffic(set.parameters(), split_, set.summed_together(),
                                          held_count(set)),
                 element());
    terms.bytes_formula = "layers + embedding + head + loss + shared gradients";
    terms.messages_formula = "of each of them";
    return terms;
  }

  // Every boundary to another rank sends this rank's rows forward and receives their gradients.
  Terms pipeline() const {
    Terms terms{.part = PlanPart::pipeline};
    Count boundaries = 0;
    for (const int s : stages_)
      for (const int next : {s - 1, s + 1}) {
        if (next < 0 || next >= plan_.schedule.stages) continue;
        if (rank_of_stage_[static_cast<std::size_t>(next)] == plan_.place(rank_, pp)) continue;
        ++boundaries;
        add_boundary(terms, next > s);
      }
    const Traffic tied = tied_embedding_traffic(parameters(), outline_.embedding_copies(),
                                                plan_.place(rank_, pp), plan_.ends_of_pipeline());
    terms.send(TiedEmbedding::label, tied, element());
    if (plan_.length(pp) > 1) {
      terms.bytes_formula = fmt::format("{} * tokens * C * beta{}", boundaries,
                                        tied.sent_messages > 0 ? " + V * C * beta" : "");
      terms.messages_formula =
          fmt::format("{} m{}", boundaries, tied.sent_messages > 0 ? " + 2" : "");
    }
    add_schedule(terms);
    return terms;
  }
  void add_boundary(Terms& terms, bool is_forward) const {
    Count elements = 0;
    for (const Count rows : rows_) elements += split_.outer_rows(rows) * plan_.model.width;
    const auto messages = static_cast<Count>(rows_.size());
    // Sends activations to the next stage, and receives their gradients.
    terms.send(is_forward ? "activations" : "gradients of activations",
               {.sent_messages = messages, .sent_elements = elements}, element());
    terms.send(is_forward ? "gradients of activations" : "activations",
               {.received_messages = messages, .received_elements = elements}, element());
  }
  // The closed forms of its entry in the menu.
  void add_schedule(Terms& terms) const {
    if (!plan_.has_pipeline() || !plan_.options.schedule_file.empty()) return;
    const ScheduleEntry& entry = find_schedule(plan_.options.schedule);
    const PipelineShape shape = complete(entry, plan_.shape());
    if (const auto in_flight = entry.in_flight(shape, plan_.place(rank_, pp)))
      terms.in_flight = {*in_flight, std::string(entry.in_flight_formula), true};
    if (const auto makespan = entry.makespan(shape, PassTimes{}))
      terms.bubble_fraction =
          1 - value_of(Rational(shape.micro_batches) * PassTimes{}.total() / *makespan);
  }

  // Over the ranks of a model, in the order of the world.
  Terms norm() const {
    Terms terms{.part = PlanPart::norm};
    const std::vector<int> group = plan_.mesh.group_of(rank_, model_axes());
    const int ranks = static_cast<int>(group.size());
    if (ranks == 1) return terms;
    const int place = static_cast<int>(std::ranges::find(group, rank_) - group.begin());
    terms.send(norm_label, norm_traffic(ranks, place), sizeof(double));
    terms.bytes_formula = terms.messages_formula = "norm";
    terms.hold({.use = MemoryUse::communication,
                .bytes = norm_scratch_bytes(ranks, place),
                .moment = Moment::norm_of_model});
    return terms;
  }

  // The bytes of a stash are closed forms, the number of stashes is a replay: see stashes.h.
  Terms activations() const {
    const ModelOptions options = plan_.stage_options();
    const ActivationBytes bytes(plan_.model, most_rows_, dtype_, split_, options,
                                plan_.context(rank_).heads());
    const StashPeaks peaks = stash_peaks(plan_, rank_);
    // Layers that are recomputed one by one share one output.
    const Count made_again = options.recompute == Recompute::full ? bytes.outer() : 0;
    Count of_stages = 0;
    for (const int s : stages_) of_stages += bytes.shared(layers_of(s)) + made_again;
    // With adapters, backward may end in the mlp of the first block.
    const bool ends_in_mlp =
        options.lora.exists() && has_first_stage() && !options.lora.trains_below("h.0.mlp.c_fc");
    const bool has_other_blocks = count_layers() > 1;
    Terms terms{.part = PlanPart::activations};
    if (options.lora.exists())
      terms.hold({.use = MemoryUse::activations,
                  .bytes = bytes.shared_with_adapters(has_last_stage()),
                  .formula = shared_with_adapters(options.lora),
                  .exact = is_even()});
    terms.hold(
        {.use = MemoryUse::activations,
         .bytes = stash_bytes(peaks, bytes, !ends_in_mlp || has_other_blocks) + of_stages,
         .formula = fmt::format("{} blocks + {} block gradients + ends in flight", peaks.blocks,
                                peaks.block_gradients),
         // Which block's gradients take which memory depends on the order of passes.
         .exact = is_even() && !(ends_in_mlp && has_other_blocks && peaks.block_gradients > 1)});
    return terms;
  }

  static std::string shared_with_adapters(const LoraConfig& lora) {
    return fmt::format("N r{}{} + inputs not kept", lora.dropout > 0 ? " + a dropped input" : "",
                       lora.base != PackedFormat::none ? " + an unpacked matrix" : "");
  }

  const Plan& plan_;
  const Environment& environment_;
  int rank_;
  LayerSplit split_;
  std::vector<Count> rows_;  // of each micro-batch
  Count most_rows_;
  DType dtype_;
  RankOutline outline_;
  std::vector<ParameterTerms> sets_;
  std::vector<int> rank_of_stage_, stages_;
};

}  // namespace

std::vector<Terms> terms_of(const Plan& plan, int rank, const Environment& environment) {
  return RankTerms(plan, rank, environment).all();
}

Prediction predict(const Plan& plan, int rank, const Environment& environment) {
  require(rank >= 0 && rank < plan.ranks,
          fmt::format("rank {} of a plan for {} ranks", rank, plan.ranks),
          fmt::format("ranks are 0 to {}", plan.ranks - 1));
  require(!plan.has_servers(), "a prediction for a parameter server",
          "its closed forms are in parallel/parameter_server; run it to see them");
  return predict_replica(plan, rank, environment);
}

Prediction predict_replica(const Plan& plan, int rank, const Environment& environment) {
  return sum_of_terms(terms_of(plan, rank, environment));
}

}  // namespace lockstep
